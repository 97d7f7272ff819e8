"""FedSpray as a loop over clients, from Fu et al., KDD 2024 (Section 4, Algorithm 1).

A client's graph network θ, whose predictions are ŷ, is its own. The server has the encoder ω and for each
class j a structure proxy s_j, in S. With e_i = g_e(x_i), one linear layer and ReLU, and linear g_p and g_q,

    p_i = softmax g_p(e_i + s_i)    (9),        q_i = softmax g_q(e_i)    (10).

Phase 1, with what was received and s_i = s_j for a labelled node of class j, q_i S for any other:

    L_G = mean over labelled i of CE(y_i, ŷ_i) + λ₁ mean over all i of KL(p_i ‖ ŷ_i)    (5–7)

trains θ for E epochs. Phase 2, with ŷ as it is now, trains ω and the labelled nodes' s_i for E epochs by

    L_F = mean over labelled i of CE(y_i, q_i) + λ₂ KL(ŷ_i ‖ p_i).    (11–13)

The client sends ω and, of each class, the mean s_i. The server averages ω by labelled nodes (14), and s_j
with weights a_j, the share of class j among a client's labelled nodes (15), which come in its first message.

The public code differs: the second mean of (7) runs over labelled nodes and those of which q is sure;
labelled nodes keep their s_i, 0.1 at the start, from round to round and use them in phase 1 as well; and g_q
begins phase 2 with the weights of g_p. It starts s_j at j / 100. The text has no start.

Nor does the text say what becomes of s_j where no client has a node of class j, which the public code
divides by zero: here and in `methods.fedspray` it stays. ω has θ's optimiser, its weight decay as well.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, mean, numbers, optimiser_of
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import FLOAT, TOLERANCE, Pair, adam, copied, created, gap, leaves
from tests.methods.second_derivation.rounds import Meter, overwrite, turn

CLIENTS, WIDTH = 5, 8
SOME_SURE = 0.25
"""A confidence threshold that only some nodes reach."""
SCHEDULE = {"rounds": 3, "local_epochs": 3, "weight_decay": 1e-3}


DEFAULTS: dict[str, Any] = {
    "lambda1": 5.0,
    "lambda2": 1.0,
    "confidence": 0.0,
    "targets": "aligned",
    "projector": "received",
    "proxies": True,
}


class Client:
    def __init__(
        self,
        part: Part,
        model: Parameters,
        encoder: Parameters,
        options: dict[str, Any],
        schedule: Any,
        backbone: str,
    ) -> None:
        self.part, self.model, self.encoder, self.backbone = part, model, encoder, backbone
        self.options = SimpleNamespace(**options)
        self.epochs = schedule.local_epochs
        self.train, self.labels = part["train"], part["labels"]
        self.proxies = torch.full((len(self.labels), WIDTH), 0.1 * self.options.proxies).requires_grad_()
        self.network_optimiser = optimiser_of(model, schedule)
        self.encoder_optimiser = optimiser_of(encoder, schedule)
        self.proxy_optimiser = adam({"proxies": self.proxies}, 0.02, 0.0)

    def round(self, class_proxies: Tensor) -> None:
        """Both phases; `class_proxies` (C, WIDTH) as received."""
        targets, counted = self.soft_targets(class_proxies)
        for _ in range(self.epochs):
            self.network_optimiser.zero_grad()
            said = self.said()
            loss = functional.cross_entropy(said[self.train], self.labels[self.train])
            loss = loss + self.options.lambda1 * divergence(targets, said)[counted].mean()
            loss.backward()
            self.network_optimiser.step()
        said = self.said().detach()
        if self.options.projector == "classifier":
            with torch.no_grad():
                for kind in ("weight", "bias"):
                    self.encoder[f"projector.{kind}"].copy_(self.encoder[f"classifier.{kind}"])
        for _ in range(self.epochs):
            self.encoder_optimiser.zero_grad()
            self.proxy_optimiser.zero_grad()
            guess, target = self.projected(), self.classified(self.proxies)
            loss = functional.cross_entropy(guess[self.train], self.labels[self.train])
            loss = loss + self.options.lambda2 * divergence(said, target)[self.train].mean()
            loss.backward()
            self.encoder_optimiser.step()
            if self.options.proxies:
                self.proxy_optimiser.step()

    def soft_targets(self, class_proxies: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of p, (n, C), and the nodes on which it is imitated, (n,) bool."""
        with torch.no_grad():
            share = torch.softmax(self.projected(), dim=1)
            for i in range(len(self.labels)):
                if not self.train[i]:
                    self.proxies[i] = sum(q * s for q, s in zip(share[i], class_proxies, strict=True))
                elif self.options.targets == "aligned":
                    self.proxies[i] = class_proxies[self.labels[i]]
            sure = share.max(dim=1).values > self.options.confidence
            return self.classified(self.proxies), self.train | sure

    def local_proxies(self, classes: int) -> Tensor:
        """Mean s_i of each class, zero without a labelled node; (C, WIDTH)."""
        rows = []
        for label in range(classes):
            mine = self.proxies[self.train & (self.labels == label)].detach()
            rows.append(mine.mean(dim=0) if len(mine) else torch.zeros(WIDTH))
        return torch.stack(rows)

    def said(self) -> Tensor:
        return forward(self.part, self.model, self.backbone)

    def embedded(self) -> Tensor:
        return functional.relu(linear(self.part["features"], self.encoder, "encoder"))

    def projected(self) -> Tensor:
        return linear(self.embedded(), self.encoder, "projector")

    def classified(self, proxies: Tensor) -> Tensor:
        return linear(self.embedded() + proxies, self.encoder, "classifier")


