"""FedLap and FedLap+ as a loop over clients, from summaries of Aliakbari et al., NeurIPS 2025, and the code.

With A the whole graph's adjacency matrix, D its degrees, A_k and D_k those of client k's own, D̃ = D + I, and
two networks f and g, LayerNorm, then linear maps with a ReLU between them, node v of client k has

    logits_v = [(D̃_k⁻¹ (A_k + I))^L f(X_k)]_v + g(s_v)    (1)

FedLap learns s_v, a row of S, and client k adds to its cross-entropy λ R_k, over its own nodes and all their
edges, those to other clients' nodes included:

    R_k = Σ_{v ∈ V_k} s_v · (d_v s_v − Σ_{u ∈ N(v)} s_u) / ‖S‖²    (2)

so that Σ_k R_k = tr(Sᵀ (D − A) S) / tr(SᵀS). FedLap+ learns W: s_v = ReLU(u_v W), the columns of U being
eigenvectors of a Laplacian to its r least eigenvalues Λ, and every client adds

    λ tr(Wᵀ Λ W) / tr(WᵀW)    (3)

The clients' gradients are averaged in every epoch, with weights p_k, and one step of Adam is taken. The R_k
are added up as they are; in the public code they too have weights p_k, and cross-entropy
takes softmax(logits) for logits (the setting's `outputs=probabilities`).

The Laplacian is I − D̃^−½ (A + I) D̃^−½, whose U is orthonormal, so that tr(WᵀΛW) is tr(SᵀLS) for S = UW; a
column is turned round where its product with a drawn vector is negative, and that of the eigenvalue 0 is
positive. In the public code, `basis=reference`, it is
L = I − D̃⁻¹ (A + I), and U comes of Arnoldi's iteration: q_1 = b / ‖b‖, and for k = 1 … m − 1

    v = L q_k,  for j = 1 … k: h_jk = q_j · v, v ← v − h_jk q_j,  h_{k+1,k} = ‖v‖,  q_{k+1} = v / ‖v‖    (4)

The last column of H stays zero, and H goes to a solver for symmetric matrices, which reads its lower half. In
a federation each client has its rows of q: for every k it receives the entries at its neighbours elsewhere,
and sends, and is sent back, one number for each inner product and for the norm.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import largest_component
from fedsub.datasets.registry import load
from fedsub.datasets.seeding import stream
from fedsub.methods.stacked.architecture import OUTPUTS
from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part, numbers
from tests.methods.second_derivation.common import COMMUNITY, TOLERANCE, Pair, divided, symmetric
from tests.methods.second_derivation.rounds import turn
from tests.methods.second_derivation.served import weights_of

CLIENTS, RANK = 4, 7
WIDTHS = {"feature_hidden": "9", "structure_hidden": "11", "structure_width": 10}
DEFAULTS = {"hops": 2, "smoothing": 10.0, **WIDTHS}


def perceptron(x: Tensor, model: Parameters, prefix: str = "") -> Tensor:
    """f without a prefix, g with `structure.`; (rows, C)."""
    gain, bias = model[f"{prefix}norm.gain"], model[f"{prefix}norm.bias"]
    spread = x.var(dim=1, unbiased=False, keepdim=True)
    x = (x - x.mean(dim=1, keepdim=True)) / torch.sqrt(spread + 1e-5) * gain + bias
    layers = sum(name.startswith(f"{prefix}layers.") for name in model) // 2
    for layer in range(layers):
        x = torch.relu(x @ model[f"{prefix}layers.{layer}.weight"] + model[f"{prefix}layers.{layer}.bias"])
    return x @ model[f"{prefix}head.weight"] + model[f"{prefix}head.bias"]


def random_walk(adjacency: Tensor) -> Tensor:
    """D̃⁻¹ (A + I)."""
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    return looped / looped.sum(dim=1, keepdim=True)


def oriented(basis: Tensor, drawn: Tensor) -> Tensor:
    """Columns turned round where their product with the drawn one is negative; both (n, r)."""
    return basis * torch.sign((basis * drawn).sum(dim=0))


def exact_basis(adjacency: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return Λ (r) and U (n, r), with the solver's signs."""
    values, vectors = torch.linalg.eigh(torch.eye(len(adjacency)) - symmetric(adjacency))
    return values[:rank], vectors[:, :rank]


