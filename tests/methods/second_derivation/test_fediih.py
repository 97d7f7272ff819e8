"""FedIIH as a loop over clients, from a summary of Yu et al., AAAI 2025, and its public code.

A node's state has F factors of D numbers, x_f. With δ(x) = x / ‖x‖ for each factor by itself, a layer takes
x ← δ(x), u ← x and repeats

    π_tsf = softmax over f of ⟨x_sf, u_tf⟩,    u_tf ← δ(x_tf + Σ_{s ∈ N(t)} π_tsf x_sf)    (1)

The network is a linear map, L' of these layers and a linear head; a leaky ReLU follows all but the head. L'
is 1 up to L = 2, else L − 2. One further layer, or two beyond L = 2, gives the means m and, as it has no
weights, also the log variances v. Client k sends its model and μ_kf and s_kf, the means of m_f and v_f over
its nodes. The server compares normal distributions N_i = N(μ_if, exp s_if) without covariances:

    J_ij = ½ KL(N_i ‖ M) + ½ KL(N_j ‖ M),  M of averaged mean and averaged variance    (2)
    Ω_ij ∝ exp(10 (1 − J_ij / ln 2)),  Σ_j Ω_ij = 1    (3)

Client i receives, of what belongs to factor f, Σ_j Ω^f_ij; the head's bias is averaged evenly. Where the
bound below is in its loss, it also receives c_f = Σ_k μ_kf / (K + ¼), the mean of the prior of p_f in

    −ELBO = mean BCE(z zᵀ, A) + Σ_f [mean KL(N(m_f, exp v_f) ‖ N(p_f, ¼))
            + mean KL(N(p_f, ¼) ‖ N(c_f, ¼)) − mean log N(p_f; 0, 1)],   z = m + ε exp(v/2)    (4)

Every client learns p_f for itself. In the public code (4) changes no prediction, and its last term has the
other sign, which makes it no bound; `variational` times (4) is added to the cross-entropy.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.second_derivation.common import TOLERANCE, Pair
from tests.methods.second_derivation.rounds import overwrite, supervised, turn

CLIENTS, WIDTH, SCALE = 5, 8, 10.0
PRIOR_VARIANCE = 0.25


def split(states: Tensor, factors: int) -> list[Tensor]:
    return list(states.chunk(factors, dim=-1))


def unit(states: list[Tensor]) -> list[Tensor]:
    return [functional.normalize(x, dim=1) for x in states]


def layer(states: Tensor, adjacency: Tensor, factors: int, iterations: int) -> Tensor:
    """Equation (1); (n, F·D) from and to. Row t of the adjacency matrix has the edges into t."""
    x = unit(split(states, factors))
    u = x
    for _ in range(iterations):
        agreement = torch.stack([u_f @ x_f.T for u_f, x_f in zip(u, x, strict=True)])
        share = torch.softmax(agreement, dim=0) * adjacency
        u = unit([x_f + share_f @ x_f for x_f, share_f in zip(x, share, strict=True)])
    return torch.cat(u, dim=1)


def layers_of(layers: int) -> tuple[int, int]:
    return (1, 1) if layers <= 2 else (layers - 2, 2)


def pass_on(states: Tensor, part: Part, options: dict[str, Any], count: int) -> Tensor:
    """`count` layers, each followed by a leaky ReLU."""
    for _ in range(count):
        turned = layer(states, part["adjacency"], options["factors"], options["iterations"])
        states = functional.leaky_relu(turned, 0.01)
    return states


def hidden(part: Part, model: Parameters, options: dict[str, Any]) -> Tensor:
    first = functional.leaky_relu(part["features"] @ model["first.weight"] + model["first.bias"], 0.01)
    return pass_on(first, part, options, layers_of(options["layers"])[0])


def logits(part: Part, model: Parameters, options: dict[str, Any]) -> Tensor:
    return hidden(part, model, options) @ model["head.weight"] + model["head.bias"]


def means(part: Part, model: Parameters, options: dict[str, Any]) -> Tensor:
    """m, which is v as well, (n, F·D)."""
    return pass_on(hidden(part, model, options), part, options, layers_of(options["layers"])[1])


def divergence(mean: Tensor, log_variance: Tensor, other: Tensor, other_log_variance: Tensor) -> Tensor:
    """KL of diagonal Gaussians, dimension by dimension."""
    ratio = torch.exp(log_variance - other_log_variance)
    distance = (mean - other) ** 2 / torch.exp(other_log_variance)
    return 0.5 * (other_log_variance - log_variance + ratio + distance - 1)


def jensen_shannon(mean: Tensor, log_variance: Tensor, other: Tensor, other_log_variance: Tensor) -> Tensor:
    """J of equation (2), ()."""
    middle = (mean + other) / 2
    variance = (torch.exp(log_variance) + torch.exp(other_log_variance)) / 2
    to_middle = divergence(mean, log_variance, middle, variance.log()).sum()
    return (to_middle + divergence(other, other_log_variance, middle, variance.log()).sum()) / 2


def mixing(statistics: list[Tensor], factor: int, options: dict[str, Any]) -> Tensor:
    """Ω of equation (3) for one factor, a row and a column for each client's statistics (F·D)."""
    own = [split(s, options["factors"])[factor].double() for s in statistics]
    near = [[1 - jensen_shannon(i, i, j, j) / math.log(2) for j in own] for i in own]
    return torch.softmax(SCALE * torch.stack([torch.stack(row) for row in near]), dim=1)


