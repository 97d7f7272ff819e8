"""Bytes that FedStruct sends beside gradients and parameters, by algorithms 1, 2, 4 and 5 and appendix L.1.

The simulation does not need these data; they are represented by their shapes. A node's row of a product is
empty, and not counted, if the node has no neighbour at the sender; the paper counts whole matrices. Zeros in
the Jacobians by S (appendix L.2) and rows for evaluation are not counted. With pruning, entries count with
their indices; with pruning_of=blocks a client's own products and the first power, which nobody sends, stay
whole. If Ā g(S) is propagated for lack of memory, bytes are counted as algorithm 3 would send them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedsub.methods.core.channel import FLOAT, size_of, unformed
from fedsub.methods.fedstruct.rows import reachable_pairs
from fedsub.methods.stacked.parameters import unprefixed

if TYPE_CHECKING:
    from fedsub.methods.fedstruct import FedStruct

MEGA = 10**6


@dataclass(frozen=True)
class Traffic:
    """Data of all clients together by name: sent and received per epoch, and sent once."""

    up: Mapping[str, Tensor]
    down: Mapping[str, Tensor]
    once: Mapping[str, Tensor | Sequence[Tensor]]

    @classmethod
    def of(cls, method: FedStruct, present: Tensor) -> Traffic:
        """Traffic of a built method: per epoch of the clients `present`, (K,) bool; once of all clients."""
        if method.options.version == "a":
            return cls({}, {"jacobians": _jacobians(method, present)}, {})
        acquired = unformed(method.acquired, dtype=torch.uint8)
        if method.options.private:
            return _private(method, acquired, present)
        structure = [method.features] * (method.federation.clients - 1)
        return cls({}, {}, {"powers": acquired, "structure": structure})


def _structure_size(method: FedStruct) -> int:
    """|θ_s|, number of g's parameters. GraphSAGE's classifier is left out: it is Θ_c (eq. 10), whose gradient
    a client computes by itself (theorem 1). In the decoupled network the classifier is g's last layer."""
    own = unprefixed("structure", method.parameters)
    if method.options.network == "graphsage":
        own = {name: value for name, value in own.items() if not name.startswith("head.")}
    return sum(value.numel() for value in own.values())


def _jacobians(method: FedStruct, present: Tensor) -> Tensor:
    """Version a: for every labelled node its embedding, and its derivatives by θ_s and, for Hop2Vec, by the
    features of every node within reach."""
    options = method.options
    width, hops = method.task.width, options.structure_hops
    if options.network == "graphsage":
        hidden = method.structure_backbone.architecture.hidden
        width, hops = hidden[-1], len(hidden)
    labelled = int(method.task.train_count[present].sum())
    values = labelled * width * (1 + _structure_size(method))
    if options.features == "h2v":
        federation = method.federation
        rows = method.position.cpu()[federation.train & present[federation.client]].numpy()
        pairs = reachable_pairs(method.adjacency, rows, hops)
        # Without g the derivative is ā_vq times the identity, which is one value.
        values += pairs * (1 if options.transform == "none" else width * options.structure_width)
    return unformed(values)


def _private(method: FedStruct, acquired: Tensor, present: Tensor) -> Traffic:
    """Appendix L.1: per epoch every client sends its sums for the others' labelled nodes (eq. 49, 51) and,
    with a fixed S, their derivatives (eq. 50). Once, each client asks the others for the sums that it needs.

    Eq. (50) has a derivative for every labelled node, class and entry of θ_s. A client cannot multiply it by
    the receiver's error, which it does not know. The paper only counts |θ_s| c for each client: see `extras`.
    """
    federation = method.federation
    labelled, clients = federation.count(federation.train), int(present.sum())
    # Absent clients send too: nobody else has their structure features.
    asked = (federation.clients - 1) * int(labelled[present].sum())
    width, learned = method.task.width, method.parameters.get("hop2vec")
    sums = unformed(asked, width)
    queries = unformed(int((labelled * (federation.nodes - federation.sizes)).sum()))
    once = {"powers": acquired, "queries": queries}
    if learned is not None:
        own = unformed(int(federation.sizes[present.cpu()].sum()), learned.shape[-1])
        return Traffic({"sums": sums}, {"structure": own}, once)
    derivatives = unformed(asked, _structure_size(method), width)
    up = clients * size_of(*method.parameters.values()) + size_of(sums)
    by_paper = up + clients * _structure_size(method) * width * FLOAT
    method.extras.setdefault("up_mb_per_epoch_by_paper", by_paper / MEGA)
    method.extras.setdefault("up_mb_per_epoch", (up + size_of(derivatives)) / MEGA)
    return Traffic({"sums": sums, "derivatives": derivatives}, {}, once)
