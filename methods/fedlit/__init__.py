"""FedLIT: one convolution channel for each latent type of link, aligned between clients.

Xie et al., Federated Node Classification over Graphs with Latent Link-type Heterogeneity, WWW 2023.

    x = X P + c                                                  projection of the features
    [x_u ‖ x_v]                                                  embedding of edge {u, v}
    types: k-means at the start, then one step a round: each edge to the centroid of highest cosine,
           each centroid to the mean of its edges
    h ← Σ_t relu(Â_t h W_t + b_t)                                Â_t over the edges of type t
    logits = h W + b

The server greedily matches every client's types to its own by the highest remaining cosine. It averages
matched centroids and channels; a channel's mean leaves out clients where no training node has an edge of the
type. P, c, W, b are averaged by training nodes.

Departures: channels are summed after every layer; the public code sums them after the last one. Its second
linear map is left out, since no non-linearity separates it from W_t. Â_t has self-loops, there it has none.
The EM step is taken once a round, there in every epoch. The code also assigns types anew when it evaluates,
and applies its match of centroids transposed; here evaluation uses the types of the last EM step, and each
centroid goes to its own match. The paper's experiments use Adam with a learning rate of 0.01 and weight decay
5e-4; here the protocol sets both. SGC and GraphSAGE (FedSpray's Table 2) replace relu(Â_t h W_t + b_t) by
their own convolution.

A client that is absent in a round keeps its types and centroids and is in no mean. It comes back to the
newest means, matched with its last centroids.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import dgl
import torch
from torch import Tensor

from fedsub.datasets.limits import Count, ShareBelowOne, tunable
from fedsub.methods.core.base import FederatedMethod, Message, Options, register, rows_read
from fedsub.methods.fedlit.clustering import EdgeClustering, align, average_channels, regroup
from fedsub.methods.fedlit.layers import Layer, channel_sum, layers_to_read, messages_between
from fedsub.methods.stacked.activation import Dropout, add_bias, trains
from fedsub.methods.stacked.mixing import for_clients
from fedsub.methods.stacked.parameters import Parameters, begins_with, glorot, linear_start, prefixed, stack
from fedsub.methods.stacked.propagation import propagate, use_kernel
from fedsub.methods.stacked.segments import segment_product


@dataclass(frozen=True)
class FedLITOptions(Options):
    """Hyper-parameters of FedLIT, which has its own network instead of the protocol's."""

    types: Count = tunable(4, linear=(2, 8))
    """T, number of latent link types."""
    layers: Count = tunable(2, linear=(1, 3))
    """Number of multi-channel layers; with SGC the protocol's hops are used instead."""
    width: Count = 64
    """Width of the projection and of every layer."""
    dropout: ShareBelowOne = tunable(0.3, linear=(0, 0.8))
    """Dropout after every channel; none with SGC."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        return dict.fromkeys(("layers", "dropout"), "a backbone other than sgc") if backbone == "sgc" else {}


@register(
    "fedlit",
    title="FedLIT",
    paper="Xie et al. 2023",
    options=FedLITOptions,
    backbones=("gcn", "sgc", "graphsage"),
    lacks=("norm", "residual", "input_norm", "head"),
    simulation_only="k-means draws its starts over the links of all clients",
    predicts_with="link types",
)
class FedLIT(FederatedMethod):
    """The channels of all clients are one graph of T·n nodes: row T·v + t is node v in channel t."""

    options: FedLITOptions
    unshared = ("channels",)
    labelled_outputs_only = True
    client_state = ("kind", "centroids")
    server_state = ("heard", "server_centroids", "server_channels")
    every: Layer
    """The layer of all nodes, used in evaluation; not with SGC."""
    trained: list[Layer]
    """Layers used in training, first to last; the last has the training nodes. Not with SGC."""
    clustering: EdgeClustering
    kind: Tensor
    """(m,) type of each undirected edge."""
    typed: Tensor | None = None
    """The types from which `graph` was built."""
    graph: dgl.DGLGraph
    """T·n nodes, each edge in the channel of its type."""
    edge_weight: Tensor
    """(edges of `graph`,) weights of Â_t."""
    messages: dict[tuple[Layer, Layer], Callable[[Tensor], Tensor]]
    """Cache, (layer before, layer) → messages between them; emptied when edges change types."""
    centroids: Tensor
    """(K, T, 2·width) centroids of the clients."""
    heard: Tensor
    """(K, T, 2·width), the centroids last received by the server."""
    server_centroids: Tensor | None = None
    """(T, 2·width) centroids of the server; None before the first exchange."""
    server_channels: Parameters
    """Channels of the server, name → (T, …)."""
    linked: Tensor
    """Clients with edges, whose link types are aligned and averaged; all clients if none has edges."""

    def build(self) -> None:
        options = self.options
        super().build()
        # Channels are a part of the model that is not sent as in FedAvg.
        self.channel.refuse(True)
        self.dropout = Dropout(options.dropout, self.setting.seed, self.device)
        source, target = (end.to(self.device) for end in self.federation.graph.edges())
        once = source < target
        self.clustering = EdgeClustering(source[once], target[once], self.inputs.segments, options.types)
        if not self.linear:
            self.every = Layer(self.inputs.segments, options.types)
            self.trained = layers_to_read(self.federation.graph, self.every, rows_read(self), options.layers)
        channels = {name: w for name, w in self.parameters.items() if begins_with(name, self.unshared)}
        self.server_channels = {name: value.detach()[0].clone() for name, value in channels.items()}
        linked = (self.clustering.edges > 0).nonzero().squeeze(1)
        self.linked = linked if len(linked) else torch.arange(self.federation.clients, device=self.device)
        self.centroids, self.kind = self.clustering.k_means(self.project().detach(), self.generator)
        self.heard = self.centroids
        if not self.channel.everyone:
            # The server needs them to match the types of clients that have not sent anything yet.
            self.channel.once_up(centroids=self.centroids)

    @property
    def linear(self) -> bool:
        """Whether only the C outputs need to be propagated, as with SGC."""
        return self.setting.architecture.backbone == "sgc"

    def initial_parameters(self) -> Parameters:
        options, generator = self.options, self.generator
        inner, width, types = self.federation.width, options.width, options.types
        start = prefixed("projection", linear_start(inner, width, generator))
        # SGC's propagations share one layer's weights.
        for index in range(1 if self.linear else options.layers):
            for part in self.backbone.weights:
                matrices = [glorot((width, width), generator) for _ in range(types)]
                start[f"channels.{index}.{part}"] = torch.stack(matrices)
            start[f"channels.{index}.bias"] = torch.zeros(types, width)
        start |= prefixed("head", linear_start(width, self.task.width, generator))
        return stack(start, self.federation.clients, self.device)

    def project(self) -> Tensor:
        """x of every node, (n, width)."""
        product = self.inputs.features.times(self.parameters["projection.weight"])
        return add_bias(product, self.parameters["projection.bias"], self.inputs.segments)

    def join_by_type(self) -> None:
        """Assign the edges to channels by their types."""
        self.typed, self.messages = self.kind, {}
        types, ends = self.options.types, (self.clustering.source, self.clustering.target)
        near, far = ((types * end + self.kind).cpu() for end in ends)
        directed = torch.cat([near, far]), torch.cat([far, near])
        graph = use_kernel(dgl.graph(directed, num_nodes=types * self.federation.nodes), self.setting.kernel)
        self.graph, weight = self.backbone.messages(graph)
        self.edge_weight = weight.to(self.device)

    def train_round(self) -> Tensor:
        """Take one EM step (k-means replaces the first), then train the local epochs."""
        if self.round_number > 1:
            with torch.no_grad():
                x = self.project()
                kind = self.clustering.most_similar(x, self.centroids)
                self.kind = for_clients(kind, self.kind, self.present[self.clustering.client])
                means = self.clustering.means(x, self.kind, self.centroids)
                self.centroids = for_clients(means, self.centroids, self.present)
        return super().train_round()

    def logits(self, dropout: Dropout | None) -> Tensor:
        """Outputs of every node, (n, C); in training NaN at nodes that the loss does not read."""
        if self.typed is not self.kind:
            self.join_by_type()
        if self.linear:
            return self._linear_logits()
        h, before, parameters = self.project(), self.every, self.parameters
        layers = self.trained if trains(dropout) else [self.every] * self.options.layers
        # Σ_t dropout(relu((Â_t h) W_t + b_t)), h from the layer before, (b, width) → (r, width).
        # As neighbours are summed first, only the layer's own r nodes are multiplied.
        for index, layer in enumerate(layers):
            both = before, layer
            if both not in self.messages:
                itself = self.backbone.itself
                self.messages[both] = messages_between(*both, self.graph, self.edge_weight, itself)
            weights = [parameters[f"channels.{index}.{part}"] for part in self.backbone.weights]
            bias = parameters[f"channels.{index}.bias"]
            h = channel_sum(self.messages[both](h), weights, bias, layer, dropout)
            before = layer
        product = segment_product(h, parameters["head.weight"], before.segments)
        return before.among_all(add_bias(product, parameters["head.bias"], before.segments))

    def _linear_logits(self) -> Tensor:
        """SGC's (Σ_t Â_t^hops x W_t + b_t) W + b, (n, C), as Σ_t Â_t^hops x (W_t W) + (Σ_t b_t) W + b: this
        propagates C columns of each channel instead of `width`."""
        segments, parameters, head = self.inputs.segments, self.parameters, self.parameters["head.weight"]
        weight = parameters["channels.0.weight"] @ head.unsqueeze(1)
        types, classes = weight.shape[1], weight.shape[3]
        product = segment_product(self.project(), weight.transpose(1, 2).flatten(2), segments)
        step = partial(propagate, self.graph, weight=self.edge_weight)
        spread = self.backbone.propagate(step, product.view(-1, classes))
        summed = spread.view(-1, types, classes).sum(dim=1)
        bias = (parameters["channels.0.bias"].sum(dim=1, keepdim=True) @ head).squeeze(1)
        return add_bias(summed, bias + parameters["head.bias"], segments)

    def occupied(self) -> Tensor:
        """Channels in which any training node has an edge, (K, T) bool."""
        train, clustering = self.federation.train.to(self.device), self.clustering
        touched = train[clustering.source] | train[clustering.target]
        occupied = self.centroids.new_zeros(self.centroids.shape[:2], dtype=torch.bool)
        occupied[clustering.client[touched], self.kind[touched]] = True
        return occupied

    def send(self) -> Message:
        """The model with its channels, `centroids`, and `occupied`: channels with edges of training nodes."""
        return {**self.parameters, "centroids": self.centroids, "occupied": self.occupied()}

    def aggregate(self, sent: Message) -> Message:
        """Align link types, average matched centroids and channels, and answer in each client's own order."""
        answer = dict(super().aggregate({name: sent[name] for name in self.received}))
        self.heard = for_clients(sent["centroids"], self.heard, self.present)
        linked = self.linked[self.present[self.linked]]
        if self.server_centroids is None:
            self.server_centroids = self.heard[linked[0] if len(linked) else self.linked[0]]
        match = align(self.heard, self.server_centroids)
        if len(linked):
            self.server_centroids = regroup(self.heard[linked], match[linked]).mean(dim=0)
        answer["centroids"] = self.server_centroids[match]
        occupied = regroup(sent["occupied"] & self.present.unsqueeze(1), match).float()
        for name, server in self.server_channels.items():
            mean = self.server_channels[name] = average_channels(sent[name], match, occupied, server)
            answer[name] = mean[match]
        return answer

    def receive(self, answer: Message) -> None:
        super().receive(answer)
        for name, value in answer.items():
            if begins_with(name, self.unshared):
                own = self.parameters[name]
                own.copy_(for_clients(value, own, self.receiving))
        self.centroids = for_clients(answer["centroids"], self.centroids, self.receiving)