def received(models: list[Parameters], shares: list[Tensor]) -> Parameters:
    """One client's next model; `shares` are its rows of every factor's Ω."""
    blocks: dict[str, list[Tensor]] = {"first.weight": [], "first.bias": [], "head.weight": []}
    for factor, row in enumerate(shares):
        own = slice(factor * WIDTH, (factor + 1) * WIDTH)
        for name, parts in blocks.items():
            rows = name == "head.weight"
            cut = [m[name].detach()[own] if rows else m[name].detach()[..., own] for m in models]
            parts.append(torch.stack([float(s) * c for s, c in zip(row, cut, strict=True)]).sum(dim=0))
    mixed = {name: torch.cat(p, dim=0 if name == "head.weight" else -1) for name, p in blocks.items()}
    mixed["head.bias"] = torch.stack([m["head.bias"].detach() for m in models]).mean(dim=0)
    return mixed


def negative_bound(
    part: Part, model: Parameters, center: Tensor, noise: Tensor, options: dict[str, Any]
) -> Tensor:
    """Equation (4), (); `center` is (F, D), `noise` (n, F·D)."""
    m = means(part, model, options)
    z = m + noise * torch.exp(m / 2)
    bound = functional.binary_cross_entropy_with_logits(z @ z.T, part["adjacency"])
    quarter = torch.full((WIDTH,), math.log(PRIOR_VARIANCE))
    for own, prior, common in zip(split(m, options["factors"]), model["prior"], center, strict=True):
        bound = bound + divergence(own, own, prior, quarter).mean()
        bound = bound + divergence(prior, quarter, common, quarter).mean()
        bound = bound - (-0.5 * (math.log(2 * math.pi) + prior**2)).mean()
    return bound


