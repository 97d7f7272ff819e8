from collections.abc import Mapping
from pathlib import Path

import pytest

from fedsub.benchmark.analysis.agreement import NEEDS_RUNS, NOT_MEASURED
from fedsub.benchmark.analysis.claims import Claim, load_claims
from fedsub.benchmark.analysis.findings import Finding, discoveries, find
from fedsub.benchmark.analysis.paired import FAILS, HOLDS
from fedsub.benchmark.analysis.scores import make_rows
from fedsub.benchmark.report.summaries import write_claims
from fedsub.benchmark.spec.protocol import load_protocol
from tests.benchmark.analysis.test_figures import records_of

SCORES: Mapping[str, tuple[float, ...]] = {
    "local": (70.0, 75.0, 80.0),
    "fedavg": (60.0, 69.0, 78.0),
    "fedpub": (71.0, 76.1, 81.2),
}
PLACE = ("--dataset", "cora", "--clients", "10")


def claim_of(folder: Path, more: str = "", direction: str = "higher") -> Claim:
    """FED-PUB's claim over Local and FedAvg, with changes."""
    path = folder / "claims.toml"
    path.write_text(
        '[[claim]]\npaper = "FED-PUB"\nplace = "Table 2"\nsays = "FED-PUB is the best."\ntable = "fedpub-2"\n'
        f'method = "fedpub"\nis = "{direction}"\nagainst = ["local", "fedavg"]\n{more}\n'
    )
    (claim,) = load_claims(path)
    return claim


def found(claim: Claim, scores: Mapping[str, tuple[float, ...]], *place: str) -> Finding:
    records = records_of("fedpub-2", scores, *place)
    (finding,) = find([claim], {"fedpub-2": make_rows(load_protocol("fedpub-2"), records)})
    return finding


ONE = "only = { dataset = ['cora'], clients = [10] }"


def test_one_rival_that_is_not_beaten_decides(tmp_path: Path) -> None:
    better = {**SCORES, "local": (73.0, 78.0, 83.5)}
    finding = found(claim_of(tmp_path, ONE), better, *PLACE)
    assert (finding.word, finding.differences) == (FAILS, [pytest.approx(-6.2 / 3)])
    # FedAvg, 5.2 ± 2.0 points behind on average, needs more runs.
    assert found(claim_of(tmp_path, ONE), {**SCORES, "fedavg": (60.0, 69.0, 80.9)}, *PLACE).word == NEEDS_RUNS


def test_on_average_is_one_comparison_of_all_columns(tmp_path: Path) -> None:
    two = "columns = 'on average'\nonly = { dataset = ['cora'], clients = [10, 20] }"
    scores = {**SCORES, "fedavg": (60.0, 65.1, 70.1)}
    finding = found(claim_of(tmp_path, two), scores, "--dataset", "cora", "--clients", "10", "20")
    (average,) = finding.parts[0].judged_by
    assert len(finding.columns) == 2
    assert finding.word == HOLDS
    assert average[0] is not None
    assert average[0].difference == pytest.approx(1.1)
    assert found(claim_of(tmp_path, two), scores, *PLACE).word == NEEDS_RUNS


def test_a_claim_on_every_column_does_not_hold_without_a_graph(tmp_path: Path) -> None:
    scores = {**SCORES, "fedavg": (60.0, 65.1, 70.1)}
    both = "only = { dataset = ['cora', 'ogbn_arxiv'], clients = [10] }"
    finding = found(claim_of(tmp_path, both), scores, *PLACE)
    assert finding.words == {HOLDS: 1, NOT_MEASURED: 1}
    assert finding.word == NEEDS_RUNS
    assert found(claim_of(tmp_path, both), {**scores, "local": (73.0, 78.0, 83.5)}, *PLACE).word == FAILS
    absent = "only = { dataset = ['ogbn_arxiv'] }"
    assert found(claim_of(tmp_path, absent), scores, *PLACE).word == NOT_MEASURED


def test_the_page_says_what_was_tested_and_shows_the_hardest_rival(tmp_path: Path) -> None:
    finding = found(claim_of(tmp_path, ONE), {**SCORES, "fedavg": (60.0, 65.1, 70.1)}, *PLACE)
    assert discoveries([finding]) == {HOLDS: (1, 1), FAILS: (0, 0)}
    # 81.54 − 79.94 is printed.
    assert (
        "| +1.60 | +1.10 | holds in 1 | 3 | **holds** |" in write_claims(tmp_path, [finding])[1].read_text()
    )
    (column,) = finding.to_dict()["columns"]
    assert (column["dataset"], column["clients"], column["verdict"]) == ("cora", 10, HOLDS)
    local = {"method": "local", "printed": 1.6, "measured": 1.1, "interval": [0.7125, 1.4875], "seeds": 3}
    assert column["against"][0] == local
