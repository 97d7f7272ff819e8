from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from fedsub.benchmark.analysis.agreement import DIFFERS
from fedsub.benchmark.analysis.causes import (
    KINDS,
    NOTHING_TRIED,
    Cause,
    cause_of,
    causes,
    load_causes,
    text_of,
)
from fedsub.benchmark.analysis.published import PLACE, figures
from fedsub.benchmark.cli.parser import parse
from fedsub.datasets.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def test_every_cause_is_that_of_a_printed_figure() -> None:
    """An entry that no figure reaches, because none is so or because an earlier one fits, says nothing."""
    used = {id(cause_of(place, kind)) for place in figures() for kind in KINDS}
    assert [cause.text() for cause in causes() if id(cause) not in used] == []


def test_every_figure_that_differs_has_a_line() -> None:
    entries = json.loads((ROOT / "results" / "reproduction.json").read_text(encoding="utf-8"))
    differing = 0
    for entry in entries:
        place = tuple(entry[part] for part in PLACE)
        for kind in KINDS:
            if entry[kind] is not None and entry[kind]["verdict"] == DIFFERS:
                differing += 1
                known = cause_of(place, kind)
                assert known is not None, place
                said = entry["cause"] if kind == "level" else entry["gain"]["cause"]
                tried = f"no cause found; tried: {known.tried.rstrip('.')}"
                assert said.startswith(known.cause.rstrip(".") or tried)
                assert known.cause or all(f"`{trial['changed']}`: " in said for trial in entry["trials"])
    assert differing


def test_the_evidence_exists() -> None:
    for cause in causes():
        assert cause.evidence
        for named in cause.evidence:
            if named.startswith("python -m benchmark "):
                parse(shlex.split(named)[3:])
            else:
                assert (ROOT / named).exists(), named


def test_every_figure_in_a_sentence_stands_in_its_evidence() -> None:
    """So that a sentence on records that were made again does not outlive them."""
    unfounded = []
    for cause in causes():
        files = [ROOT / named for named in cause.evidence if named.endswith((".md", ".toml", ".py"))]
        evidence = " ".join(path.read_text(encoding="utf-8") for path in files)
        said = f"{cause.cause} {cause.tried} {cause.known}"
        unfounded += [(figure, said) for figure in re.findall(r"\d+\.\d+", said) if figure not in evidence]
    assert unfounded == []


def test_the_first_that_fits_counts_and_what_is_not_known_says_so() -> None:
    place = ("FED-PUB", "3", "Cora", "metis-overlapping", "10", "FedGNN", "", "communication_pct_of_fedavg")
    assert text_of(place, "level").startswith("no cause found; tried: feature rows counted in every round")
    accuracy = (*place[:-1], "accuracy")
    said = text_of(accuracy, "gain")
    assert said.startswith("no cause found; tried: nothing on this row. Its augmentation")
    assert text_of(("A paper", *place[1:]), "level") == f"no cause found; tried: {NOTHING_TRIED}"


def test_what_was_run_in_the_place_of_a_figure_is_said_where_no_cause_is_known() -> None:
    trials = ["`mu=0.1`: 70.00, 3 seeds", "`rounds=10`: 60.00, 1 seed"]
    known = Cause({}, KINDS, "", "another server.", "Print has two decimals.", ("a", "b"))
    assert known.text(trials) == (
        "no cause found; tried: another server; `mu=0.1`: 70.00, 3 seeds; `rounds=10`: 60.00, 1 seed. Print"
        " has two decimals (a; b)"
    )
    assert Cause({}, KINDS, "The data.", "", "", ("a",)).text(trials) == "The data (a)"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ('cause = "it is so"\ntried = "this"', "either cause, or tried"),
        ('cause = "it is so"\nknown = "this"', "either cause, or tried"),
        ('paper = "FedCog"', "either cause, or tried"),
        ('cause = "it is so"\nof = "all"', "level or gain"),
        ('cause = "it is so"\nmethods = "FedAvg"', "unknown key of a cause"),
        ('cause = "it is so"\nclients = 3', "must be list"),
        ("cause = ", "not valid TOML"),
    ],
)
def test_a_faulty_entry_is_refused(tmp_path: Path, block: str, message: str) -> None:
    path = tmp_path / "causes.toml"
    path.write_text(f"[[cause]]\n{block}\n")
    with pytest.raises(UserError, match=message):
        load_causes(path)
