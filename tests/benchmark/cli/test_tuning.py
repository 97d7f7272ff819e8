import json
from pathlib import Path

import pytest

from tests.benchmark.fakes import run, tuned_run

TUNE = ("tune", "--dataset", "community", "--method", "fedprox", "--rounds", "9", "--engine", "in-process")


def test_trials_are_shown_with_the_command_of_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *TUNE, "--trials", "6", "--clients", "3", work=tuned_run) == 0
    out = capsys.readouterr().out
    assert "fedprox on community, metis, 3 clients" in out
    assert "defaults" in out
    command = out.splitlines()[-1]
    for said in ("fedsub run", "--clients '3'", "--method 'fedprox", " --set rounds=9 ", "learning_rate="):
        assert said in command


def test_what_did_not_fit_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, *TUNE, "--cap", "3", "--clients", "3", work=tuned_run) == 0
    assert "15 of 20 trials did not fit into 3 core-seconds (3 times what FedAvg" in capsys.readouterr().err


def test_trials_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, *TUNE, "--trials", "6", "--format", "json", work=tuned_run) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["trial"] for row in rows] == [*range(6)]
    assert sum(row["best"] for row in rows) == 1
