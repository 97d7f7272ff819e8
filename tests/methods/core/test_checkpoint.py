"""A run that is stopped and goes on gives what an uninterrupted one gives, to the last bit."""

from __future__ import annotations

import io
import math
from collections import deque
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

from methods.core import registry
from methods.core.base import Architecture, FederatedMethod, Schedule, make_setting
from methods.core.checkpoint import CheckpointError, State, UnsavableError
from methods.core.rounds import Round
from methods.core.training import Outcome, train
from tests.methods.federations import community_federation

ROUNDS, STOPPED = 5, 3
STRUCT = {"structure_width": 8, "structure_hidden": "16", "feature_hidden": "8"}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adafgl": [{}, {"extractor": "best"}, {"federated": 0.4}],
    "fedaux": [{}, {"masks": False}],
    "fedcog": [{}, {"convolution": "gcn", "server": "feddyn"}, {"convolution": "gprgnn", "server": "fedadam"}],
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
HALF = {"local_epochs": 2, "participation": 0.5, "stragglers": 0.5}


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


def make(name: str, options: dict[str, Any], task: str = "node-classification", **schedule: Any) -> FederatedMethod:
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
    found = {**asdict(outcome), "seconds": None, "spent": outcome.spent["bytes"]}
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
