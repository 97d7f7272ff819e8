"""AdaFGL as a loop over clients, from Li et al., ICDE 2024 (arXiv 2401.11750), and its public code.

Step 1 is FedAvg, weighted by nodes; its last model, the extractor, gives P = softmax(logits). Step 2
exchanges nothing. HCS_k is the accuracy, on one half of T_k, of ten steps of label propagation (as FedGTA's,
α = 0.5) from the other half; every other node starts at 1/C. With R the cosines of the rows of softmax(P),
its diagonal 0,

    Ā = α A + (1 − α) 1[R > 0.999],    X̃ = [X, ÃX, Ã²X, Ã³X],    Ã = D̃^−½ (Ā + I) D̃^−½.

Homophilous part: an MLP of two layers on X̃ with logits z; loss CE(z) + MSE(z, P); it says
½ (softmax z + softmax P). Heterophilous part: MLPs of three layers on X, on X̃, and Z on X̃ whose messages
pass by

    S = β 1[R > 0.999] + (1 − β) cos(softmax Z), diagonal 0;  μ, M its mean and largest entry;
    S' = (S − μ) / (M − μ) where S > μ, else −S / μ;  plus I;
    out = ½ (softmax(φ(S') Z) − softmax(φ(−S') Z) + Z),    φ a PReLU;

loss: the sum of the three cross-entropies; it says the mean of the three softmaxes. The public code lets the
homophilous part answer where HCS ≥ 0.9, else the other; OpenFGL mixes them by HCS and 1 − HCS.

The paper's clients are always there. Here step 1 is as FedAvg with those who are, the extractor is the model
that a client holds when step 2 begins, and in a round of step 2 those who are absent take no steps, and
stragglers all of them (`methods.adafgl`).
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, TOLERANCE, Pair, divided, symmetric
from tests.methods.second_derivation.rounds import SOME, fit, turn
from tests.methods.second_derivation.served import average, plain, play

CLIENTS, CLASSES, DECAY, RATE, ALPHA, BETA, HOPS = 4, 6, 5e-4, 0.2, 0.05, 0.2, 3
EPOCHS, STEPS = 40, 2
EVERYONE: dict[str, Any] = {"rounds": 4}
AWAY: dict[str, Any] = {**SOME, "rounds": 6}
"""Half of the rounds are the first step's."""
PARTS = {"homophilous": 2, "smoothed": 3, "messages": 3, "features": 3}
OWN = "personal."


def homophily(adjacency: Tensor, labels: Tensor, seeds: Tensor, asked: Tensor, classes: int) -> float:
    """HCS: accuracy on `asked` of label propagation from `seeds`, both (n,) bool."""
    start = torch.full((len(labels), classes), 1 / classes)
    start[seeds] = functional.one_hot(labels[seeds], classes).float()
    y = start.clone()
    for _ in range(10):
        y = 0.5 * symmetric(adjacency) @ y + 0.5 * start
        y[seeds] += start[seeds]
    return float((y.argmax(dim=1) == labels)[asked].float().mean())


def cosines(rows: Tensor) -> Tensor:
    """Return the cosines of all pairs of rows, (n, n), with diagonal 0."""
    unit = functional.normalize(rows, dim=1)
    return (unit @ unit.T) * (1 - torch.eye(len(rows)))


def extended(adjacency: Tensor, x: Tensor, near: Tensor, alpha: float, hops: int) -> Tensor:
    """Return X̃; `near` is 1[R > 0.999]."""
    smooth = symmetric(alpha * adjacency + (1 - alpha) * near)
    found = [x]
    for _ in range(hops):
        found.append(smooth @ found[-1])
    return torch.cat(found, dim=1)


