from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from fedsub.benchmark.analysis.causes import KINDS, NO_CAUSE, cause_of, load_causes, text_of
from fedsub.benchmark.analysis.public_code import CODES, compare, load
from fedsub.benchmark.analysis.published import figures
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from tests.benchmark.report.rendered import tables_of

ROOT = Path(__file__).resolve().parents[3]


def test_every_cause_is_that_of_a_printed_figure() -> None:
    """An entry that no figure reaches, because none is so or because an earlier one fits, says nothing."""
    used = {id(cause_of(place, kind)) for place in figures() for kind in KINDS}
    assert [cause.text for cause in load_causes() if id(cause) not in used] == []


def test_no_cause_stands_without_a_record() -> None:
    made = ("results/leaderboards/", "results/authors.md", "results/runs/")
    for cause in load_causes():
        assert not cause.cause or any(named.startswith(made) for named in cause.evidence), cause.text


def test_the_evidence_exists() -> None:
    for cause in load_causes():
        assert cause.evidence
        for named in cause.evidence:
            if named.startswith("python -m benchmark "):
                parse(shlex.split(named)[3:])
            else:
                assert (ROOT / named).exists(), named


def test_every_figure_in_a_sentence_stands_in_its_evidence() -> None:
    """So that a sentence on records that were made again does not outlive them."""
    records, unfounded = Records(ROOT / "results"), []

    def board_of(table: str) -> Leaderboard:
        protocol = load_protocol(table)
        return Leaderboard(protocol, records.of_table(protocol.name, grid_cells(protocol)))

    @cache
    def text(named: str) -> str:
        """A file's; of a page also the rows and columns that the site has and the page in git leaves out."""
        if named.startswith("results/leaderboards/"):
            return tables_of(board_of(Path(named).stem))
        told = (ROOT / named).read_text(encoding="utf-8")
        if named == "results/authors.md":
            tables = dict.fromkeys(table for code in CODES.values() for table in code.tables)
            for each in compare(load(ROOT / "results"), [*map(board_of, tables)]):
                told += " " + " ".join(f"{mean:.2f}" for mean in each.means)
        return told

    for cause in load_causes():
        evidence = " ".join(text(each) for each in cause.evidence if each.endswith((".md", ".toml", ".py")))
        said = cause.text
        unfounded += [(figure, said) for figure in re.findall(r"\d+\.\d+", said) if figure not in evidence]
    assert unfounded == []


def test_the_first_that_fits_counts_and_an_open_one_says_so() -> None:
    place = ("FED-PUB", "3", "Cora", "metis-overlapping", "10", "FedGNN", "", "communication_pct_of_fedavg")
    assert text_of(place, "level").startswith(f"{NO_CAUSE}. Tried: feature rows counted in every round")
    assert text_of((*place[:-1], "accuracy"), "gain").startswith(f"{NO_CAUSE}. Its augmentation")
    assert text_of(("A paper", *place[1:]), "level") == NO_CAUSE


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ('where = { paper = "FedCog" }\ncause = "it is so"\nopen = "this"', "either cause or open"),
        ('where = {}\ncause = "it is so"\nof = "all"', "Invalid enum value 'all'"),
        ('where = { methods = "FedAvg" }\ncause = "it is so"', "part of a place"),
    ],
)
def test_a_faulty_entry_is_refused(tmp_path: Path, block: str, message: str) -> None:
    path = tmp_path / "causes.toml"
    path.write_text(f"[[cause]]\n{block}\n")
    with pytest.raises(UserError, match=message):
        load_causes(path)
