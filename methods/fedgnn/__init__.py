"""FedGNN, as FED-PUB adapts it: clients exchange nodes, then FedAvg.

Wu et al., FedGNN: Federated Graph Neural Network for Privacy-Preserving Recommendation, 2021; Baek et
al., Personalized Subgraph Federated Learning, ICML 2023, appendix B.2. Before training, every client's
graph grows by nodes of other clients:

- clients that share nodes: those with the same neighbours as a local node, joined to these neighbours;
- disjoint clients: those whose features have a cosine above 0.5 with a local node's, joined to it.

The appendix does not say what nodes with the same neighbours are joined to: here to those, as the original
joins users through their common items. A node arrives once, however many local nodes it matches and
however many clients hold it. Arrivals pass messages; they are neither trained on nor scored. The papers'
server matches under encryption; here raw features cross, and are counted, once, by all clients, whoever
is absent later.

Departure: a node takes at most `neighbours` similar ones, the closest, since on graphs with dense
features (Photo, Computers) half of all pairs may exceed the threshold; 0 lifts the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from fedsub.datasets.graph import select_features
from fedsub.datasets.limits import Cosine, Size
from fedsub.datasets.ranges import tunable
from fedsub.methods.core.base import PAPER_COMMUNICATION, Options, prepare, register, rows_read
from fedsub.methods.core.channel import FLOAT, size_of, unformed
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.fedgnn.augmentation import Augmentation, by_neighbourhood, by_similarity
from fedsub.methods.stacked.growth import grow
from fedsub.methods.stacked.inputs import Inputs


@dataclass(frozen=True)
class FedGNNOptions(Options):
    rule: Literal["auto", "neighbourhood", "similarity"] = "auto"
    """Which nodes match; `auto` takes neighbourhoods where clients share nodes, else similarity."""
    threshold: Cosine = tunable(0.5, linear=(0, 0.9))
    """Cosine similarity above which a node is taken."""
    neighbours: Size = tunable(10, choices=(5, 10, 20))
    """Most similar nodes taken for each local node; 0 takes all above the threshold."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.rule == "neighbourhood":
            return dict.fromkeys(("threshold", "neighbours"), "rule=similarity")
        return {}


@register(
    "fedgnn",
    title="FedGNN",
    paper="Wu et al. 2021",
    options=FedGNNOptions,
    exchanges="model parameters; features and neighbour lists of nodes, once",
    breaks_privacy="clients receive raw features of other clients' nodes",
    simulation_only="clients receive each other's nodes",
)
class FedGNN(FedAvg):
    """FedAvg on grown graphs."""

    options: FedGNNOptions

    def make_inputs(self) -> Inputs:
        federation, augmentation = self.federation, self.augment()
        node = torch.from_numpy(augmentation.node)
        ends = torch.from_numpy(augmentation.arrival), torch.from_numpy(augmentation.local)
        grown = grow(federation.graph, federation.sizes, len(node), ends)
        self.extras["added_nodes"] = float(len(augmentation.node))
        self.extras["added_edges"] = float(len(augmentation.local))
        self._send(augmentation)
        features = select_features(federation.features, grown.rows(node).numpy())
        return prepare(
            self, grown.graph, features, grown.sizes, position=grown.position, read=rows_read(self)
        )

    def finish(self) -> None:
        """`paper_communication_pct`: the model both ways and the features of every added node in every round.
        (FED-PUB's Table 3 prints 214.94: by this counting 3,224 rows a round over its ten clients.) Here
        features cross once, and the channel counts them."""
        model = 2 * size_of(*self.parameters.values())
        rows = self.extras["added_nodes"] * self.federation.width * FLOAT
        self.extras[PAPER_COMMUNICATION] = 100 * (1 + rows / model)

    def augment(self) -> Augmentation:
        options, federation = self.options, self.federation
        if self.by_neighbourhood:
            return by_neighbourhood(federation)
        return by_similarity(federation, options.threshold, options.neighbours)

    @property
    def by_neighbourhood(self) -> bool:
        """Whether nodes are matched by their neighbours, not by their features."""
        shared = len(self.federation.origin.unique()) < self.federation.nodes
        return self.options.rule == "neighbourhood" or (self.options.rule == "auto" and shared)

    def _send(self, augmentation: Augmentation) -> None:
        """What nodes are matched by goes to the server, the arrivals' features to their new clients; an edge
        is two ids of 8 bytes, global ones, where an index into what a client holds takes 4 in other methods.

        Similarity needs every node's features, neighbourhoods every edge, after which the server asks for
        the features of those nodes alone that arrive somewhere.
        """
        federation, features = self.federation, self.federation.features
        if self.by_neighbourhood:
            self.channel.once(unformed(2, federation.graph.num_edges() // 2, dtype=torch.int64))
            self.channel.once(select_features(features, np.unique(augmentation.node)))
        else:
            self.channel.once(features)
        self.channel.once(select_features(features, augmentation.node))
        self.channel.once(unformed(2, len(augmentation.local), dtype=torch.int64))