def first_layer(side_by_side: Tensor, net: str) -> Tensor:
    """Return the weight of one network's first layer; the stacked program keeps them side by side."""
    reads_powers = ("homophilous", "smoothed", "messages")
    columns = side_by_side.split(side_by_side.shape[1] // (len(reads_powers) * (HOPS + 1) + 1), dim=1)
    if net == "features":
        return columns[-1]
    return torch.cat(columns[reads_powers.index(net) : -1 : len(reads_powers)])


def perceptron(x: Tensor, w: Parameters, name: str) -> Tensor:
    """Linear layers with PReLU between; the two heads without messages share one slope."""
    slope = w[f"{OWN}slope.{name if name in ('homophilous', 'messages') else 'plain'}"]
    for layer in range(PARTS[name]):
        if layer > 0:
            x = functional.prelu(x, slope)
        weight = w[f"{OWN}{name}.{layer}.weight"] if layer else first_layer(w[f"{OWN}first.weight"], name)
        x = x @ weight + w[f"{OWN}{name}.{layer}.bias"]
    return x


def messages(z: Tensor, near: Tensor, beta: float, slope: Tensor) -> Tensor:
    s = beta * near + (1 - beta) * cosines(torch.softmax(z, dim=1))
    mean, largest = s.mean(), s.max()
    s = torch.where(s > mean, (s - mean) / (largest - mean), -s / mean) + torch.eye(len(s))
    towards = torch.softmax(functional.prelu(s, slope) @ z, dim=1)
    away = torch.softmax(functional.prelu(-s, slope) @ z, dim=1)
    return (towards - away + z) / 2


class Alone:
    """One client in the second step, computed in float64: if S − μ is small relative to μ, the rounding of a
    float32 mean can move the slope of φ by more than the tolerance in one round."""

    def __init__(self, part: Part, extracted: Tensor) -> None:
        self.part, self.prior = part, torch.softmax(extracted.double(), dim=1)
        self.features = part["features"].double()
        self.near = (cosines(torch.softmax(self.prior, dim=1)) > 0.999).double()
        self.smoothed = extended(part["adjacency"], self.features, self.near, ALPHA, HOPS)

    def heads(self, w: Parameters) -> dict[str, Tensor]:
        w = {name: value.double() for name, value in w.items()}
        found = {name: perceptron(self.smoothed, w, name) for name in ("homophilous", "smoothed", "messages")}
        found["messages"] = messages(found["messages"], self.near, BETA, w[f"{OWN}slope.messages"])
        return found | {"features": perceptron(self.features, w, "features")}

    def loss(self, heads: dict[str, Tensor], share: float) -> Tensor:
        """Return the loss of the heads with a positive share in the prediction."""
        train = self.part["train"]
        each = {
            name: functional.cross_entropy(z[train], self.part["labels"][train]) for name, z in heads.items()
        }
        homophilous = each.pop("homophilous") + ((heads["homophilous"] - self.prior) ** 2).mean()
        return (share > 0) * homophilous + (share < 1) * sum(each.values())

    def objective(self, w: Parameters, share: float) -> Tensor:
        return self.loss(self.heads(w), share)

    def predicted(self, heads: dict[str, Tensor], share: float) -> Tensor:
        said = {name: torch.softmax(z, dim=1) for name, z in heads.items()}
        homophilous = (said.pop("homophilous") + torch.softmax(self.prior, dim=1)) / 2
        return share * homophilous + (1 - share) * sum(said.values()) / 3


@pytest.mark.parametrize("attendance", [EVERYONE, AWAY], ids=["everyone", "some"])
@pytest.mark.parametrize(
    ("backbone", "combine"),
    [("gcn", "mixture"), ("graphsage", "threshold"), ("mlp", "mixture"), ("sgc", "threshold")],
)
def test_rounds_agree(backbone: str, combine: str, attendance: dict[str, Any]) -> None:
    """Half of the rounds are FedAvg's; the threshold makes some clients homophilous and others not."""
    threshold, federated = 0.75, attendance["rounds"] // 2
    pair = Pair(
        divided(COMMUNITY, CLIENTS),
        "adafgl",
        {
            "federated": 0.5,
            "epochs": STEPS,
            "alpha": ALPHA,
            "beta": BETA,
            "hops": HOPS,
            "width": 10,
            "combine": combine,
            **({"threshold": threshold} if combine == "threshold" else {}),
        },
        backbone,
        local_epochs=EPOCHS,
        weight_decay=DECAY,
        weighting="nodes",
        optimiser="sgd",
        learning_rate=RATE,
        **attendance,
    )
    method, federation, parts, models = pair.method, pair.federation, pair.parts, pair.models
    sizes = torch.tensor([float(len(part["labels"])) for part in parts])

    play(pair, plain(pair, backbone), average, lambda name: not name.startswith(OWN), rounds=federated)
    sent = method.channel.total

    draws = torch.Generator()
    # Without a second step nothing is drawn after the start.
    first = type(method)(replace(method.options, federated=1.0), method.setting)
    first.build()
    draws.set_state(first.generator.get_state())
    order = torch.randperm(int(federation.train.sum()), generator=draws).tolist()
    everyone = federation.train.nonzero().flatten()
    first_node = (torch.cumsum(sizes, dim=0) - sizes).long()
    shares, alone = [], []
    for client, (part, model) in enumerate(zip(parts, models, strict=True)):
        mine = [
            int(everyone[i] - first_node[client]) for i in order if federation.client[everyone[i]] == client
        ]
        seeds, asked = torch.zeros(2, len(part["labels"]), dtype=torch.bool)
        seeds[mine[: len(mine) // 2]] = True
        asked[mine[len(mine) // 2 :]] = True
        shares.append(homophily(part["adjacency"], part["labels"], seeds, asked, CLASSES))
        alone.append(Alone(part, forward(part, model, backbone).detach()))
    used = [float(share >= threshold) for share in shares] if combine == "threshold" else shares
    assert len(set(used)) > 1

    begun: set[int] = set()
    for number in range(federated + 1, attendance["rounds"] + 1):
        present = turn(pair, number).present
        begun |= {*present}
        for k in present:
            fit(pair.optimisers[k], partial(alone[k].objective, models[k], used[k]), STEPS)
        stacked = pair.compare(number)
        # S' jumps where S = μ: both go on from one place, before rounding moves a pair of nodes across.
        for client, model in enumerate(models):
            for name, value in model.items():
                value.data.copy_(stacked[name][client])
    torch.testing.assert_close(method.homophily, torch.tensor(shares))
    assert method.extras["homophily"] == pytest.approx(sum(shares) / CLIENTS)
    with torch.no_grad():
        # A client that has not taken part in the second step has no other model than the extractor.
        said = [
            own.predicted(own.heads(m), share) if k in begun else own.prior
            for k, (own, m, share) in enumerate(zip(alone, models, used, strict=True))
        ]
    torch.testing.assert_close(method.predict().exp(), torch.cat(said).float(), atol=TOLERANCE, rtol=0)
    assert method.channel.total == sent
