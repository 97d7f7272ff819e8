"""A run that is stopped and goes on gives what an uninterrupted one gives, to the last bit."""

from __future__ import annotations

import io
import itertools
import math
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.checkpoint import CheckpointError, State, UnsavableError
from fedsub.methods.core.rounds import Round
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import Outcome, train
from tests.methods.federations import community_federation

ROUNDS, STOPPED = 5, 3
STRUCT = {"structure_width": 8, "structure_hidden": "16", "feature_hidden": "8"}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adafgl": [{}, {"extractor": "best"}, {"federated": 0.4}],
    "fedaux": [{}, {"masks": False}],
    "fedcog": [
        {},
        {"convolution": "gcn", "server": "feddyn"},
        {"convolution": "gprgnn", "server": "fedadam"},
    ],
    "feddc": [{}, {"variant": "authors"}],
    "fediih": [{"variational": 1.0}],
    "fedproto": [{"distance": "nodes"}],
    "fedpub": [{"lambda1": 0.97}, {"similarity": "gradient", "keep_similarity": "2+4"}],
    "fedsage+": [{"wide": 16, "narrow": 8, "latent": 8, "generator_epochs": 2}],
    "fedsage-true": [{}, {"average": "gradients"}],
    "fedspray": [{}, {"targets": "aligned", "projector": "classifier"}],
    "fedstruct": [STRUCT, STRUCT | {"version": "b", "transform": "none"}],
    "gcfl": [{"first_round": 1, "epsilon1": 1e6, "epsilon2": 0.0}],
    "gcfl+": [{"first_round": 0, "epsilon1": 1e6, "epsilon2": 0.0, "sequence": 2}],
    "moon": [{}, {"projection": True}],
    "scaffold": [{}, {"control": "gradient"}],
}
CASES = [(name, options) for name in registry.names() for options in VARIANTS.get(name, [{}])]
HALF: dict[str, Any] = {"local_epochs": 2, "participation": 0.5, "stragglers": 0.5}


class Stopped(Exception):
    """What ends a run between two rounds."""


class Kept:
    """Keeps the state after the rounds in `at` as a file would."""

    def __init__(self, *at: int) -> None:
        self.at, self.content, self.told = at, b"", 0

    def restore(self, state: State) -> None:
        if self.content:
            state.load(torch.load(io.BytesIO(self.content), weights_only=True))

    def after_round(self, state: State) -> None:
        self.told += 1
        if self.told in self.at:
            stream = io.BytesIO()
            torch.save(state.save(), stream)
            self.content = stream.getvalue()


def make(
    name: str, options: dict[str, Any], task: str = "node-classification", **schedule: Any
) -> FederatedMethod:
    info = registry.describe(name)
    network = Architecture(info.backbones[0], (8, 8))
    setting = make_setting(
        community_federation(clients=5, nodes=150),
        network,
        Schedule(rounds=ROUNDS, **schedule),
        1,
        task=task,
        merged=info.merged,
    )
    return registry.create(name, options, setting)


def stopped(method: FederatedMethod, after: int = STOPPED) -> Kept:
    """What is kept of a run after the round `after`; it is stopped one round later."""
    kept = Kept(after)

    def stop(done: Round) -> None:
        if done.round == after + 1:
            raise Stopped

    with pytest.raises(Stopped):
        train(method, stop, kept)
    return kept


def comparable(outcome: Outcome) -> Any:
    found = {**asdict(outcome), "seconds": None, "processor_seconds": None, "spent": outcome.spent["bytes"]}
    found["extras"] = {name: value for name, value in outcome.extras.items() if "seconds" not in name}
    return _plain(found)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def goes_on(name: str, options: dict[str, Any], after: int = STOPPED, **settings: Any) -> None:
    whole = train(make(name, options, **settings))
    kept = stopped(make(name, options, **settings), after)
    seen: list[int] = []
    again = train(make(name, options, **settings), lambda done: seen.append(done.round), kept)
    assert seen == list(range(after + 1, ROUNDS + 1))
    assert comparable(again) == comparable(whole)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_method_goes_on_to_the_same_outcome(name: str, options: dict[str, Any]) -> None:
    goes_on(name, options)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_so_does_every_method_where_clients_are_absent(name: str, options: dict[str, Any]) -> None:
    info = registry.describe(name)
    if not info.needs_everyone:
        goes_on(name, options, **HALF)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg", {"task": "link-prediction[negatives=fresh]"}),
        ("central", {"task": "link-prediction[negatives=fresh]"}),
        ("fedavg", {"privacy_clip": 0.1, "quantise": 4, "top_k": 0.5, "error_feedback": True}),
        ("fedavg", {"evaluate": "received", "evaluate_every": 2}),
        ("fedavg", {"evaluate": "neighbour", "selection": "per-client", "optimiser": "sgd"}),
        ("gcfl+", {"participation": 0.5, "leavers": "0@3"}),
    ],
)
def test_so_do_other_tasks_messages_and_evaluations(name: str, settings: dict[str, Any]) -> None:
    goes_on(name, {}, **settings)


