"""A user's network: an ordinary torch module for one client, run for K clients.

`network(features, classes)` returns an `nn.Module` from a client's graph and features, (n, features) dense,
to logits, (n, classes). Further arguments that are named like a setting, such as `hidden`, get its value.

All clients run at once by `torch.func.vmap` if the module reads a graph only through the methods of
`ClientGraph` and computes with torch. Each client is then padded to the largest one. The first forward pass
tries both ways. If they differ or `vmap` fails, as with DGL's layers, clients run one by one.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import dgl
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from fedsub.datasets.errors import UserError, broken
from fedsub.methods.stacked.activation import Dropout
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.features import Features
from fedsub.methods.stacked.inputs import Convolution, Inputs
from fedsub.methods.stacked.networks.base import Backbone
from fedsub.methods.stacked.parameters import Parameters, Weights
from fedsub.methods.stacked.segments import Segments

TOLERANCE = 1e-3
"""Tolerance between two ways of computing a tensor, as a share of its largest entry."""


class ClientGraph:
    """The methods of `dgl.DGLGraph` that also run for all clients at once."""

    def __init__(self, source: Tensor, target: Tensor, nodes: int) -> None:
        """`source` and `target` are (edges,) ids below `nodes`."""
        self._ends, self._nodes = (source, target), nodes

    def edges(self) -> tuple[Tensor, Tensor]:
        """Sources and targets, (edges,) each."""
        return self._ends

    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._nodes

    def in_degrees(self) -> Tensor:
        """Number of edges into each node, (nodes,) int64."""
        target = self._ends[1]
        return target.new_zeros(self._nodes).index_add(0, target, torch.ones_like(target))


@dataclass(frozen=True)
class OwnInputs(Inputs):
    """Inputs of a user's network; K clients of at most m nodes and e edges."""

    graphs_and_rows: tuple[tuple[Any, Tensor], ...] = ()
    """Each client's graph and features, (nodes, d)."""
    batch: tuple[Tensor, ...] = ()
    """Sources and targets, (K, e), and features, (K, m + 1, d). The last node of each client is padding;
    padding edges join it to itself."""


