"""The shape of a method: what is said of it, what it builds, what its clients minimise, what they exchange.

The hooks default to FedAvg's. A round is: local epochs on the stacked parameters, then `send` by the clients,
`aggregate` by the server and `receive` by the clients again, with the channel in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import dgl
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.limits import check_limits
from fedsub.methods import tasks
from fedsub.methods.core.channel import Channel, Message
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting
from fedsub.methods.core.steps import Attendance, begin_round, client_optimiser, descend, local_epochs
from fedsub.methods.core.uplink import Uplink, check_accountant
from fedsub.methods.stacked.activation import Dropout, trains
from fedsub.methods.stacked.architecture import NETWORKS, OWN, Architecture, runs_with
from fedsub.methods.stacked.backbones import Backbone, make_backbone
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.mixing import for_clients, weighted_mean
from fedsub.methods.stacked.parameters import Parameters, begins_with, check_parameters, stack
from fedsub.methods.stacked.propagation import use_kernel
from fedsub.methods.tasks import Task

BOTH_TASKS = (tasks.NodeClassification.name, tasks.LinkPrediction.name)
PAPER_COMMUNICATION = "paper_communication_pct"
"""Key in `extras`: traffic of a round both ways in percent of FedAvg's as the method's table counts it, where
that is not what the channel carries."""


@dataclass(frozen=True)
class Options:
    """A method's own hyper-parameters; each method subclasses it with a docstring for every field."""

    def __post_init__(self) -> None:
        """Raises UserError for a number outside the limit that its type states (`datasets.limits`)."""
        owner = type(self).__name__.removesuffix("Options").replace("Plus", "+").lower()
        check_limits(f"{owner}'s ", self)

    def unused(self, backbone: str) -> Mapping[str, str]:
        """Options that cannot act beside the others with this backbone, each with what it would need;
        `backbone` itself where the method takes none."""
        return {}

    def breaks_privacy(self) -> str | None:
        """Why a method with these options breaks privacy, empty if it does not; None: see `MethodInfo`."""
        return None


@dataclass(frozen=True)
class MethodInfo:
    """What the registry and the leaderboards say about a method."""

    name: str
    title: str
    """As its paper writes it."""
    paper: str
    options: type[Options] = Options
    tasks: tuple[str, ...] = ("node-classification",)
    backbones: tuple[str, ...] = (*NETWORKS, OWN)
    """Networks that it runs with; `own` stands for any of a user's, which shows no hidden layer."""
    lacks: tuple[str, ...] = ()
    """Settings of the architecture that its own layers have not: they must keep their defaults."""
    exchanges: str = "model parameters"
    """What crosses the network."""
    breaks_privacy: str = ""
    """Why the method would not be allowed between real clients, or which of its variants would not; empty if
    all keep to the rules. Where options decide, `Options.breaks_privacy` says what a record has."""
    exposes: tuple[str, ...] = ()
    """The name in `extras` of how many nodes a run cannot protect, and why, if it counts them."""
    merged: bool = False
    """Whether it trains on one client that holds every node and every edge."""
    tells_attendance: bool = False
    """Whether who sees the averaged models sees in them who took part in a round."""
    simulation_only: str = ""
    """Why clients cannot run apart, each with its own data and the server's messages; empty if they can."""
    predicts_with: str = ""
    """What it predicts with beside parameters; another client's model then cannot be scored (`evaluate`)."""
    needs_everyone: str = ""
    """Why no client may be absent from a round; empty if one may."""
    version: int = 1
    """Raise when its results change: records of another version are of another cell."""

    def __post_init__(self) -> None:
        """Raises ValueError for a name that no command line could ask for, and for options that would not be
        read."""
        if not re.fullmatch(r"[\w.+-]+", self.name):
            raise ValueError(f"the name {self.name!r} may have letters, digits and . + - _ alone")
        if "__dataclass_fields__" not in vars(self.options):
            raise ValueError(f"{self.options.__name__} is no dataclass: put @dataclass(frozen=True) above it")

    def privacy_of(self, options: Options) -> str:
        """Why the method with these options breaks privacy, empty if it does not."""
        own = options.breaks_privacy()
        return self.breaks_privacy if own is None else own


Method = TypeVar("Method", bound="type[FederatedMethod]")


def register(name: str, *, title: str, paper: str, **details: Any) -> Callable[[Method], Method]:
    """Class decorator that names a method; `methods.core.registry` finds the named classes.

    `details` are the other fields of `MethodInfo`.
    """
    info = MethodInfo(name, title, paper, **details)

    def mark(method: Method) -> Method:
        method.info = info
        return method

    return mark