def arnoldi_basis(adjacency: Tensor, start: Tensor, steps: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return Λ (r) and U (n, r) by equation (4), with the solver's signs."""
    laplacian = torch.eye(len(adjacency)).double() - random_walk(adjacency)
    columns = [start / start.norm()]
    h = torch.zeros(steps, steps).double()
    for k in range(1, steps):
        v = laplacian @ columns[-1]
        for j, column in enumerate(columns):
            h[j, k - 1] = column @ v
            v = v - h[j, k - 1] * column
        h[k, k - 1] = v.norm()
        columns.append(v / v.norm())
    values, vectors = torch.linalg.eigh(h, UPLO="L")
    return values[:rank], (torch.stack(columns, dim=1) @ vectors)[:, :rank]


class Loop:
    """The clients one by one beside the stacked method; they share one model."""

    def __init__(
        self,
        federation: Federation,
        name: str,
        options: dict[str, Any],
        outputs: str = "logits",
        **schedule: Any,
    ) -> None:
        self.federation, self.name, self.outputs = federation, name, outputs
        kind = {} if name == "fedlap" else {"rank": RANK, "steps": 40}
        self.options = {**DEFAULTS, **kind, **options}
        schedule = {"weight_decay": 1e-3, "learning_rate": 0.02, **schedule}
        self.pair = Pair(federation, name, self.options, outputs=outputs, **schedule)
        self.method, self.parts, self.optimiser = self.pair.method, self.pair.parts, self.pair.optimisers[0]
        self.model = self.pair.models[0]
        del self.pair.models[1:]
        self.nodes = [federation.origin[federation.client == k] for k in range(federation.clients)]
        self.whole = torch.from_numpy(federation.source.adjacency().toarray()).float()
        self.values, self.basis = torch.empty(0), torch.empty(0)
        self.sent = 0

    def draws(self) -> np.random.Generator:
        """Return the method's random stream for its eigenvectors, from its beginning."""
        return stream(self.method.setting.seed, "fedlap+ start of the iteration")

    def take_exact(self) -> None:
        """Set the exact eigenpairs of a connected graph; the first eigenvector is positive."""
        values, basis = exact_basis(self.whole.double(), RANK)
        drawn = torch.from_numpy(self.draws().standard_normal((len(self.whole), RANK - 1)))
        self.take(values, oriented(basis, torch.cat([torch.ones(len(drawn), 1), drawn], dim=1)))

    def take(self, values: Tensor, basis: Tensor) -> None:
        """Set Λ (r) and U (n, r); the rows of U are the whole graph's nodes."""
        self.values, self.basis = values.float(), basis.float()

    def structure(self, client: int) -> Tensor:
        """s_v of the client's nodes, (n_k, d_s)."""
        if self.name == "fedlap":
            return self.model["smooth"][self.nodes[client]]
        return torch.relu(self.basis[self.nodes[client]] @ self.model["smooth"])

    def logits(self, client: int) -> Tensor:
        """Equation (1), (n_k, C)."""
        part: Part = self.parts[client]
        own = perceptron(part["features"], self.model)
        for _ in range(self.options["hops"]):
            own = random_walk(part["adjacency"]) @ own
        return own + perceptron(self.structure(client), self.model, "structure.")

    def cross_entropy(self, client: int) -> Tensor:
        """Mean over the client's training nodes, ()."""
        part, output = self.parts[client], self.logits(client)
        if self.outputs == "probabilities":
            output = torch.softmax(output, dim=1)
        return functional.cross_entropy(output[part["train"]], part["labels"][part["train"]])

    def roughness(self, client: int) -> Tensor:
        """Equation (2) or (3), ()."""
        smooth = self.model["smooth"]
        if self.name == "fedlap+":
            return (self.values[:, None] * smooth**2).sum() / (smooth**2).sum()
        total = torch.zeros(())
        for v in self.nodes[client]:
            neighbours = self.whole[v].nonzero().flatten()
            total = total + smooth[v] @ (len(neighbours) * smooth[v] - smooth[neighbours].sum(dim=0))
        return total / (smooth**2).sum()

    def gradients(self, client: int, share: float) -> Parameters:
        entropy = torch.autograd.grad(self.cross_entropy(client), list(self.model.values()))
        rough = torch.autograd.grad(self.roughness(client), [self.model["smooth"]])[0]
        sent = {n: share * g for n, g in zip(self.model, entropy, strict=True)}
        weight = 1.0 if self.name == "fedlap" else share
        sent["smooth"] = sent["smooth"] + self.options["smoothing"] * weight * rough
        return sent

    def elsewhere(self, client: int) -> int:
        """Number of other clients' nodes that are neighbours of the client's nodes."""
        own = torch.zeros(len(self.whole), dtype=torch.bool)
        own[self.nodes[client]] = True
        return int((self.whole[own].any(dim=0) & ~own).sum())

    def message(self, client: int) -> int:
        """How many numbers the client sends, and also receives, in a round."""
        size = numbers(self.model)
        if self.name == "fedlap+":
            return size
        # Only the rows of S that (1) and (2) read. The denominator of (2) changes all rows by one number.
        rows, width = self.model["smooth"].shape
        read = len(self.nodes[client])
        if self.options["smoothing"]:
            return size - (rows - read - self.elsewhere(client)) * width + 1
        return size - (rows - read) * width

    def once(self) -> int:
        """Numbers exchanged before training, by equation (4)."""
        if self.name == "fedlap":
            return 0
        far = sum(self.elsewhere(k) for k in range(len(self.parts)))
        steps = max(self.options["rank"], min(self.options["steps"], len(self.whole)))
        # Every client can draw the first vector itself.
        return sum(far + 2 * len(self.parts) * (k + 1) for k in range(1, steps))

    def step(self, present: list[int]) -> None:
        gradients = [self.gradients(k, p) for k, p in weights_of(self.pair, present).items()]
        for name, value in self.model.items():
            value.grad = torch.stack([gradient[name] for gradient in gradients]).sum(dim=0)
        self.optimiser.step()
        # There is one model: who takes part is sent it as an epoch begins.
        self.sent += sum(self.message(k) for k in present)

    def play(self) -> None:
        """Run three rounds of both and check parameters, outputs and bytes."""
        for number in (1, 2, 3):
            present = turn(self.pair, number).present
            for _ in range(self.method.schedule.local_epochs):
                self.step(present)
            self.pair.compare(number)
            mine = torch.cat([self.logits(k) for k in range(len(self.parts))])
            assert float((self.method.logits(None) - mine).detach().abs().max()) < TOLERANCE
            self.pair.compare_bytes(self.sent, once=self.once())


@pytest.fixture(scope="module")
def federation() -> Federation:
    return divided(COMMUNITY, CLIENTS, "louvain")


@pytest.fixture(scope="module")
def connected() -> Federation:
    """A federation of a connected graph, which has only one zero eigenvalue."""
    return divided(largest_component(load(COMMUNITY)), CLIENTS, "louvain")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        *(
            ({}, {"outputs": outputs, "weighting": weighting})
            for outputs in OUTPUTS
            for weighting in ("training-nodes", "nodes")
        ),
        ({"structure_hidden": "12+11", "hops": 1}, {"local_epochs": 2}),
        ({"smoothing": 0.0, "hops": 0}, {"local_epochs": 2}),
        ({}, {"participation": 0.6}),
    ],
)
def test_fedlap_agrees(federation: Federation, options: dict[str, Any], settings: dict[str, Any]) -> None:
    Loop(federation, "fedlap", options, **settings).play()


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("weighting", ["training-nodes", "nodes"])
def test_fedlap_plus_agrees(connected: Federation, outputs: str, weighting: str) -> None:
    loop = Loop(connected, "fedlap+", {}, outputs=outputs, weighting=weighting)
    loop.take_exact()
    loop.play()


