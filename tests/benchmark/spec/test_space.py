import numpy as np
import pytest

from fedsub.benchmark.spec import catalog, space
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from tests.benchmark.fakes import make_cell


@pytest.mark.parametrize("method", registry.names())
def test_every_method_runs_at_every_point_of_its_space(method: str) -> None:
    backbone = registry.describe(method).backbones[0]
    base = make_cell(method=method, backbone=backbone)
    cells = space.trial_cells(base)
    assert len(space.own_dimensions(method)) <= space.MOST_OWN
    assert cells[0] == base
    assert len({cell.key for cell in cells}) == Request.trials
    for cell in cells:
        registry.make_options(method, dict(cell.options))


def test_all_methods_have_the_same_points_in_the_shared_dimensions() -> None:
    def shared(method: str) -> list[tuple[object, object]]:
        return [(cell.schedule, cell.architecture) for cell in space.trial_cells(make_cell(method=method))]

    names = {each.name for each in space.shared_dimensions()}
    assert {"learning_rate", "weight_decay", "local_epochs", "hidden", "dropout"} <= names
    assert shared("fedavg") == shared("fedprox") == shared("fedpub")


def test_the_points_spread_over_every_dimension() -> None:
    found = space.points()
    assert found.shape == (Request.trials - 1, len(space.shared_dimensions()) + space.MOST_OWN)
    quarters = [np.unique((4 * column).astype(int)) for column in found.T]
    assert all(len(each) == 4 for each in quarters)
    np.testing.assert_array_equal(space.points(8), found[:7])


def test_an_option_that_cannot_act_keeps_its_default() -> None:
    base = make_cell(method="fedcog")
    cells = {dict(cell.options).get("convolution", "backbone"): cell for cell in space.trial_cells(base)}
    assert "restart" not in dict(cells["backbone"].options)
    assert "restart" in dict(cells["appnp"].options)
    assert len(space.own_dimensions("fedcog")) == 3


def test_what_a_trial_changes_is_told_apart_from_its_options() -> None:
    base = make_cell(method="fedlit")
    trial = space.trial_cells(base)[1]
    method, settings = space.changes(base, trial)
    assert method == trial.variant
    assert "dropout" in settings
    assert "dropout=" in method
    assert space.changes(base, base) == ("fedlit", {})


def test_of_too_many_tunable_options_some_are_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "MOST_OWN", 2)
    with pytest.raises(UserError, match=r"more than 2 tunable options .*: fix some of them, as in 'fedcog\["):
        space.trial_cells(make_cell(method="fedcog"), 3)
    fixed, *_ = catalog.describe("fedcog").tuned
    assert len(space.trial_cells(make_cell(method="fedcog"), 3, {fixed})) == 3
