from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fedsub.benchmark.analysis.agreement import CANNOT, NEEDS_RUNS, NOT_MEASURED
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


def claim_of(folder: Path, more: str = "", table: str = "fedpub-2", direction: str = "higher") -> Claim:
    """FED-PUB's claim over Local and FedAvg, with changes."""
    path = folder / "claims.toml"
    path.write_text(
        f"""
[[claim]]
paper = "FED-PUB"
place = "Table 2"
says = "FED-PUB is the best."
table = "{table}"
method = "fedpub"
is = "{direction}"
against = ["local", "fedavg"]
{more}
"""
    )
    (claim,) = load_claims(path)
    return claim


def found(claim: Claim, scores: Mapping[str, tuple[float, ...]], *place: str) -> Finding:
    records = records_of("fedpub-2", scores, *place)
    (finding,) = find([claim], {"fedpub-2": make_rows(load_protocol("fedpub-2"), records)})
    return finding


def away_of(finding: Finding) -> int:
    return sum(part.away for part in finding.parts)


ONE = "only = { dataset = ['cora'], clients = [10] }"


def test_one_rival_that_is_not_beaten_decides(tmp_path: Path) -> None:
    better = {**SCORES, "local": (73.0, 78.0, 83.5)}
    finding = found(claim_of(tmp_path, ONE), better, *PLACE)
    assert (finding.word, finding.columns[0].hardest) == (FAILS, 0)
    # FedAvg, 5.2 ± 2.0 points behind on average, is no more than undecided.
    assert found(claim_of(tmp_path, ONE), {**SCORES, "fedavg": (60.0, 69.0, 80.9)}, *PLACE).word == NEEDS_RUNS


def test_columns_that_are_not_measured_leave_a_claim_undecided(tmp_path: Path) -> None:
    two = "only = { dataset = ['cora'], clients = [10, 20] }"
    scores = {**SCORES, "fedavg": (60.0, 65.1, 70.1)}
    finding = found(claim_of(tmp_path, two), scores, *PLACE)
    assert [column.word for column in finding.columns] == [HOLDS, NOT_MEASURED]
    assert finding.word == NEEDS_RUNS
    assert found(claim_of(tmp_path, f'columns = "all but 1"\n{two}'), scores, *PLACE).word == HOLDS
    assert found(claim_of(tmp_path, two), {**SCORES, "local": (73.0, 78.0, 83.5)}, *PLACE).word == FAILS


def test_on_average_is_one_comparison_of_all_columns(tmp_path: Path) -> None:
    two = "columns = 'on average'\nonly = { dataset = ['cora'], clients = [10, 20] }"
    scores = {**SCORES, "fedavg": (60.0, 65.1, 70.1)}
    finding = found(claim_of(tmp_path, two), scores, "--dataset", "cora", "--clients", "10", "20")
    (average,) = finding.parts[0].judged_by
    assert len(average.columns) == 2
    assert finding.word == HOLDS
    assert average.comparisons[0] is not None
    assert average.comparisons[0].difference == pytest.approx(1.1)
    assert found(claim_of(tmp_path, two), scores, *PLACE).word == NEEDS_RUNS


def test_graphs_that_are_not_at_hand_are_counted_apart(tmp_path: Path) -> None:
    scores = {**SCORES, "fedavg": (60.0, 65.1, 70.1)}
    both = "only = { dataset = ['cora', 'ogbn_arxiv'], clients = [10] }"
    finding = found(claim_of(tmp_path, both), scores, *PLACE)
    assert (finding.word, len(finding.columns), away_of(finding)) == (HOLDS, 1, 1)
    away = "only = { dataset = ['ogbn_arxiv'] }"
    assert found(claim_of(tmp_path, away), scores, *PLACE).word == CANNOT


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


def test_of_several_contrasts_all_must_hold(tmp_path: Path) -> None:
    """FED-PUB is 1.1 ± 0.1 points ahead of Local, and eleven ahead of FedAvg."""
    scores = {**SCORES, "fedavg": (60.0, 65.1, 70.2)}

    def word(second: str) -> str:
        path = tmp_path / "claims.toml"
        path.write_text(
            f"""
[[claim]]
paper = "FED-PUB"
place = "Table 2"
says = "FED-PUB is best."
table = "fedpub-2"
method = "fedpub"
{ONE}

[[claim.contrast]]
is = "higher"
against = ["local"]

[[claim.contrast]]
{second}
"""
        )
        (claim,) = load_claims(path)
        return found(claim, scores, *PLACE).word

    assert word('is = "higher"\nmargin = 5\nagainst = ["fedavg"]') == HOLDS
    assert word('is = "higher"\nmargin = 15\nagainst = ["fedavg"]') == FAILS
    assert word('is = "higher"\nagainst = ["fedprox"]') == NEEDS_RUNS
    assert word('is = "lower"\nagainst = ["fedavg"]\ncolumns = "on average"') == FAILS
    # What no graph at hand can answer is left out.
    away = 'is = "lower"\nagainst = ["fedavg"]\nonly = { dataset = ["ogbn_arxiv"] }'
    assert word(away) == HOLDS
