import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.samplers import TPESampler

from fedsub.benchmark.execution.runner import make_clients
from fedsub.benchmark.execution.tuning import Tuned, tune
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.records.search import FINAL_SEEDS, Search, Standing, kept
from fedsub.benchmark.spec.cell import Cell
from fedsub.benchmark.spec.given import Given
from fedsub.benchmark.spec.request import SEARCH_SEEDS, Request
from fedsub.datasets import registry as graphs
from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import register
from fedsub.methods.fedavg import FedAvg
from tests.benchmark.fakes import failed, make_cell, tuned_run

ROUNDS = 9


class Work:
    """Fake runs whose score is better the nearer the learning rate is to 0.02. Records its cells, and is
    interrupted after `most` runs."""

    def __init__(
        self, seconds: float = 1.0, broken: Callable[[Cell], bool] = lambda cell: False, most: int = 10**6
    ) -> None:
        self.seconds, self.broken, self.most = seconds, broken, most
        self.cells: list[Cell] = []

    def __call__(self, cell: Cell, **beside: Any) -> Record:
        if len(self.cells) == self.most:
            raise KeyboardInterrupt
        self.cells.append(cell)
        if self.broken(cell):
            return failed(cell, "it broke")
        record = tuned_run(cell)
        seconds = {part: self.seconds * each for part, each in record.seconds.items()}
        return replace(record, outcome=replace(record.result, seconds=seconds))


def _request(folder: Path, *methods: str, settings: tuple[str, ...] = ()) -> Request:
    return Request(
        dataset=("community",),
        clients=(3,),
        method=methods or ("fedprox",),
        settings=(f"rounds={ROUNDS}", *settings),
        results=folder,
        engine="in-process",
    )


def _tune(request: Request, work: Work, **limits: Any) -> Standing:
    found = _tuned(replace(request, **limits), work)
    return Standing(found.searches[0], found.records)


def _tuned(request: Request, work: Work) -> Tuned:
    return tune(request, work=work, warn=pytest.fail, inform=lambda text: None, quiet=True)


def test_the_best_third_of_all_trials_goes_on_to_all_rounds_and_two_draws(tmp_path: Path) -> None:
    work = Work()
    standing = _tune(_request(tmp_path), work, trials=6, cap=0)
    first = [cell for cell in work.cells if cell.schedule.rounds == ROUNDS / 3]
    second = [cell for cell in work.cells if cell.schedule.rounds == ROUNDS]
    assert (len(first), len(second)) == (6, 4)
    assert {cell.seed for cell in first} == {SEARCH_SEEDS[0]}
    assert {cell.seed for cell in second} == {*SEARCH_SEEDS}
    rates = [trial.schedule.learning_rate for trial in standing.search.trials]
    assert rates[0] == 0.01
    nearest = sorted(range(6), key=lambda number: abs(np.log(rates[number] / 0.02)))
    assert standing.promoted == nearest[:2]
    assert standing.chosen == nearest[0]
    assert {cell.schedule.learning_rate for cell in second} == {rates[number] for number in nearest[:2]}


def test_an_interrupted_search_goes_on_and_a_finished_one_runs_nothing(tmp_path: Path) -> None:
    whole = _tune(_request(tmp_path / "whole"), Work(), trials=6)

    with pytest.raises(KeyboardInterrupt):
        _tune(_request(tmp_path / "cut"), first := Work(most=4), trials=6)
    second = Work()
    rest = _tune(_request(tmp_path / "cut"), second, trials=6)
    assert not {cell.key for cell in first.cells} & {cell.key for cell in second.cells}
    assert (rest.chosen, rest.validation) == (whole.chosen, whole.validation)
    again = Work()
    _tune(_request(tmp_path / "cut"), again, trials=6)
    assert again.cells == []


def test_a_search_that_costs_more_than_its_cap_leaves_trials_out(tmp_path: Path) -> None:
    # Half of 3 seconds for trials of a third of a second.
    work = Work()
    standing = _tune(_request(tmp_path), work, trials=20, cap=3.0)
    assert len(standing.short) == 5
    assert standing.left_out == 15
    # 5/3 seconds are spent; two runs of a second begin below 3.
    assert sum(cell.schedule.rounds == ROUNDS and cell.method == "fedprox" for cell in work.cells) == 2
    assert standing.seconds == pytest.approx(11 / 3, abs=1e-3)