class FederatedMethod:
    """K clients in training; subclasses override the hooks that their paper changes.

    Two halves. `send`, `receive` and local training are a client's: client k reads slice k of what clients
    hold, and the messages that it received. `aggregate` is the server's: it reads messages and what the
    server holds. Neither reads the other's state, so that a method of one client (K = 1) is a real client.

    Absent clients. In every round some may be absent (`Schedule.participation`, `leavers`) or do fewer epochs
    (`stragglers`). The default hooks then do what FedAvg says. In a round an absent client trains nothing:
    its slices of parameters and of the optimiser's state stay as they were after its last training. It sends
    nothing: zeros arrive, and means are over the others. It receives when it comes back, at the end of the
    round before. A method with a state of its own asks `present`, `receiving` and `working`. What clients
    exchange before training they exchange all.
    """

    info: ClassVar[MethodInfo]
    client_state: ClassVar[tuple[str, ...]] = (
        "parameters",
        "optimiser",
        "dropout",
        "task",
        "generator",
        "received",
    )
    """Names of the attributes in which clients keep something from round to round, beside those that the
    classes above name."""
    server_state: ClassVar[tuple[str, ...]] = ("channel", "extras", "by_round")
    """The same of the server."""
    labelled_outputs_only: ClassVar[bool] = False
    """Whether training reads `logits` for the task's loss alone: what that does not depend on may then be
    left out (`Inputs.receptive_field`)."""

    unshared: tuple[str, ...] = ()
    """Whole parts with which the names of parameters begin that clients keep to themselves: `personal` of
    `personal.…`, `layers.0` of `layers.0.weight` and `layers.0.bias`."""
    every_epoch: bool = False
    """Whether clients and server talk after every local epoch, and not after every round."""

    options: Any
    setting: Setting
    architecture: Architecture
    """The network; a method bound to one of its own replaces it before `build`."""
    schedule: Schedule
    device: torch.device
    federation: Federation
    """The clients; n nodes."""
    task: Task
    """The loss."""
    generator: torch.Generator
    """Every random draw but dropout's."""
    channel: Channel
    """What is exchanged goes through it."""
    round_number: int = 1
    """Of the round that runs, from 1."""
    seconds: dict[str, float]
    """Spent so far in `setup`, `train` (messages too) and `evaluate`."""
    extras: dict[str, Any]
    """Figures of the method's own, reported with the record."""
    by_round: dict[str, list[float]]
    """The same of figures that change: one entry a round; the record reports the selected round's."""

    # Made by `build`:
    backbone: Backbone
    inputs: Inputs
    """What the backbone reads."""
    dropout: Dropout
    parameters: Parameters
    """Name → (K, …) leaves."""
    optimiser: torch.optim.Optimizer
    shares: Tensor
    """(K,), sum 1, the clients' shares p_k in averages over all."""
    received: Parameters
    """Name → (1 or K, …), the shared parameters as last received, at first the common start. Both sides know
    them."""
    attendance: Attendance

    # Of the round, set by `begin_round`:
    weights: Tensor
    """(K,), sum 1, the p_k among those present, 0 for the others."""
    present: Tensor
    """(K,) bool, who trains and sends."""
    receiving: Tensor
    """(K,) bool, who receives from the exchange: those who are present in the next round."""
    epochs: Tensor
    """(K,) int64, local epochs of each client."""
    working: Tensor
    """(K,) bool, who trains in this epoch."""

    def __init__(self, options: Any, setting: Setting) -> None:
        self.options = options
        self.setting = setting
        self.schedule = setting.schedule
        self.architecture = setting.architecture
        self.federation = setting.federation
        self.task = setting.task.restarted()
        self.device = torch.device(setting.device)
        self.generator = torch.Generator().manual_seed(setting.seed)
        self.channel = Channel(setting.federation.clients)
        self.extras = {}
        self.seconds = dict.fromkeys(("setup", "train", "evaluate"), 0.0)
        self.by_round = {}

    # ------------------------------------------------------------------ set-up

    def build(self) -> None:
        """Prepare inputs, parameters and optimiser; set-up, not counted as training.

        Raises UserError where the method cannot do what the setting says.
        """
        federation = self.federation
        self._prepare_rounds()
        use_kernel(federation.graph, self.setting.kernel)
        use_kernel(federation.inter, self.setting.kernel)
        self._check_network()
        self.backbone = make_backbone(self.architecture)
        self.inputs = self.make_inputs()
        self.dropout = Dropout(self.setting.architecture.dropout, self.setting.seed, self.device)
        self.parameters = self.initial_parameters()
        check_parameters(self.info.name, self.parameters, self.shared(), self.unshared, federation.clients)
        self.optimiser = client_optimiser(self, list(self.parameters.values()))
        self.shares = _shares(self).to(self.device)
        begin_round(self, 1)
        self.received = {name: self.parameters[name].detach()[:1].clone() for name in self.shared()}
        self.channel.models = frozenset(self.received)
        # What an uplink changes are models.
        self.channel.refuse(not self.received)

    def _prepare_rounds(self) -> None:
        """Who takes part when, and what becomes of messages. Raises UserError where the method cannot."""
        schedule, clients = self.schedule, self.federation.clients
        partial = schedule.partial and not self.info.merged
        if partial and self.info.needs_everyone:
            raise UserError(
                f"{self.info.name} needs every client in every round, because {self.info.needs_everyone}: "
                "leave participation, stragglers and leavers out"
            )
        attended = schedule if partial else schedule.attended_by_all()
        self.attendance = Attendance.draw(attended, clients, self.setting.seed)
        self.channel = Channel(clients, Uplink.of(schedule, self.setting.seed))
        self.channel.everyone = not partial
        if schedule.privacy_noise:
            check_accountant()

    def _check_network(self) -> None:
        """Raises UserError for a network, or a part of one, that the method does not run with."""
        given, info = self.setting.architecture, self.info
        if not (
            runs_with(info.backbones, given.backbone) or "backbone" in self.options.unused(given.backbone)
        ):
            listed = ", ".join(info.backbones)
            raise UserError(f"{info.name} runs with {listed}, not with {given.backbone}")
        for name in info.lacks:
            if getattr(given, name) != getattr(Architecture, name):
                raise UserError(f"{info.name} has layers of its own, without {name}: leave it out")

    def make_inputs(self) -> Inputs:
        """What the backbone reads; by default the clients' own graphs."""
        federation = self.federation
        sizes = federation.sizes
        return prepare(self, federation.graph, federation.features, sizes, read=rows_read(self))

    def initial_parameters(self) -> Parameters:
        """The same start for every client, drawn as the backbone says."""
        start = self.backbone.initial(self.federation.width, self.task.width, self.generator)
        return stack(start, self.federation.clients, self.device)

    # ------------------------------------------------------------------- round

    def train_round(self) -> Tensor:
        """The local epochs of the round; returns the last one's loss, ()."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = descend(self)
        return loss

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The clients' logits with their present parameters, (n, C)."""
        if trains(dropout):
            return self.backbone.forward_to_read(self.inputs, self.parameters, dropout)
        return self.backbone.forward(self.inputs, self.parameters, dropout)

    def objective(self, logits: Tensor) -> Tensor:
        """Sum over clients of each client's local loss, (), of the outputs; parameters are disjoint, so one
        backward gives every client exactly its own gradient."""
        return self.task.loss(logits)

    def shared(self) -> list[str]:
        """Names of the parameters that are averaged."""
        return [name for name in self.parameters if not begins_with(name, self.unshared)]

    # ---------------------------------------------------------------- messages

    def send(self) -> Message:
        """What the clients send after local training: name → (K, …)."""
        return {name: self.parameters[name] for name in self.shared()}

    def aggregate(self, sent: Message) -> Message:
        """The server's answer: name → (1, …) for all clients alike, or (K, …), each client's own.

        The default is Σ_k p_k of everything sent.
        """
        return {name: weighted_mean(value, self.weights) for name, value in sent.items()}

    def receive(self, answer: Message) -> None:
        """What clients do with an answer; the default is to go on from the shared parameters in it.

        Those receive who take part in the next round (`receiving`).
        """
        for name in self.received:
            if name in answer:
                own = self.parameters[name]
                own.copy_(for_clients(answer[name], own, self.receiving))

    # -------------------------------------------------------------- evaluation

    def predict(self) -> Tensor:
        """Outputs of every node of every client in the clients' order, (n, C), without dropout unless the
        schedule keeps it on."""
        dropout = self.dropout.scoring() if self.schedule.evaluate_dropout else None
        with torch.no_grad():
            outputs, rows = self.setting.architecture.outputs_of(self.logits(dropout)), self.setting.rows
            return outputs if rows is None else outputs[rows]

    def finish(self) -> None:
        """Called once after the last round: add figures to `extras`."""


def prepare(
    method: FederatedMethod, graph: dgl.DGLGraph, features: Tensor, sizes: Tensor, **further: Any
) -> Inputs:
    """`Backbone.prepare` for a method's task, on its device; `further` are its last arguments."""
    return method.backbone.prepare(graph, features, sizes, method.task.width, method.device, **further)


def rows_read(method: FederatedMethod) -> Tensor | None:
    """(t,) rows whose outputs training reads; None: all."""
    return method.task.read if method.labelled_outputs_only else None


def _shares(method: FederatedMethod) -> Tensor:
    """p_k, (K,), sum 1, by the schedule's weighting."""
    sizes = method.federation.sizes
    counts = {"uniform": torch.ones(len(sizes)), "nodes": sizes, "training-nodes": method.task.train_count}
    share = counts[method.schedule.weighting].float()
    return share / share.sum()
