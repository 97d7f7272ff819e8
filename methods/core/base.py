"""The base class of methods: description, set-up, objective and messages; the hooks default to FedAvg's."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import dgl
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.federation import Federation
from fedsub.datasets.limits import check_limits
from fedsub.methods import tasks
from fedsub.methods.core.channel import Channel
from fedsub.methods.core.channel import Message as Message
from fedsub.methods.core.schedule import Schedule
from fedsub.methods.core.setting import Setting
from fedsub.methods.core.steps import begin_round, client_optimiser, descend, draw_attendance, local_epochs
from fedsub.methods.core.uplink import Draws, Uplink, check_accountant
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
"""Key in `extras`: a round's traffic both ways, in percent of FedAvg's, as the paper's table counts it, where
that differs from the channel's count."""


@dataclass(frozen=True)
class Options:
    """A method's own hyper-parameters; each method subclasses it with a docstring for every field."""

    def __post_init__(self) -> None:
        """Raise UserError for a number outside the limit that its type states (`datasets.limits`)."""
        owner = type(self).__name__.removesuffix("Options").replace("Plus", "+").lower()
        check_limits(f"{owner}'s ", self)

    def unused(self, backbone: str) -> Mapping[str, str]:
        """Options without effect given the others and this backbone, each → what it would need; includes
        `backbone` itself if the method uses none."""
        return {}

    def breaks_privacy(self) -> str | None:
        """Why a method with these options breaks privacy, empty if it does not; None: see `MethodInfo`."""
        return None

    def simulation_only(self) -> str:
        """Why clients cannot run apart with these options, where the method's can; empty if they can."""
        return ""


@dataclass(frozen=True)
class MethodInfo:
    """Description of a method for the registry and the leaderboards."""

    name: str
    title: str
    """The method's name as its paper writes it."""
    paper: str
    options: type[Options] = Options
    tasks: tuple[str, ...] = ("node-classification",)
    backbones: tuple[str, ...] = (*NETWORKS, OWN)
    """Networks that the method runs with; `own` stands for a user's network, which shows no hidden layer."""
    lacks: tuple[str, ...] = ()
    """Settings of `Architecture` that the method's own layers do not have: they must keep their defaults."""
    exchanges: str = ""
    """Content of the messages of a user's method, empty if it does not say. The channel's count tells it of
    the benchmark's own (`benchmark/spec/messages.toml`)."""
    breaks_privacy: str = ""
    """Why the method, or which variant of it, would not be allowed between real clients; empty if all keep to
    the rules. Where options decide, `Options.breaks_privacy` says what holds for a record."""
    exposes: tuple[str, ...] = ()
    """Key in `extras` of the number of nodes that a run cannot protect, and why; empty if none is counted."""
    merged: bool = False
    """Whether the method trains on one client that holds every node and every edge."""
    simulation_only: str = ""
    """Why clients cannot run apart, each with its own data and the server's messages; empty if they can."""
    predicts_with: str = ""
    """What prediction needs besides parameters; another client's model then cannot be scored (`evaluate`)."""
    scored_plain: bool = False
    """Whether the model also fits a graph as it is: evaluate=whole-graph then ignores its own inputs."""
    needs_everyone: str = ""
    """Why no client may be absent from a round; empty if clients may."""
    version: int = 1
    """Add 1 when the method's results change: records of another version belong to another cell."""

    def __post_init__(self) -> None:
        """Raise ValueError for a name unfit for a command line, for options that are no dataclass or not
        `Options`, and for an option whose default a record cannot hold."""
        if not re.fullmatch(r"[\w.+-]+", self.name):
            raise ValueError(f"the name {self.name!r} may contain only letters, digits and . + - _")
        if "__dataclass_fields__" not in vars(self.options):
            raise ValueError(f"{self.options.__name__} is not a dataclass: put @dataclass(frozen=True) on it")
        if not issubclass(self.options, Options):
            raise ValueError(f"{self.options.__name__} must be a subclass of Options")
        for item in fields(self.options):
            if not isinstance(item.default, (bool, int, float, str)):
                raise ValueError(
                    f"{self.options.__name__}.{item.name} needs a default that is a number, a bool or text"
                )

    def privacy_of(self, options: Options) -> str:
        """Why the method with these options breaks privacy, empty if it does not."""
        own = options.breaks_privacy()
        return self.breaks_privacy if own is None else own

    def simulation_only_with(self, options: Options) -> str:
        """Why clients cannot run apart with these options, empty if they can."""
        return self.simulation_only or options.simulation_only()