@pytest.mark.parametrize("after", range(1, ROUNDS - 1))
def test_a_run_goes_on_from_any_round(after: int) -> None:
    goes_on("adafgl", {}, after)


def test_a_run_may_be_stopped_more_than_once() -> None:
    whole = train(make("fedpub", {}))
    kept = stopped(make("fedpub", {}), after=1)
    kept.at, kept.told = (2,), 0

    def stop(done: Round) -> None:
        if done.round == 4:
            raise Stopped

    with pytest.raises(Stopped):
        train(make("fedpub", {}), stop, kept)
    seen: list[int] = []
    assert comparable(train(make("fedpub", {}), lambda done: seen.append(done.round), kept)) == comparable(
        whole
    )
    assert seen == [4, 5]


def test_seconds_are_those_of_all_rounds() -> None:
    kept = stopped(make("fedavg", {}))
    again = train(make("fedavg", {}), None, kept)
    spent = again.spent["seconds"]
    assert spent == sorted(spent)
    assert sum(again.seconds.values()) >= spent[-1]


class Part:
    """State of its own, as a plug-in may have it."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


def part(seed: int = 0) -> Part:
    """What a set-up makes of everything that a method may hold."""
    weight = torch.arange(6.0).requires_grad_()
    generator = torch.Generator().manual_seed(seed)
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for value in layer.parameters():
            value.fill_(0.5)
    return Part(
        weight=weight,
        half=weight.detach()[:3],
        constant=torch.ones(4),
        optimiser=torch.optim.Adam([weight], lr=0.1),
        layer=layer,
        momentum=torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9),
        generator=generator,
        draws=[
            np.random.default_rng(seed),
            np.random.SFC64(seed),
            np.random.Generator(np.random.MT19937(seed)),
        ],
        draw=lambda: torch.rand(2, generator=generator),
        held={"a": 1, 2: (3.5, None, "x")},
        array=np.arange(3),
        matrix=torch.eye(3).to_sparse_csr(),
    )


def train_part(found: Part) -> None:
    """One round on everything."""
    for optimiser in (found.optimiser, found.momentum):
        optimiser.zero_grad()
    (
        found.weight.square().sum() + found.layer(torch.rand(3, 2, generator=found.generator)).square().sum()
    ).backward()
    found.optimiser.step()
    found.momentum.step()
    found.view = found.weight.detach()[2:4]
    found.new = found.constant + found.draw()[0]
    found.same = found.held
    found.held["deque"] = deque([np.float32(0.1), found.draws[0].random()], maxlen=3)
    found.held["set"], found.later = {1, 2}, found.draws[2].integers(0, 9, (2, 2))
    found.held["self"] = found.held
    found.raw = int(found.draws[1].random_raw())
    found.by_class = getattr(found, "by_class", {}) | {len(vars(found)): found.new.sum()}


def through_a_file(state: State, onto: State) -> None:
    """Bring `onto` to what `state` holds."""
    stream = io.BytesIO()
    torch.save(state.save(), stream)
    stream.seek(0)
    onto.load(torch.load(stream, weights_only=True))


def shown(found: Part) -> dict[str, Any]:
    """What can be seen of it, drawing from everything that draws."""
    return {
        "weights": [each.tolist() for each in (found.weight, found.half, found.view, found.new)],
        "layer": [value.tolist() for value in found.layer.state_dict().values()],
        "held": [found.held[name] for name in ("a", 2, "deque", "set")],
        "arrays": [found.later.tolist(), found.later.dtype, found.array.tolist(), found.raw],
        "draws": [found.draw().tolist(), found.draws[0].random(), int(found.draws[1].random_raw())],
        "by class": [(key, value.tolist()) for key, value in found.by_class.items()],
        "types": [type(each) for each in (*found.held["deque"], found.raw, found.layer.weight)],
    }


@pytest.mark.parametrize("rounds", [1, 2])
def test_everything_that_a_method_may_hold_comes_back(rounds: int) -> None:
    whole, cut, new = part(), part(), part(seed=0)
    states = State(found=cut), State(found=new)
    for _ in range(rounds):
        train_part(whole)
        train_part(cut)
    through_a_file(*states)
    assert new.same is new.held is new.held["self"]
    assert new.held["deque"].maxlen == 3
    train_part(whole)
    train_part(new)
    assert shown(new) == shown(whole)
    with torch.no_grad():
        new.weight.fill_(7.0)
    assert new.half.tolist() == [7.0, 7.0, 7.0]
    assert new.view.tolist() == [7.0, 7.0]


def test_what_no_one_writes_to_is_not_kept_twice() -> None:
    found = part()
    state = State(found=found)
    assert not [node for node in state.save()["nodes"] if node[0] == "tensor"]
    train_part(found)
    kept = [node[2].data_ptr() for node in state.save()["nodes"] if node[0] == "tensor"]
    assert found.weight.data_ptr() in kept
    assert found.constant.data_ptr() not in kept


class Cached(Part):
    """Its `table` follows from its `base`."""

    LEFT_OUT_OF_CHECKPOINTS = ("table",)

    @cached_property
    def double(self) -> int:
        """Follows too."""
        return 2 * int(self.base)


def test_what_a_class_leaves_out_is_as_the_set_up_leaves_it() -> None:
    cut, new = (Part(cached=Cached(base=1, table=object())) for _ in range(2))
    states = State(found=cut), State(found=new)
    table = new.cached.table
    cut.cached.base = 3
    assert cut.cached.double == 6
    through_a_file(*states)
    assert new.cached.table is table
    assert "double" not in vars(new.cached)
    assert new.cached.double == 6


UNSAVABLE: dict[str, Callable[[], Any]] = {
    "a stream": io.StringIO,
    "an iterator": lambda: iter([1]),
    "a function of later": lambda: lambda: 1,
    "an object of a class of elsewhere": lambda: Part(x=1),
    "an array of objects": lambda: np.array([object()]),
    "a set of objects": lambda: {(1, 2)},
    "a subclass of list": lambda: type("Own", (list,), {})(),
    "an object with slots": lambda: type("Own", (), {"__slots__": ("x",)})(),
    "an object that refuses in its own words": lambda: Refusing(),
}


class Refusing:
    """As a scripted function of torch."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise pickle.PicklingError("it cannot be pickled")


