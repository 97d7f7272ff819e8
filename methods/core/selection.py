"""Selection of the round that a protocol reports, and its scores."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedsub.methods.tasks.metrics import Score

AVERAGED = {
    "mean-validation": "client-mean",
    "pooled-validation": "pooled",
    "node-weighted-validation": "node-weighted",
}
"""Selection rule → the average that it maximises."""


@dataclass(frozen=True)
class Curve:
    """One metric over a run; R evaluations, K clients."""

    value: np.ndarray
    """(R, K), NaN for a client with nothing to score."""
    weight: np.ndarray
    """(K,) number of items of each client."""
    nodes: np.ndarray
    """(K,) number of all nodes of each client."""

    @classmethod
    def of(cls, scores: Iterable[Score], nodes: np.ndarray) -> "Curve":
        """Stack the scores of the evaluations, at least one."""
        scores = list(scores)
        # The last: a client run apart that did not answer at first has no weight before.
        return cls(np.stack([each.value.numpy() for each in scores]), scores[-1].weight.numpy(), nodes)

    def at(self, chosen: np.ndarray) -> "Curve":
        """Curve of one evaluation that holds each client's score at its evaluation `chosen`, (K,)."""
        return Curve(self.value[chosen, np.arange(len(chosen))][np.newaxis], self.weight, self.nodes)

    def averaged(self, kind: str) -> np.ndarray:
        """One figure per evaluation, (R,): the unweighted mean over the clients that have a score
        (`client-mean`), or weighted by their nodes (`node-weighted`) or their items (`pooled`); 0 where
        none has."""
        present = ~np.isnan(self.value)
        weights = {
            "client-mean": np.ones(len(self.nodes)),
            "node-weighted": self.nodes,
            "pooled": self.weight,
        }
        share = np.where(present, weights[kind], 0)
        return np.where(present, self.value * share, 0).sum(axis=-1) / np.maximum(share.sum(axis=-1), 1)

    def score(self, chosen: np.ndarray, kind: str) -> float:
        """Scores of the clients at their evaluations `chosen`, (K,), averaged by `kind`; NaN if nothing is
        scored."""
        return float(self.at(chosen).averaged(kind)[0]) if self.weight.any() else float("nan")


def select(validation: Curve, losses: np.ndarray, rule: str) -> np.ndarray:
    """Index of the reported evaluation for each client, (K,). `losses`, (R,), are means over all validation
    items; `rule` is one of `methods.core.schedule.RULES`. `per-client` gives a client without validation
    items its first evaluation."""
    value = validation.value
    if rule == "per-client":
        return np.where(np.isnan(value), -np.inf, value).argmax(axis=0)
    if rule in AVERAGED:
        index = validation.averaged(AVERAGED[rule]).argmax()
    elif rule == "pooled-validation-loss":
        index = np.where(np.isnan(losses), np.inf, losses).argmin()
    else:
        index = np.int64(len(value) - 1)
    return np.full(value.shape[1], index)


def median(validation: Curve, chosen: np.ndarray) -> int:
    """Median of the evaluation indices `chosen`, (K,), over the clients with a validation score, or over all
    if none has one."""
    able = ~np.isnan(validation.value).all(axis=0)
    ordered = np.sort(chosen[able] if able.any() else chosen)
    return int(ordered[len(ordered) // 2])
