"""The class `Split`: the role of each client's copy of a node, checked."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsub.datasets.errors import UserError

TRAIN, VALIDATION, TEST, UNUSED = range(4)
Rounding = Literal["nearest", "floor"]


@dataclass(frozen=True, eq=False)
class Split:
    """Roles of all copies of nodes, in the order of `Partition.origin`; every copy has at most one."""

    scheme: str
    """Name with all options, e.g. `ratio[test=0.4,train=0.2,validation=0.4]`."""
    train: np.ndarray
    """(Σ n_k,) bool."""
    validation: np.ndarray
    """(Σ n_k,) bool."""
    test: np.ndarray
    """(Σ n_k,) bool."""


@dataclass(frozen=True)
class Shares:
    """Shares of nodes for training, validation and test; nodes beyond their sum have no role."""

    train: float
    validation: float
    test: float

    def __post_init__(self) -> None:
        """Raises UserError for impossible shares, and if no node is left for training or test."""
        total = self.train + self.validation + self.test
        if min(self.train, self.validation, self.test) < 0 or total > 1 + 1e-9:
            raise UserError(f"the shares in {self} must not be negative nor exceed 1 in total")
        if self.train == 0:
            raise UserError(f"{self} leaves no node for training: raise train")
        if self.test == 0:
            raise UserError(f"{self} leaves no node for test: raise test")

    def __str__(self) -> str:
        return f"train={self.train:g},validation={self.validation:g},test={self.test:g}"

    def drawn(
        self,
        labels: np.ndarray,
        generator: np.random.Generator,
        stratified: bool = False,
        least: int = 0,
        rounding: Rounding = "nearest",
    ) -> np.ndarray:
        """Draw a role for each of n nodes, (n,), by shares of the labelled nodes or, `stratified`, of every
        class of `labels` (n,).

        `nearest`: in each of these parts shares are rounded, and training gets at least `least` nodes. If the
        shares cover all nodes, validation gets the rest, or test does if validation has no share. `floor`:
        shares are rounded down; if they cover all nodes, test gets the rest (FedTAD's code).
        """
        parts = [labels == label for label in np.unique(labels)] if stratified else [labels >= 0]
        roles = np.full(len(labels), UNUSED)
        for part in parts:
            nodes = np.flatnonzero(part)
            drawn = np.repeat([TRAIN, VALIDATION, TEST, UNUSED], self._counts(len(nodes), least, rounding))
            roles[nodes[generator.permutation(len(nodes))]] = drawn
        return roles

    def _counts(self, nodes: int, least: int, rounding: Rounding) -> list[int]:
        """Return how many of `nodes` nodes train, validate, test and have no role."""
        shares = (self.train, self.validation, self.test)
        whole = sum(shares) > 1 - 1e-9
        if rounding == "nearest":
            train = min(max(round(nodes * self.train), least), nodes)
            test = min(round(nodes * self.test), nodes - train)
            if whole and not self.validation:
                test = nodes - train
            rest = nodes - train - test
            validation = rest if whole else min(round(nodes * self.validation), rest)
        else:
            train, validation, test = (int(share * nodes) for share in shares)
            test = nodes - train - validation if whole else test
        return [train, validation, test, nodes - train - validation - test]


def check_shares(*, train: float, validation: float, test: float, **others: object) -> None:
    """Raises UserError for shares that exceed 1 in total, or leave no node for training or for test."""
    Shares(train, validation, test)


def checked_roles(name: str, roles: Any, copies: int) -> np.ndarray:
    """Return the checked roles of a split, (copies,) integers. Raises UserError if they are anything else."""
    try:
        array = np.asarray(roles)
    except ValueError:
        # Nested lists.
        array = np.empty((), dtype=object)
    if array.shape != (copies,) or array.dtype.kind not in "iu" or not np.isin(array, range(4)).all():
        raise UserError(
            f"split {name} gives {array.dtype} values of shape {array.shape}: give one role for each of the"
            f" {copies} copies of nodes, {TRAIN} to train, {VALIDATION} to validate, {TEST} to test, {UNUSED}"
            " for none"
        )
    return array