@pytest.mark.parametrize("fails", [False, True])
def test_without_a_finished_second_rung_the_first_chooses(tmp_path: Path, fails: bool) -> None:
    # Four trials of a third of a second, then one run of a second: one of the two draws.
    work = Work(
        broken=lambda cell: (
            fails and cell.schedule.rounds == ROUNDS and 0.02 < cell.schedule.learning_rate < 0.03
        )
    )
    standing = _tune(_request(tmp_path), work, trials=6, cap=2.3)
    assert (len(standing.short), standing.full) == (4, {})
    assert [standing.search.trials[number].schedule.learning_rate for number in standing.promoted] == [
        pytest.approx(0.0211, abs=1e-4),
        0.01,
    ]
    assert standing.chosen == standing.promoted[int(fails)]


def test_a_sampler_learns_from_the_scores_and_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    def search(folder: Path, work: Work) -> list[float]:
        request = replace(_request(folder, settings=("hidden=8",)), trials=30, cap=0)
        sampler = TPESampler(seed=0, n_startup_trials=5)
        found = tune(request, None, sampler, work=work, warn=pytest.fail, inform=print, quiet=True)
        trials = found.searches[0].trials
        assert {cell.architecture.hidden for cell in trials} == {(8,)}
        assert len({cell.options for cell in trials}) > 5
        return [abs(math.log(cell.schedule.learning_rate / 0.02)) for cell in trials]

    whole = search(tmp_path / "whole", work := Work())
    assert np.mean(whole[-10:]) < np.mean(whole[1:11]) / 2
    assert len([cell for cell in work.cells if cell.schedule.rounds == ROUNDS / 3]) == 30

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "cut", first := Work(most=12))
    assert search(tmp_path / "cut", second := Work()) == whole
    assert not {cell.key for cell in first.cells} & {cell.key for cell in second.cells}
    with pytest.raises(UserError, match="sampler must be Optuna's"):
        tune(_request(tmp_path), None, "tpe", work=work, warn=pytest.fail, inform=print, quiet=True)


def test_all_methods_have_the_same_cap(tmp_path: Path) -> None:
    class Dear(Work):
        def __call__(self, cell: Cell, **beside: Any) -> Record:
            self.seconds = 4.0 if cell.method == "ditto" else 1.0
            return super().__call__(cell, **beside)

    found = _tuned(replace(_request(tmp_path, "fedavg", "ditto"), cap=11.9), Dear())
    fedavg, ditto = (Standing(each, found.records) for each in found.searches)
    assert {*found.caps.values()} == {11.9}
    assert (len(fedavg.short), len(ditto.short)) == (18, 5)
    assert fedavg.seconds <= 12 + 1
    assert ditto.seconds <= 12 + 4


def test_a_failed_trial_is_not_chosen(tmp_path: Path) -> None:
    best = _tune(_request(tmp_path / "a"), Work(), trials=6).chosen
    work = Work(broken=lambda cell: cell.schedule.learning_rate == rate)
    request = _request(tmp_path / "b")
    rate = Search.of(make_cell(method="fedprox"), 6).trials[best].schedule.learning_rate
    standing = _tune(request, work, trials=6)
    assert standing.short[best].status == "failed"
    assert best not in standing.promoted
    assert standing.chosen != best


def test_what_is_given_is_not_tuned(tmp_path: Path) -> None:
    request = _request(tmp_path, "fedprox[mu=0.5]", settings=("learning_rate=0.05", "hidden=32"))
    trials = _tune(request, Work(), trials=6).search.trials
    assert {(cell.schedule.learning_rate, cell.architecture.hidden) for cell in trials} == {(0.05, (32,))}
    assert {cell.options for cell in trials} == {(("mu", 0.5),)}
    assert len({cell.architecture.dropout for cell in trials}) == 6


def test_no_final_run_sees_a_draw_of_the_search() -> None:
    assert not {*SEARCH_SEEDS} & {*FINAL_SEEDS}
    # A table that draws its clients once sets data_seed, which a search does not use.
    for data_seed in (-1, 0):
        base = make_cell(dataset="community", clients=3, data_seed=data_seed)
        search = Search.of(base, 2)
        searched = [search.short(1), *search.full(1)]
        for seen, final in product(searched, search.final(1)):
            assert seen.drawn_with != final.drawn_with
            ours, theirs = make_clients(seen), make_clients(final)
            assert not np.array_equal(_roles(ours), _roles(theirs))