@pytest.mark.parametrize("name", UNSAVABLE)
def test_a_kind_of_state_that_is_not_known_raises_with_its_place(name: str) -> None:
    found = Part(held={})
    state = State(found=found)
    found.held["here"] = [UNSAVABLE[name]()]
    with pytest.raises(UnsavableError, match=r"can hold found\.held\[here\]\[0\]"):
        state.save()


def test_what_a_function_closes_over_is_not_lost_in_silence() -> None:
    count = itertools.count()
    state = State(found=Part(draw=lambda: next(count)))
    with pytest.raises(UnsavableError, match=r"can hold found\.draw closure, a count"):
        state.save()


def test_another_set_up_is_refused() -> None:
    found = Part(constant=torch.zeros(3), array=np.zeros(3), held=[1])
    state = State(found=found)
    saved = state.save()
    for name, value in {"constant": torch.ones(3), "array": np.ones(3)}.items():
        with pytest.raises(CheckpointError, match="other values"):
            State(found=Part(**{**vars(found), name: value})).load(saved)
    with pytest.raises(CheckpointError, match="other objects"):
        State(found=Part(**vars(found), more=Part())).load(saved)


def test_what_is_written_to_unseen_is_refused_not_lost() -> None:
    found, other = (
        Part(array=np.zeros(3), values=torch.zeros(3)),
        Part(array=np.zeros(3), values=torch.zeros(3)),
    )
    state = State(found=found)
    found.array[0] = 1
    with pytest.raises(CheckpointError, match="other values"):
        State(found=other).load(state.save())
    found.array[0], found.values.numpy()[0] = 0, 1
    with pytest.raises(CheckpointError, match="other values"):
        State(found=other).load(state.save())


@pytest.mark.parametrize(
    "node",
    [
        ("object", None, "os:_Environ", []),
        ("object", None, "subprocess:Popen", []),
        ("object", None, "fedsub.methods.core.checkpoint:os", []),
        ("object", 0, "subprocess:Popen", []),
        ("fixed", 99),
        ("fixed", -1),
        ("exec", "1"),
        ("values", "1"),
        ("tensor", 1, torch.zeros(7), False, False, None),
        (),
        None,
    ],
)
def test_a_broken_state_is_refused(node: Any) -> None:
    found = Part(values=torch.zeros(3))
    state = State(found=found)
    saved = state.save()
    saved["nodes"][saved["parts"]["found"][0]] = node
    with pytest.raises(CheckpointError):
        state.load(saved)
