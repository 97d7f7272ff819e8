import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from fedsub.benchmark.analysis.causes import NO_CAUSE, Stated, cause_of, load_causes, stated, text_of
from fedsub.benchmark.analysis.public_code import CODES, compare, load
from fedsub.benchmark.analysis.published import figures
from fedsub.benchmark.analysis.scores import Leaderboard
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.benchmark.spec.settings import SETTINGS
from fedsub.datasets.errors import UserError
from tests.benchmark.report.rendered import tables_of

ROOT = Path(__file__).resolve().parents[3]


def test_every_cause_is_that_of_a_printed_figure() -> None:
    """An entry is dead if no figure matches it, or if earlier entries match all of its figures."""
    used = {id(cause_of(place, kind)) for place in figures() for kind in ("level", "gain")}
    assert [cause.text for cause in load_causes() if id(cause) not in used] == []
    assert [cause.text for cause in load_causes() if bool(cause.cause) == bool(cause.open)] == []


def test_the_evidence_exists_and_holds_a_record_of_each_cause() -> None:
    made = ("results/leaderboards/", "results/authors.md", "results/runs/")
    for cause in load_causes():
        assert cause.evidence
        assert not cause.cause or any(named.startswith(made) for named in cause.evidence), cause.text
        for named in cause.evidence:
            if named.startswith("python -m benchmark "):
                parse(shlex.split(named)[3:])
            else:
                assert (ROOT / named).exists(), named


def test_every_figure_in_a_sentence_stands_in_its_evidence() -> None:
    """A sentence must not outlive the records it describes when these are made again."""
    records, unfounded = Records(ROOT / "results"), []

    def board_of(table: str) -> Leaderboard:
        protocol = load_protocol(table)
        return Leaderboard(protocol, records.of_table(protocol.name, grid_cells(protocol)))

    @cache
    def beside(named: str) -> str:
        """Return the rows and columns that the site shows and the page in git leaves out."""
        if named.startswith("results/leaderboards/"):
            return tables_of(board_of(Path(named).stem))
        if named != "results/authors.md":
            return ""
        tables = dict.fromkeys(table for code in CODES.values() for table in code.tables)
        found = compare(load(ROOT / "results"), [*map(board_of, tables)])
        return " ".join(f"{mean:.2f}" for each in found for mean in each.means)

    for cause in load_causes():
        files = [each for each in cause.evidence if each.endswith((".md", ".toml", ".py"))]
        written = " ".join((ROOT / each).read_text(encoding="utf-8") for each in files)
        said = [figure for figure in re.findall(r"\d+\.\d+", cause.text) if figure not in written]
        if said:
            written = " ".join(map(beside, files))
            unfounded += [(figure, cause.text) for figure in said if figure not in written]
    assert unfounded == []


def test_the_first_that_fits_counts_and_an_open_one_says_so() -> None:
    place = ("FED-PUB", "3", "Cora", "metis-overlapping", "10", "FedGNN", "", "communication_pct_of_fedavg")
    assert text_of(place, "level").startswith(f"{NO_CAUSE}. Tried: feature rows counted in every round")
    assert text_of((*place[:-1], "accuracy"), "gain").startswith(f"{NO_CAUSE}. Its augmentation")
    assert text_of(("A paper", *place[1:]), "level") == NO_CAUSE


def test_a_faulty_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "causes.toml"
    path.write_text('[[cause]]\nwhere = {}\ncause = "it is so"\nof = "all"\n')
    with pytest.raises(UserError, match="Invalid enum value 'all'"):
        load_causes(path)


def test_what_papers_state_names_papers_settings_and_options_that_exist() -> None:
    papers = {figure.paper for group in figures().values() for figure in group}
    assert set(stated()) <= papers
    for name, said in (line for paper in stated().values() for line in paper.items()):
        method, colon, option = name.rpartition(": ")
        assert option in (catalog.describe(method).options if colon else SETTINGS), name
        assert said != Stated(), name