def _roles(clients: Any) -> np.ndarray:
    """Return (nodes of the graph,), 1 for test nodes."""
    dataset, _, federation = clients
    found = np.zeros(dataset.nodes, dtype=int)
    found[federation.origin[federation.test]] = 1
    return found


def test_of_a_trial_scores_seconds_and_memory_are_kept_and_its_failure(tmp_path: Path) -> None:
    base = make_cell(method="fedprox")
    trial = Search.of(base, 2).short(1)
    whole = replace(tuned_run(trial), outcome=replace(tuned_run(trial).result, extras={"learnt": 1}))
    few = kept(whole).reread()
    assert (few.score, few.validation) == (round(whole.score or 0, 4), round(whole.validation or 0, 4))
    assert few.core_seconds == pytest.approx(whole.core_seconds, rel=1e-3)
    assert (few.curve, few.extras, kept(few)) == ({}, {}, few)
    assert kept(failed(trial, "it broke")).error == "it broke"
    # Final runs keep their bytes and curves.
    for cell in (base, *Search.of(base, 2).final(1)):
        assert kept(tuned_run(cell)) == tuned_run(cell)


def test_the_defaults_are_tried_whatever_they_cost(tmp_path: Path) -> None:
    standing = _tune(_request(tmp_path), Work(), trials=20, cap=1e-6)
    assert [*standing.short] == [0]
    assert standing.chosen == 0


def test_a_setting_that_only_the_asked_network_reads_hinders_no_cap(tmp_path: Path) -> None:
    request = replace(_request(tmp_path, settings=("hops=3",)), backbone=("gcn", "sgc"), trials=2)
    found = _tuned(request, Work())
    assert [each.base.architecture.backbone for each in found.searches] == ["gcn", "sgc"]
    assert [*found.caps.values()] == [request.cap]


def test_every_shard_has_the_cap(tmp_path: Path) -> None:
    methods = ("fedprox", "ditto", "local", "fedper", "fedadam", "fedpub", "scaffold", "fedgta")
    shards = [
        _tuned(replace(_request(tmp_path, *methods), trials=2, shard=(part, 2)), Work()) for part in (1, 2)
    ]
    assert sorted(each.base.method for found in shards for each in found.searches) == sorted(methods)
    assert [[*found.caps.values()] for found in shards] == [[pytest.approx(30.0)]] * 2


def test_a_search_without_its_graph_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise UserError(f"{name} is not here")

    monkeypatch.setattr(graphs, "is_available", lambda name: name != "cora")
    monkeypatch.setattr(graphs, "load", load)
    said: list[str] = []
    request = replace(_request(tmp_path), dataset=("community", "cora"), trials=2)
    found = tune(request, work=Work(), warn=said.append, inform=lambda text: None, quiet=True)
    assert [each.base.dataset.name for each in found.searches] == ["community"]
    assert {*said} == {"skipped cora: cora is not here"}


def test_a_sampler_tunes_a_method_that_a_program_passes(tmp_path: Path) -> None:
    @register("passed", title="Passed", paper="none")
    class Passed(FedAvg):
        """FedAvg."""

    given = Given()
    request = replace(_request(tmp_path, given.method(Passed)), trials=4, cap=0)
    how: dict[str, Any] = {"objects": given.objects, "warn": pytest.fail, "inform": print, "quiet": True}
    work = Work(broken=lambda cell: cell.schedule.learning_rate != 0.01)
    found = tune(request, given.digests, TPESampler(seed=0), work=work, **how)
    assert len({cell.schedule for cell in found.searches[0].trials}) == 4
    # A failed trial is tried again at the end alone.
    assert [*Counter(cell.key for cell in work.cells).values()].count(2) == 3


def test_a_cap_that_nothing_sets_leaves_the_defaults(tmp_path: Path) -> None:
    said: list[str] = []
    work = Work(broken=lambda cell: cell.method == "fedavg")
    found = tune(_request(tmp_path), work=work, warn=said.append, inform=lambda text: None, quiet=True)
    assert len(Standing(found.searches[0], found.records).short) == 1
    assert "the run that sets the cap failed: it broke" in said[0]