class Own(Backbone):
    """A user's module as a backbone; its parameters keep the module's names."""

    module: nn.Module
    """The module, made by `initial`; it computes with the parameters that `forward` passes."""
    names: tuple[str, ...]
    """Names of its trained parameters."""
    stacks: bool | None = None
    """Whether all clients run at once; None before the first forward pass."""

    def __init__(self, architecture: Architecture, function: Callable[..., Any]) -> None:
        """Raises UserError for an argument of `function` that is no setting and has no default."""
        super().__init__(architecture)
        self.function, self.name = function, architecture.backbone
        settings = vars(architecture)
        self.given: dict[str, Any] = {}
        for name, each in [*inspect.signature(function).parameters.items()][2:]:
            if name in settings:
                self.given[name] = settings[name]
            elif each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise UserError(f"network() of {self.name} needs {name}, not a setting: give it a default")

    def initial(self, width: int, classes: int, generator: torch.Generator) -> Parameters:
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = self.function(width, classes, **self.given)
            except (Exception, SystemExit) as error:
                raise broken(f"network() of {self.name} fails", error) from error
        if not isinstance(module, nn.Module):
            raise UserError(f"network() of {self.name} returns a {type(module).__name__}, not an nn.Module")
        found = {name: each.detach() for name, each in module.named_parameters() if each.requires_grad}
        if not found:
            raise UserError(f"the network {self.name} has no parameter to train")
        self.module, self.names, self.stacks = module, tuple(found), None
        return found

    def prepare(
        self,
        graph: dgl.DGLGraph,
        features: Tensor,
        sizes: Tensor,
        classes: int,
        device: torch.device | str = "cpu",
        **further: Tensor | Convolution | None,
    ) -> Inputs:
        """As `Backbone.prepare`. Raises UserError where the method replaces propagation or features."""
        if further.get("convolution") is not None or further.get("copied") is not None:
            raise UserError(f"{self.name} does not support a method that replaces propagation or features")
        segments, position = Segments(sizes, device), further.get("position")
        lengths, last = segments.sizes.tolist(), segments.longest
        rows = features.to_dense().to(device).split(lengths)
        graphs = [dgl.node_subgraph(graph, each) for each in torch.arange(segments.rows).split(lengths)]
        ends = [[end.to(device, torch.int64) for end in each.edges()] for each in graphs]
        source, target = (
            pad_sequence([*side], batch_first=True, padding_value=last) for side in zip(*ends, strict=True)
        )
        # Padding with ones keeps rows finite that are divided by their sum, or scaled to length one.
        padded = pad(pad_sequence([*rows], batch_first=True, padding_value=1.0), (0, 0, 0, 1), value=1.0)
        if torch.device(device).type != "cpu":
            # The registry's DGL has graphs on the CPU only.
            graphs = [ClientGraph(a, b, nodes) for (a, b), nodes in zip(ends, lengths, strict=True)]
        return OwnInputs(
            segments,
            Features(features, segments, device),
            self.convolution(graph, device),
            classes,
            position=position.to(device) if isinstance(position, Tensor) else None,
            graphs_and_rows=tuple(zip(graphs, rows, strict=True)),
            batch=(source, target, padded),
        )

    def forward(self, inputs: Inputs, parameters: Weights, dropout: Dropout | None = None) -> Tensor:
        """As `Backbone.forward`. Raises UserError, the first time, where the module cannot run."""
        given = cast(OwnInputs, inputs)
        # A method may hold other parameters besides the network's.
        parameters = {name: parameters[name] for name in self.names}
        if self.stacks is None:
            # Buffers and frozen parameters, which `parameters` does not replace.
            self.module.to(inputs.segments.client.device)
            self.stacks = self._try(given, parameters)
        with self._mode(dropout, inputs.segments.client.device):
            logits = self._at_once(given, parameters) if self.stacks else self._one_by_one(given, parameters)
        return logits if inputs.position is None else logits.index_select(0, inputs.position)

    @contextmanager
    def _mode(self, dropout: Dropout | None, device: torch.device) -> Iterator[None]:
        """Context with the module in training mode, if there is dropout, and draws seeded by `dropout`."""
        self.module.train(dropout is not None)
        with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
            if dropout is not None:
                torch.manual_seed(int(dropout.source.random_raw()))
            yield

    def _one_by_one(self, inputs: OwnInputs, parameters: Weights) -> Tensor:
        """Logits of every client in turn, (n, C)."""
        clients = len(inputs.graphs_and_rows)
        # One backward step for all slices of a parameter.
        slices = {name: each.expand(clients, *each.shape[1:]).unbind() for name, each in parameters.items()}
        logits = []
        for k, (graph, rows) in enumerate(inputs.graphs_and_rows):
            own = {name: each[k] for name, each in slices.items()}
            logits.append(functional_call(self.module, own, (graph, rows)))
        return torch.cat(logits)

    def _at_once(self, inputs: OwnInputs, parameters: Weights) -> Tensor:
        """Logits of all clients at once, (n, C)."""
        segments, nodes = inputs.segments, inputs.batch[2].shape[1]
        weights = {name: each.expand(segments.clients, *each.shape[1:]) for name, each in parameters.items()}

        def one(own: Parameters, source: Tensor, target: Tensor, rows: Tensor) -> Tensor:
            return functional_call(self.module, own, (ClientGraph(source, target, nodes), rows))

        logits = vmap(one, randomness="different")(weights, *inputs.batch)
        return logits.flatten(0, 1).index_select(0, segments.place + segments.client)

    def _try(self, inputs: OwnInputs, parameters: Weights) -> bool:
        """Whether both ways agree, with their gradients. Raises UserError if clients one by one fail."""
        before = {name: each.clone() for name, each in self.module.named_buffers()}
        dropout = Dropout(0.0, 0)
        device = inputs.segments.client.device
        try:
            with torch.no_grad(), self._mode(dropout, device):
                logits = self._one_by_one(inputs, parameters)
        except (Exception, SystemExit) as error:
            said = f"the network {self.name} fails"
            if device.type != "cpu":
                said += f" on {device}, where a graph has only edges(), num_nodes() and in_degrees(),"
            raise broken(said, error) from error
        if logits.shape != (inputs.segments.rows, inputs.classes):
            said = f"{tuple(logits.shape)} for {inputs.segments.rows} nodes and {inputs.classes} classes"
            raise UserError(f"the network {self.name} gives outputs {said}: return (nodes, classes)")
        if any(not torch.equal(each, before[name]) for name, each in self.module.named_buffers()):
            raise UserError(
                f"the network {self.name} changes buffers in training, which no method averages: use a "
                "LayerNorm, or track_running_stats=False"
            )
        try:
            with torch.no_grad(), self._mode(dropout, device):
                self._at_once(inputs, parameters)
            answers = (self._answer(run, inputs, parameters) for run in (self._at_once, self._one_by_one))
            differ = any(
                not bool((a - b).abs().max() <= TOLERANCE * b.abs().max() + 1e-6)
                for a, b in zip(*answers, strict=True)
            )
            why = "padding changes its outputs" if differ else ""
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:100]
        if why:
            said = f"{self.name} runs client by client, which is slower, because it cannot be stacked ({why})"
            warnings.warn(said, stacklevel=2)
        return not why

    def _answer(
        self, run: Callable[[OwnInputs, Weights], Tensor], inputs: OwnInputs, parameters: Weights
    ) -> list[Tensor]:
        """Logits without dropout, and the gradient of the sum of their squares."""
        own = {name: each.detach().requires_grad_() for name, each in parameters.items()}
        with torch.enable_grad(), self._mode(None, inputs.segments.client.device):
            logits = run(inputs, own)
            found = torch.autograd.grad(logits.square().sum(), [*own.values()], allow_unused=True)
        return [logits.detach(), *(each for each in found if each is not None)]

    # ------------------------------------------------------------- what is not shown

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the parameters of the last submodule that has any."""
        last = self.names[-1].rpartition(".")[0]
        return tuple(name for name in self.names if name.rpartition(".")[0] == last)

    def _closed(self, *_: Any, **__: Any) -> Any:
        raise UserError(f"{self.name} shows no hidden layers, which this method needs: use another backbone")

    hops = property(_closed)
    embed = embed_linear = classify = _closed