class Loop:
    """The clients one by one beside the stacked method; both share the noise and the initial priors."""

    def __init__(
        self, federation: Federation, options: dict[str, Any], backbone: str, **schedule: Any
    ) -> None:
        self.options = {"width": WIDTH, "iterations": 3, "scale": SCALE, "variational": 0.0, **options}
        self.pair = Pair(federation, "fediih", self.options, backbone, weight_decay=5e-4, **schedule)
        self.factors, self.strength = self.options["factors"], self.options["variational"]
        self.center = self.pair.method.center.clone() if self.strength else None
        self.last: dict[int, Parameters] = {}
        """The models mixed for each client when it was last present."""
        self.up = self.down = 0

    def objective(self, client: int, noise: Tensor) -> Tensor:
        """Return the cross-entropy plus the weighted negative bound (if its weight is positive), ()."""
        part, model = self.pair.parts[client], self.pair.models[client]
        loss = supervised(part, logits(part, model, self.options))
        if self.center is not None:
            own = noise[self.pair.federation.client == client]
            loss = loss + self.strength * negative_bound(part, model, self.center, own, self.options)
        return loss

    def train(self, present: list[int]) -> None:
        # The stacked method draws the noise of all clients' nodes at once, anew in every epoch.
        generator = torch.Generator()
        generator.set_state(self.pair.method.generator.get_state())
        shape = (len(self.pair.federation.labels), self.factors * WIDTH)
        for _ in range(self.pair.method.schedule.local_epochs):
            noise = torch.randn(shape, generator=generator) if self.strength else torch.empty(shape)
            for client in present:
                self.pair.optimisers[client].zero_grad()
                self.objective(client, noise).backward()
                self.pair.optimisers[client].step()

    @torch.no_grad()
    def exchange(self, present: list[int], receiving: list[int]) -> list[Tensor]:
        """Run the server's step and send to the receiving clients; return Ω of every factor."""
        models = [self.pair.models[i] for i in present]
        sent = [means(self.pair.parts[i], self.pair.models[i], self.options).mean(dim=0) for i in present]
        omega = [mixing(sent, factor, self.options) for factor in range(self.factors)]
        for row, client in enumerate(present):
            self.last[client] = received(models, [o[row] for o in omega])
        for client in receiving:
            # A client that was never present keeps its initial model; the public code sends the plain mean.
            overwrite(self.pair.models, [client], self.last.get(client, {}))
        if self.center is not None:
            total = torch.stack(sent).sum(dim=0)
            self.center = (total / (len(present) + 0.25)).reshape(self.factors, WIDTH)
        size = numbers(self.last[present[0]])
        self.up += len(present) * (size + 2 * self.factors * WIDTH)
        self.down += len(receiving) * (size + (self.factors * WIDTH if self.strength else 0))
        return omega

    def play(self, number: int) -> list[Tensor]:
        """Run a round of both and check models, predictions and bytes; return Ω of every factor."""
        now = turn(self.pair, number)
        self.train(now.present)
        omega = self.exchange(now.present, now.receiving)
        self.pair.compare(number)
        found = self.pair.method.logits(None).detach()
        mine = [logits(p, m, self.options) for p, m in zip(self.pair.parts, self.pair.models, strict=True)]
        assert float((found - torch.cat(mine)).detach().abs().max()) < TOLERANCE
        self.pair.compare_bytes(self.up, self.down)
        return omega


@pytest.mark.parametrize(("factors", "layers"), [(2, 1), (2, 2), (2, 3), (4, 5), (6, 4)])
@pytest.mark.parametrize("backbone", ["gcn", "mlp"])
def test_rounds_agree(federation: Federation, factors: int, layers: int, backbone: str) -> None:
    """The method has a network of its own, whatever the backbone."""
    loop = Loop(federation, {"factors": factors, "layers": layers}, backbone, local_epochs=2)
    for number in (1, 2, 3):
        for rows in loop.play(number):
            # The mixing is neither the mean nor the client's own model.
            assert 0.22 < float(rows.diagonal().min()) < float(rows.diagonal().max()) < 0.75


@pytest.mark.parametrize("factors", [2, 4])
@pytest.mark.parametrize("strength", [0.5, 2.0])
def test_rounds_with_the_bound_agree(federation: Federation, factors: int, strength: float) -> None:
    options = {"factors": factors, "layers": 4, "variational": strength}
    loop = Loop(federation, options, "gcn", local_epochs=2)
    for number in (1, 2, 3):
        loop.play(number)
        assert loop.center is not None
        torch.testing.assert_close(loop.pair.method.center, loop.center)


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_rounds_with_absent_clients_agree(federation: Federation, strength: float) -> None:
    options = {"factors": 2, "layers": 3, "variational": strength}
    loop = Loop(federation, options, "gcn", participation=0.6, optimiser="sgd", learning_rate=0.2)
    for number in range(1, 6):
        loop.play(number)