@pytest.mark.parametrize("steps", [5, 12, 30])
def test_fedlap_plus_agrees_on_the_basis_of_the_public_code(connected: Federation, steps: int) -> None:
    loop = Loop(connected, "fedlap+", {"basis": "reference", "steps": steps})
    # The code draws b for itself; this is how the method draws it, and after it the signs.
    draws, nodes = loop.draws(), len(loop.whole)
    start, signs = (torch.from_numpy(draws.standard_normal(size)) for size in (nodes, (nodes, RANK)))
    # It makes as many steps as it needs vectors, at least; the code has fewer vectors then.
    values, basis = arnoldi_basis(loop.whole.double(), start, max(steps, RANK), RANK)
    loop.take(values, oriented(basis, signs))
    loop.play()


def test_fedlap_plus_agrees_where_eigenvalues_are_equal(federation: Federation) -> None:
    """Several nodes have no neighbours: the eigenvectors to 0 are any basis of a space, here the method's."""
    loop = Loop(federation, "fedlap+", {})
    values, _ = exact_basis(loop.whole.double(), RANK)
    assert float(values[1]) < 1e-9
    taken = torch.empty(loop.method.eigenvectors.shape)
    taken[federation.origin] = loop.method.eigenvectors
    spread = symmetric(loop.whole) @ taken
    torch.testing.assert_close(taken - spread, taken * values.float(), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(taken.T @ taken, torch.eye(RANK), atol=TOLERANCE, rtol=0)
    loop.take(values, taken)
    loop.play()
