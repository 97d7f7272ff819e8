from pathlib import Path

import numpy as np
import pytest

from fedsub.benchmark.analysis.trials import GAIN, Outcome, Trials
from fedsub.benchmark.execution.tuning import tune
from fedsub.benchmark.spec.request import Request
from tests.benchmark.fakes import tuned_run


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
    return Trials(tuple(Outcome(each, found.records) for each in found.searches))


def test_the_setting_that_decides_is_the_important_one_and_every_trial_is_a_line(tmp_path: Path) -> None:
    trials = _trials(tmp_path, 20)
    found = trials.importance()
    assert found.index[0] == "learning_rate"
    assert found.iloc[0] > 0.7
    assert found.sum() == pytest.approx(1)
    assert {"width", "layers", "fedprox.mu", "ditto.strength"} <= {*found.index}
    assert trials.outcomes[0].points[GAIN].mean() == pytest.approx(0)
    axes = trials.plot()
    assert {label.get_text() for label in axes.get_xticklabels()} == {*found.index}
    assert len([line for line in axes.get_lines() if np.size(line.get_xdata()) == len(found)]) >= 40
