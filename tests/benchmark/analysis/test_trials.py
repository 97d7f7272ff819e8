import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsub.benchmark.analysis.trials import GAIN, Outcome, Trials, explained
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.execution.tuning import tune
from fedsub.benchmark.spec.plan import make_plan
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import tuned_run, write_method


def _trials(folder: Path, count: int) -> Trials:
    """Searches of two methods whose score depends on the learning rate alone."""
    request = Request(
        dataset=("community",),
        clients=(3,),
        method=("fedprox", "ditto"),
        results=folder,
        engine="in-process",
        trials=count,
        cap=0,
    )
    found = tune(request, work=tuned_run, warn=pytest.fail, inform=lambda text: None, quiet=True)
    return Trials(tuple(Outcome(each, found.records, request) for each in found.searches))


def test_the_setting_that_decides_is_the_important_one_and_every_trial_is_a_line(tmp_path: Path) -> None:
    trials = _trials(tmp_path, 20)
    assert len(repr(trials).splitlines()) == 1 + len(trials.outcomes)
    found = trials.importance()
    assert found["learning_rate"] > 0.7
    assert found.sum() == pytest.approx(1)
    assert {"width", "layers", "fedprox.mu", "ditto.strength"} <= {*found.index}
    assert (explained(trials.outcomes * 3) or 0) > 0.5
    assert explained(trials.outcomes) is None
    assert sum(point[GAIN] for point in trials.outcomes[0].points) == pytest.approx(0)
    axes = trials.plot()
    assert {label.get_text() for label in axes.get_xticklabels()} == {*found.index}
    assert len([line for line in axes.get_lines() if np.size(line.get_xdata()) == len(found)]) >= 40
    with pytest.raises(UserError, match="none has a score"):
        Trials(()).plot()


NAMED = ("--rounds", "9", "--trials", "3", "--cap", "0", "--engine", "in-process")


@pytest.mark.parametrize(
    "asked",
    [
        "--dataset ./rings --method './mine.py' --partition './parts.py[size=2]' --set 'split=./roles.py'",
        "--dataset ./rings --method fedprox --partition 'file[path=clients.txt]' --clients 2",
        "--dataset community --method fedprox --backbone gat sgc --set 'learning_rate=0.1'",
        "--dataset community --method fedprox --set hidden=8 hidden=9+9",
        "--dataset community --method fedprox --set split=./roles.py split=ratio selection_metric=./score.py",
        "--table my_table.toml --method fedper",
        "--method fedavg --table natural --dataset community --partition metis --clients 5",
        "",
    ],
)
def test_the_command_of_a_search_runs_its_best_trial(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rings").mkdir()
    Path("rings/nodes.csv").write_text("id,x,label\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(60)))
    Path("rings/edges.csv").write_text("source,target\n" + "".join(f"{i},{i + 1}\n" for i in range(59)))
    Path("clients.txt").write_text("\n".join(str(i % 2) for i in range(60)))
    Path("parts.py").write_text("def partition(dataset, clients, seed, size=1): ...\n")
    Path("roles.py").write_text("def split(labels, partition, generator, size=1): ...\n")
    Path("score.py").write_text(
        "from fedsub.methods.tasks.metrics import metric\n@metric()\ndef score(output, items): ...\n"
    )
    write_method(Path("mine.py"))
    Path("my_table.toml").write_text("extends = 'quick'\n[settings]\ndropout = 0.3\n")
    request = parse(["tune", *shlex.split(asked), *NAMED]).request
    request = replace(request, results=tmp_path / "results")
    found = tune(request, work=tuned_run, warn=pytest.fail, inform=lambda text: None, quiet=True)
    for outcome in (Outcome(each, found.records, request) for each in found.searches):
        command = shlex.split(outcome.command(request))
        cells = make_plan(parse(command[1:]).request).cells
        assert outcome.search.final(outcome.chosen)[0].key in {cell.key for cell in cells}
        assert len({cell.group for cell in cells}) == 1
