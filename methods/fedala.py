"""FedALA: every client learns, entry by entry, how much of the received model to take.

Zhang et al., FedALA: Adaptive Local Aggregation for Personalized Federated Learning, AAAI 2023,
algorithm 1. θ is client k's model after its last training, w_s the received one, ⊙ the entrywise product.
W starts at 1 and is kept from round to round. In the upper p layers, with ∇F_k on a share of the client's
training items that is drawn anew in each round:

    θ̂ = θ + W ⊙ (w_s − θ)
    W ← clip(W − η ∇F_k(θ̂) ⊙ (w_s − θ), 0, 1)

In the lower layers θ̂ = w_s. Local training starts from θ̂. In a client's first round W takes steps until the
standard deviation of the last losses falls below a threshold; in later rounds it takes one step. Models are
exchanged as in FedAvg, which η = 0 gives. A client that is absent in a round keeps θ and W.

Departures: the gradient is over the whole drawn share at once, without dropout; the paper uses batches. The
public code draws consecutive training items, and absent clients also take a step on W. It counts p in
parameters, of which the classifier has two, and has no limit on the first round's steps. Link prediction uses
all training pairs. FedGB's code has `layers = 0`, `share = 0.2` and `threshold = 0.01`. It also takes θ from
before the training, so that trained models never come back; that is not offered here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.limits import NonNegative, PositiveShare, Size, tunable
from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, Message, Options, register
from fedsub.methods.stacked.mixing import column, for_clients
from fedsub.methods.stacked.parameters import Parameters
from fedsub.methods.stacked.segments import ranks
from fedsub.methods.tasks import NodeClassification, Task

WINDOW = 10
"""Number of last losses that `threshold` is compared with in the first round, once there are more, as in the
public code."""
FIRST_STEPS = 100
"""Maximum number of steps of W in the first round."""


@dataclass(frozen=True)
class FedALAOptions(Options):
    layers: Size = tunable(1, choices=(1, 2, 0))
    """p, number of upper layers that are mixed, the classifier included; 0 mixes all."""
    share: PositiveShare = tunable(0.8, linear=(0.2, 1))
    """Share of the training items from which W is learned, in (0, 1]."""
    rate: NonNegative = tunable(1.0, log=(0.1, 10))
    """η, learning rate of W, at least 0; 0 is FedAvg."""
    threshold: NonNegative = 0.1
    """Standard deviation of a client's last losses below which W stops in its first round, at least 0."""

    def unused(self, backbone: str) -> Mapping[str, str]:
        if self.rate == 0:
            return dict.fromkeys(("layers", "share", "threshold"), "rate above 0")
        return {"layers": "a backbone of several layers"} if backbone == "sgc" else {}


@register("fedala", title="FedALA", paper="Zhang et al. 2023", options=FedALAOptions, tasks=BOTH_TASKS)
class FedALA(FederatedMethod):
    """FedAvg whose clients mix the received model with their own."""

    labelled_outputs_only = True
    options: FedALAOptions
    client_state = ("mixture", "steps_taken", "begun", "mixing_task")
    mixture: Parameters
    """W of the upper layers, name → (K, …), in [0, 1]."""
    steps_taken: int = 0
    """Largest number of steps of W in any exchange so far."""
    begun: Tensor
    """(K,) bool, clients whose first round is over."""
    mixing_task: Task
    """Task of W's losses; it draws pairs of its own, so that those of training do not change."""

    def build(self) -> None:
        super().build()
        self.mixing_task = self.setting.task.restarted()
        self.begun = torch.zeros_like(self.present)
        # `layers.0.weight` belongs to `layers.0`.
        layer = {name: name.rpartition(".")[0] for name in self.parameters}
        layers = list(dict.fromkeys(layer.values()))
        upper = layers[-self.options.layers :] if self.options.layers else layers
        self.mixture = {
            name: torch.ones_like(value) for name, value in self.parameters.items() if layer[name] in upper
        }

    def receive(self, answer: Message) -> None:
        """Set the lower layers to the server's; learn W, and set the upper layers to θ̂."""
        if self.options.rate == 0:
            super().receive(answer)
            return
        trained = {name: self.parameters[name].detach().clone() for name in self.mixture}
        super().receive(answer)
        change = {name: answer[name] - value for name, value in trained.items()}
        rows = self._draw()
        losses: list[Tensor] = []
        learning = self.receiving.clone()
        for _ in range(FIRST_STEPS):
            losses.append(self._step(trained, change, learning, rows))
            learning &= ~self.begun
            if len(losses) > WINDOW:
                spread = torch.stack(losses[-WINDOW:]).std(dim=0, correction=0)
                learning &= spread >= self.options.threshold
            if not learning.any():
                break
        self.steps_taken = max(self.steps_taken, len(losses))
        self.begun |= self.receiving
        for name, value in trained.items():
            mixed = value + self.mixture[name] * change[name]
            self.parameters[name].copy_(for_clients(mixed, value, self.receiving))

    def _step(self, trained: Parameters, change: Parameters, learning: Tensor, rows: Tensor | None) -> Tensor:
        """Take a step on W for the clients still `learning`, (K,) bool; return the losses before it, (K,)."""
        self.inputs.renew_gradients()
        lower = {name: value.detach() for name, value in self.parameters.items() if name not in trained}
        mixed = {
            name: (value + self.mixture[name] * change[name]).requires_grad_()
            for name, value in trained.items()
        }
        with torch.enable_grad():
            logits = self.backbone.forward_to_read(self.inputs, lower | mixed)
            losses = self._losses(self.setting.architecture.outputs_of(logits), rows)
            gradients = torch.autograd.grad(losses.sum(), list(mixed.values()), allow_unused=True)
        for (name, weight), gradient in zip(self.mixture.items(), gradients, strict=True):
            if gradient is not None:
                rate = column(self.options.rate * learning, weight)
                weight.sub_(rate * gradient * change[name]).clamp_(0, 1)
        return losses.detach()

    def _losses(self, output: Tensor, rows: Tensor | None) -> Tensor:
        """Each client's mean loss over the drawn training nodes `rows` (None: over all its items), (K,)."""
        task = self.mixing_task
        if rows is None or not isinstance(task, NodeClassification):
            return task.client_loss(output)
        client = task.client[rows]
        losses = functional.cross_entropy(output[rows], task.labels[rows], reduction="none")
        count = torch.bincount(client, minlength=task.clients).clamp(min=1)
        return losses.new_zeros(task.clients).index_add(0, client, losses) / count

    def _draw(self) -> Tensor | None:
        """Rows of the drawn training nodes, ⌊share · m⌋ of a client's m, at least one; None: all items."""
        task = self.task
        if self.options.share == 1 or not isinstance(task, NodeClassification):
            return None
        count = task.train_count
        client = task.client[task.train].cpu()
        order = (client + torch.rand(len(client), generator=self.generator, dtype=torch.float64)).argsort()
        drawn = order[ranks(count) < (count * self.options.share).long().clamp(min=1)[client[order]]]
        return task.train[drawn.sort().values.to(self.device)]

    def finish(self) -> None:
        entries = torch.cat([value.flatten() for value in self.mixture.values()])
        self.extras["mixture_mean"] = float(entries.mean())
        self.extras["steps_taken"] = self.steps_taken