Method = TypeVar("Method", bound="type[FederatedMethod]")


def register(name: str, *, title: str, paper: str, **details: Any) -> Callable[[Method], Method]:
    """Class decorator that registers a method; `methods.core.registry` finds the registered classes.

    `details` are the other fields of `MethodInfo`.
    """
    info = MethodInfo(name, title, paper, **details)

    def mark(method: Method) -> Method:
        method.info = info
        return method

    return mark


class FederatedMethod:
    """Training of K clients; subclasses override the hooks that their paper changes.

    Two halves. `send`, `receive` and local training are the client's half: client k reads slice k of the
    clients' state, and the messages that it received. `aggregate` is the server's half: it reads messages and
    the server's state. Neither reads the other's state, so with K = 1 a method is one real client.

    Absent clients. In every round some clients may be absent (`Schedule.participation`, `leavers`) or do
    fewer epochs (`stragglers`). The default hooks then do as FedAvg does. An absent client does not train:
    its slices of parameters and of the optimiser's state stay as they were after its last training. It sends
    nothing: zeros arrive, and means are over the other clients. It receives at the end of its
    last absent round. A method with a state of its own reads `present`, `receiving` and `working`. All
    clients take part in exchanges before training.
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
    """Names of the attributes that clients keep from round to round; the names of base classes are added."""
    server_state: ClassVar[tuple[str, ...]] = ("channel", "extras", "by_round", "seconds")
    """Names of the attributes that the server keeps from round to round; those of base classes are added."""
    labelled_outputs_only: ClassVar[bool] = False
    """Whether training reads `logits` only for the task's loss: nodes on which the loss does not depend may
    then be left out (`Inputs.receptive_field`)."""

    unshared: tuple[str, ...] = ()
    """Prefixes, in whole dotted parts, of the parameters that clients do not share: `personal` for
    `personal.…`, `layers.0` for `layers.0.weight` and `layers.0.bias`."""
    every_epoch: bool = False
    """Whether the method's own `train_round` exchanges messages after every local epoch (`communicate`): none
    are exchanged after the round."""

    options: Any
    setting: Setting
    architecture: Architecture
    """The network's settings; a method bound to a network of its own replaces them before `build`."""
    schedule: Schedule
    device: torch.device
    federation: Federation
    """The clients' data; n nodes."""
    task: Task
    """The task, which defines the loss."""
    generator: torch.Generator
    """Generator of every random draw except dropout's."""
    channel: Channel
    """Carries every message and counts its bytes."""
    round_number: int = 1
    """Number of the current round, from 1."""
    seconds: dict[str, float]
    """Seconds spent so far in `setup`, `train` (including messages) and `evaluate`."""
    extras: dict[str, Any]
    """The method's own figures, reported with the record."""
    by_round: dict[str, list[float]]
    """The method's own figures with one entry a round; the record reports the selected round's."""

    # Made by `build`:
    backbone: Backbone
    inputs: Inputs
    """The backbone's inputs."""
    dropout: Dropout
    parameters: Parameters
    """Trained parameters, name → (K, …) leaf tensors."""
    optimiser: torch.optim.Optimizer
    shares: Tensor
    """(K,), sum 1, the clients' weights p_k in averages over all clients, by the schedule's weighting."""
    received: Parameters
    """Shared parameters as last received, name → (1 or K, …); at first the common start. Clients and server
    know them."""
    attendance: Tensor
    """(rounds, K) int64, local epochs of each client in each round; 0 where it is absent."""

    # Of the round, set by `begin_round`:
    weights: Tensor
    """(K,), sum 1, the p_k rescaled among the clients present, 0 for the others."""
    present: Tensor
    """(K,) bool, the clients that train and send."""
    receiving: Tensor
    """(K,) bool, the clients that receive: those present in the next round."""
    epochs: Tensor
    """(K,) int64, local epochs of each client."""
    working: Tensor
    """(K,) bool, the clients that train in this epoch."""

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
        """Prepare inputs, parameters and optimiser; counted as set-up, not as training. Raises UserError
        where the method does not support the setting."""
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
        begin_round(self, 1)
        self.received = {name: self.parameters[name].detach()[:1].clone() for name in self.shared()}
        self.channel.models = frozenset(self.received)
        # An uplink can only change models.
        self.channel.refuse(not self.received)

    def _prepare_rounds(self) -> None:
        """Weigh the clients, draw their attendance and make the channel. Raises UserError where the schedule
        is not supported."""
        schedule, clients, sizes = self.schedule, self.federation.clients, self.federation.sizes
        counts = {"uniform": torch.ones(clients), "nodes": sizes, "training-nodes": self.task.train_count}
        share = counts[schedule.weighting].float()
        self.shares = (share / share.sum()).to(self.device)
        partial = schedule.partial and not self.info.merged
        if partial and self.info.needs_everyone:
            raise UserError(
                f"{self.info.name} needs every client in every round, because {self.info.needs_everyone}: "
                "do not set participation, stragglers or leavers"
            )
        attended = schedule if partial else schedule.attended_by_all()
        self.attendance = draw_attendance(attended, clients, self.setting.seed)
        has_uplink = schedule.privacy_clip > 0 or schedule.compresses
        self.channel = Channel(clients, Uplink(schedule, Draws(self.setting.seed)) if has_uplink else None)
        self.channel.everyone = not partial
        if schedule.privacy_noise:
            check_accountant()

    def _check_network(self) -> None:
        """Raise UserError for a network, or a setting of one, that the method does not run with."""
        given, info = self.setting.architecture, self.info
        if not (
            runs_with(info.backbones, given.backbone) or "backbone" in self.options.unused(given.backbone)
        ):
            listed = ", ".join(info.backbones)
            raise UserError(f"{info.title} runs with {listed}, not with {given.backbone}")
        for name in info.lacks:
            if getattr(given, name) != getattr(Architecture, name):
                raise UserError(f"{info.title}'s own layers do not support {name}: leave it out")

    def make_inputs(self) -> Inputs:
        """Make the backbone's inputs; by default from the clients' own graphs. What else `logits` reads of
        the graphs is made here too: evaluate=whole-graph refuses a method that overrides this, unless it is
        `scored_plain`."""
        return prepare(self, self.federation.graph, self.federation.features, self.federation.sizes)

    def initial_parameters(self) -> Parameters:
        """Initial parameters, drawn by the backbone and the same for every client."""
        start = self.backbone.initial(self.federation.width, self.task.width, self.generator)
        return stack(start, self.federation.clients, self.device)

    # ------------------------------------------------------------------- round

    def train_round(self) -> Tensor:
        """Run the local epochs of the round; return the last epoch's loss, ()."""
        loss = torch.zeros((), device=self.device)
        for _ in local_epochs(self):
            loss = descend(self)
        return loss

    def logits(self, dropout: Dropout | None) -> Tensor:
        """The clients' logits with their current parameters, (n, C)."""
        if trains(dropout):
            return self.backbone.forward_to_read(self.inputs, self.parameters, dropout)
        return self.backbone.forward(self.inputs, self.parameters, dropout)

    def objective(self, logits: Tensor) -> Tensor:
        """Sum over clients of each client's local loss on the outputs, (). Clients' parameters are disjoint,
        so one backward pass gives every client exactly its own gradient."""
        return self.task.loss(logits)

    def shared(self) -> list[str]:
        """Names of the parameters that are averaged."""
        return [name for name in self.parameters if not begins_with(name, self.unshared)]

    # ---------------------------------------------------------------- messages

    def send(self) -> Message:
        """The clients' message after local training: name → (K, …)."""
        return {name: self.parameters[name] for name in self.shared()}

    def aggregate(self, sent: Message) -> Message:
        """The server's answer: name → (1, …) for all clients alike, or (K, …), one for each client.

        The default is the mean over clients with weights p_k of every tensor sent.
        """
        return {name: weighted_mean(value, self.weights) for name, value in sent.items()}

    def receive(self, answer: Message) -> None:
        """Apply an answer to the clients; by default, it replaces their shared parameters.

        Only clients that take part in the next round receive (`receiving`).
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
    """Call `Backbone.prepare` for a method's task and device and the outputs that its training reads;
    `further` are its keyword arguments."""
    further = {"read": rows_read(method), **further}
    return method.backbone.prepare(graph, features, sizes, method.task.width, method.device, **further)


def rows_read(method: FederatedMethod) -> Tensor | None:
    """(t,) rows whose outputs training reads; None: all."""
    return method.task.read if method.labelled_outputs_only else None
