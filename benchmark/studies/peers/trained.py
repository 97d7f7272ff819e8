"""Both suites trained on the same clients, one after the other: whether they come to the same accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsub.benchmark.studies.peers.both import both_suites, cell_values
from fedsub.benchmark.studies.peers.grid import SCHEDULE, PeerCell
from fedsub.benchmark.studies.peers.worker import WorkerError

DATASETS, CLIENTS = ("cora",), (5,)
"""Where both are trained, unless others are asked for."""
SEEDS = 5
"""Of first weights and dropout; the clients are the same for all."""
LOCAL_EPOCHS = 3
"""Of every round: with the one that is timed, FedAvg is still at two thirds of its accuracy after 100 rounds;
with three it has reached it after 30 (Cora, 5 clients)."""
Phases = tuple[tuple[str, int], ...]
"""Each with its rounds, in their order."""
PHASES: dict[str, Phases] = {
    # As its options here: so many epochs of generators.
    "fedsage+": (("generator", 7), ("round", 50)),
    "adafgl": (("round", 25), ("personal", 50)),
    "feddc": (("round", 100),),
    # The peers take seconds for a round.
    "fedtad": (("round", 30),),
}
"""What the peer is told, by method."""
USUAL: Phases = (("round", 50),)
ANSWER = 3600.0
"""Seconds after which a worker is given up."""


@dataclass(frozen=True)
class Training:
    """One comparison with one seed."""

    cell: PeerCell
    seed: int

    @property
    def key(self) -> str:
        """What its record is found by."""
        return f"{self.cell.key} seed {self.seed}"

    @property
    def phases(self) -> Phases:
        """What the peer is told."""
        return PHASES.get(self.cell.pairing.method, USUAL)


def train(training: Training, python: Path, checkout: Path | None = None) -> dict[str, Any]:
    """The record: `accuracy`, the clients' shares of right test nodes after the last round, weighted by their
    nodes, of `ours` and of the `peer`; `status` and `error` as those of `interleaved.compare`.
    """
    cell, phases = training.cell, training.phases
    # Our generators are trained in the set-up, and AdaFGL counts its rounds itself.
    trained = {phase: rounds for phase, rounds in phases if phase != "generator"}
    rounds = sum(trained.values())
    values = {
        **cell_values(cell),
        "pairing": cell.pairing.key,
        "seed": training.seed,
        "rounds": rounds,
    }
    options = dict(cell.pairing.options)
    if "personal" in trained:
        options["federated"] = trained["round"] / rounds
    schedule = {**SCHEDULE, "local_epochs": LOCAL_EPOCHS, "rounds": rounds}
    task = {"seed": training.seed, "options": options, "schedule": schedule}
    try:
        with both_suites(cell, python, ANSWER, checkout, **task) as (ours, peer, told):
            values |= told
            own = ours.ask({"phase": "round", "rounds": rounds})
            *_, theirs = [peer.ask({"phase": phase, "rounds": count}) for phase, count in phases]
    except WorkerError as error:
        return {**values, "status": f"{error.worker} failed", "error": error.reason}
    accuracy = {"ours": own["accuracy"], "peer": theirs["accuracy"]}
    return {**values, "accuracy": accuracy, "status": "ok"}
