"""Checks of whole runs: options, networks, repetition, checkpoints."""

import json
import math
import typing
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, fields
from typing import Any

from fedsub.datasets.hints import hints_of
from fedsub.datasets.limits import limits_in, ranges_of
from fedsub.methods.checks.subject import Subject, reread
from fedsub.methods.core.base import Options
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.state import Checkpoint, restored
from fedsub.methods.core.training import Outcome, train

ROUNDS = 4
TUNED = 3
"""Maximum number of options with a tuning range."""


def options(subject: Subject) -> None:
    """Check that every number states its limits in its type, and at most three options state a range."""
    kind: Callable[..., Options] = subject.info.options
    names = tuple(item.name for item in fields(subject.info.options))
    for name, hint in hints_of(kind, names).items():
        plain = hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint
        if plain in (int, float) and not limits_in(hint):
            raise subject.fail(
                f"option {name} states no limits: give it a type of "
                "fedsub.datasets.limits, such as NonNegative"
            )
    tuned = [name for name, _ in ranges_of(kind)]
    if len(tuned) > TUNED:
        raise subject.fail(f"{len(tuned)} options state a range ({', '.join(tuned)}): keep at most {TUNED}")


def trains(subject: Subject) -> None:
    """Check for finite losses and outputs of the task's width, with every network and task listed."""
    for task in subject.info.tasks:
        for network in subject.networks:
            setting = subject.setting(Schedule(rounds=2), network=network, task=task, dropout=0.5)
            method = subject.make(setting)
            outcome, output = train(method), method.predict()
            wanted = setting.scoring.federation.nodes, setting.task.width
            if tuple(output.shape) != wanted:
                raise subject.fail(
                    f"predict() returns {tuple(output.shape)} with {network} for {task}, not {wanted}: "
                    "return one row a node"
                )
            if not all(map(math.isfinite, outcome.curve["loss"])) or not bool(output.isfinite().all()):
                raise subject.fail(f"its loss or its outputs are not finite with {network} for {task}")


def repeats(subject: Subject) -> None:
    """Check that one seed gives equal runs, to the last bit, and another seed another run."""
    first, same, other = (
        train(subject.make(subject.setting(Schedule(rounds=2), seed=seed, dropout=0.5))) for seed in (1, 1, 2)
    )
    if comparable(first) != comparable(same):
        raise subject.fail(
            "two runs with one seed differ: draw from self.generator, or from the global generators of "
            "torch, numpy and random"
        )
    if first.curve["loss"] == other.curve["loss"]:
        raise subject.fail("runs with two seeds are equal: draw initial parameters from self.generator")


class Kept(Checkpoint):
    """Checkpoints in memory, one after each round of the first run; the others resume from one of them."""

    def __init__(self) -> None:
        self.contents: list[Any] = []
        self.place: int | None = None
        """Which one a run resumes from; None: it is the first run."""

    def restore(self, run: Any) -> str:
        if self.place is not None:
            restored(run, deepcopy(self.contents[self.place]))
        return ""

    def after_round(self, run: Any) -> None:
        if self.place is None:
            self.contents.append(reread(run))


def survives(subject: Subject) -> None:
    """Check that a run resumed from its checkpoint equals an unbroken one, with or without absent clients."""
    schedules = [Schedule(rounds=ROUNDS, local_epochs=2)]
    if not (subject.info.needs_everyone or subject.info.merged):
        schedules.append(Schedule(rounds=ROUNDS, local_epochs=2, participation=0.5, stragglers=0.5))
    for schedule in schedules:
        setting, kept = subject.setting(schedule, clients=4, dropout=0.5), Kept()
        whole = comparable(train(subject.make(setting), None, kept))
        for kept.place in (0, -1):
            if comparable(train(subject.make(setting), None, kept)) != whole:
                raise subject.fail(
                    "a run resumed from a checkpoint gives other figures: name its attributes in "
                    "client_state or server_state"
                )


def comparable(outcome: Outcome) -> str:
    """The outcome without times as text, in which NaN equals NaN."""
    found = {**asdict(outcome), "seconds": None, "processor_seconds": None, "spent": outcome.spent["bytes"]}
    found["extras"] = {name: value for name, value in outcome.extras.items() if "seconds" not in name}
    # A method's figures may be tensors or arrays; a run refuses what JSON cannot hold.
    return json.dumps(
        found, default=lambda value: value.tolist() if hasattr(value, "tolist") else repr(value)
    )