def linear(x: Tensor, weights: Parameters, name: str) -> Tensor:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def divergence(target: Tensor, said: Tensor) -> Tensor:
    """KL(softmax target ‖ softmax said) of each row."""
    first, second = torch.log_softmax(target, dim=1), torch.log_softmax(said, dim=1)
    return (first.exp() * (first - second)).sum(dim=1)


class Run:
    """The stacked method, and its clients one by one."""

    def __init__(
        self,
        federation: Federation,
        backbone: str = "gcn",
        schedule: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        options = {**DEFAULTS, **options}
        given = {"width": WIDTH, "proxy_learning_rate": 0.02, **options}
        self.pair = Pair(federation, "fedspray", given, backbone, **SCHEDULE | (schedule or {}))
        method, self.proxies = self.pair.method, options["proxies"]
        start, of = copied(method.encoder), method.schedule
        self.clients = [
            Client(part, model, leaves(start, k), options, of, backbone)
            for k, (part, model) in enumerate(zip(self.pair.parts, self.pair.models, strict=True))
        ]
        self.class_proxies = torch.stack(
            [torch.full((WIDTH,), 0.01 * j * self.proxies) for j in range(federation.classes)]
        )

    def play(self) -> None:
        """All rounds, twice; whatever is kept and the bytes must agree."""
        method, meter, heard = self.pair.method, Meter(self.pair), set()
        for number in range(1, method.schedule.rounds + 1):
            now = turn(self.pair, number)
            self.round(now.present, now.receiving)
            self.pair.compare(number)
            assert gap(method.encoder, [client.encoder for client in self.clients]) < TOLERANCE
            torch.testing.assert_close(method.class_proxies, self.class_proxies, atol=TOLERANCE, rtol=0)
            kept = torch.cat([client.proxies[client.train] for client in self.clients])
            torch.testing.assert_close(method.node_proxies, kept, atol=TOLERANCE, rtol=0)
            meter.count(now)
            heard |= {*now.present}
        # Class shares go up once from each client that takes part.
        method.channel.bytes_up -= FLOAT * len(heard) * len(self.class_proxies)
        meter.compare(numbers(self.clients[0].encoder) + self.proxies * self.class_proxies.numel())

    def round(self, here: list[int], next_here: list[int]) -> None:
        for client in here:
            self.clients[client].round(self.class_proxies)
        there = [self.clients[client] for client in here]
        with torch.no_grad():
            size = torch.tensor([float(client.train.sum()) for client in there])
            server = mean([client.encoder for client in there], size / size.sum())
            overwrite([client.encoder for client in self.clients], next_here, server)
            if self.proxies:
                classes = len(self.class_proxies)
                local = [client.local_proxies(classes) for client in there]
                for label in range(classes):
                    a = [float((c.labels[c.train] == label).sum()) / float(c.train.sum()) for c in there]
                    total = sum(w * proxies[label] for w, proxies in zip(a, local, strict=True))
                    if sum(a) > 0:
                        self.class_proxies[label] = total / sum(a)


@pytest.mark.parametrize(
    "given",
    [
        *({"backbone": backbone} for backbone in ("gcn", "sgc", "graphsage")),
        {"lambda1": 0.0},
        {"lambda1": 2.0, "lambda2": 0.3},
        *({"proxies": False, "targets": targets} for targets in ("aligned", "own")),
        *(
            {"targets": targets, "schedule": {"rounds": 6, "participation": 0.5}}
            for targets in ("aligned", "own")
        ),
    ],
)
def test_rounds_agree(federation: Federation, given: dict[str, Any]) -> None:
    Run(federation, **given).play()


@pytest.mark.parametrize("confidence", [0.0, SOME_SURE])
@pytest.mark.parametrize("projector", ["received", "classifier"])
@pytest.mark.parametrize("targets", ["aligned", "own"])
def test_rounds_agree_as_in_the_public_code(
    federation: Federation, targets: str, projector: str, confidence: float
) -> None:
    run = Run(federation, targets=targets, projector=projector, confidence=confidence, lambda1=1.0)
    run.play()
    left_out = sum(int((~c.soft_targets(run.class_proxies)[1]).sum()) for c in run.clients)
    unlabelled = sum(int((~c.train).sum()) for c in run.clients)
    assert (0 < left_out < unlabelled) == (confidence > 0)


def test_starts_are_the_public_codes(federation: Federation) -> None:
    """ω starts within ±1/√(outputs of the layer); θ starts in [0, 1] with `initialisation=uniform`."""
    method = created(federation, "fedspray", {"width": WIDTH, "initialisation": "uniform"})
    method.build()
    for name, value in vars(method)["encoder"].items():
        bound = (WIDTH if name.startswith("encoder") else federation.classes) ** -0.5
        assert 0.7 * bound < value.abs().max() <= bound
        assert value.min() < 0 < value.max()
    for value in method.parameters.values():
        assert 0 <= value.min() < 0.3
        assert 0.7 < value.max() <= 1
