"""Shared code of the second derivations: a stacked method and its clients one by one, from the same start."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import Dataset
from fedsub.datasets.registry import load
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.steps import begin_round
from fedsub.methods.core.training import end_round, start_round
from fedsub.methods.stacked.parameters import Parameters
from tests.methods import federations
from tests.methods.loops import optimiser_of
from tests.methods.oracle import client_parts

TOLERANCE = 5e-5
"""1/200 of Adam's step: if a gradient is near Adam's ε, rounding moves a weight by some 1e-5."""
SPLIT = "ratio[train=0.3,validation=0.3,test=0.4]"
COMMUNITY = "community[nodes=300,features=60,communities=8]"
FLOAT = 4
"""Bytes of a number that is sent."""


@cache
def divided(dataset: Dataset | str, clients: int, scheme: str = "metis") -> Federation:
    graph = load(dataset) if isinstance(dataset, str) else dataset
    return federations.divided(graph, clients, scheme, split=SPLIT)


def created(
    federation: Federation,
    name: str,
    options: Mapping[str, Any],
    backbone: str = "gcn",
    hidden: tuple[int, ...] = (16, 12),
    outputs: str = "logits",
    head: str = "linear",
    **schedule: Any,
) -> Any:
    """Create the stacked method without dropout; it is not built yet."""
    architecture = Architecture(backbone=backbone, hidden=hidden, head=head, dropout=0.0, outputs=outputs)
    return federations.make_method(name, dict(options), federation, architecture, Schedule(**schedule))


class Pair:
    """A built stacked method, and its clients one by one, whose models start as slices of its parameters.

    `given` are the arguments of `created` after the federation.
    """

    def __init__(self, federation: Federation, *given: Any, **schedule: Any) -> None:
        self.federation = federation
        self.method = created(federation, *given, **schedule)
        self.method.build()
        self.start = copied(self.method.parameters)
        self.parts = client_parts(federation)
        self.models = [leaves(self.start, client) for client in range(federation.clients)]
        self.optimisers = [optimiser_of(model, self.method.schedule) for model in self.models]

    def compare(self, number: int) -> Parameters:
        """Run a round of the stacked method and check its parameters against the models; return a copy."""
        begin_round(self.method, number)
        start_round(self.method, number)
        end_round(self.method)
        assert gap(self.method.parameters, self.models) < TOLERANCE
        return copied(self.method.parameters)

    def compare_bytes(self, up: int, down: int | None = None, once: int = 0) -> None:
        """Check how many numbers the stacked method has sent; `down` equals `up` by default."""
        channel = self.method.channel
        sent = (channel.bytes_up, channel.bytes_down, channel.bytes_once)
        assert sent == (FLOAT * up, FLOAT * (up if down is None else down), FLOAT * once)

    def compare_predictions(self, says: Callable[[int, Parameters], Tensor]) -> None:
        """Check the stacked method's predictions against what each client says with its model."""
        said = torch.cat([says(k, model) for k, model in enumerate(self.models)]).detach()
        torch.testing.assert_close(self.method.predict(), said, atol=TOLERANCE, rtol=TOLERANCE)


def copied(parameters: Mapping[str, Tensor]) -> Parameters:
    return {name: value.detach().clone() for name, value in parameters.items()}


def leaves(stacked: Mapping[str, Tensor], client: int) -> Parameters:
    return {name: part(value, client).clone().requires_grad_() for name, value in stacked.items()}


def part(value: Tensor, client: int) -> Tensor:
    """Return one client's part of stacked values, (K, …), or the shared value, (1, …)."""
    return value[client if len(value) > 1 else 0]


def gap(stacked: Mapping[str, Tensor], models: Sequence[Mapping[str, Tensor]]) -> float:
    """Return the largest absolute difference between stacked parameters and the clients' models."""
    return max(
        float((part(value, client) - model[name]).detach().abs().max())
        for name, value in stacked.items()
        for client, model in enumerate(models)
    )


def adam(model: Mapping[str, Tensor], learning_rate: float, weight_decay: float) -> torch.optim.Adam:
    return torch.optim.Adam(list(model.values()), lr=learning_rate, weight_decay=weight_decay)


def symmetric(adjacency: Tensor) -> Tensor:
    """D̃^−½ (A + I) D̃^−½."""
    looped = adjacency + torch.eye(len(adjacency))
    scale = looped.sum(dim=1).rsqrt()
    return scale[:, None] * looped * scale
