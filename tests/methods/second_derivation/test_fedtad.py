"""FedTAD as a loop over clients, from Zhu et al., IJCAI 2024 (arXiv 2404.14061), and its public code.

Once, client k sends how far each class can be relied on there,

    CKR_kc = Σ_{v in T_k of class c} (1 + Σ_{u in N(v)} cos(f_v, f_u)) / (|N(v)| + 1),

which is divided by its sum over clients, for every class. In each round the server averages the models by
nodes or training nodes, and then repeats: noise z, labels y in equal numbers, a generator's nodes
x = G(z, y), each joined to its five nearest by cosine; a step on G that minimises

    Σ_k [λ₁ Σ_c CKR_kc CE_c(o_k, y) − Σ_c CKR_kc D_c(o, o_k) + λ₂ V]
    V = exp(−mean_ij (‖z_i − z_j‖² / |z|)(‖x_i − x_j‖₁ / d))

where o and o_k are what the global and the client's model say of the pseudo-graph; then steps on the global
model that minimise Σ_k Σ_c CKR_kc D_c(o, o_k), the graph held. D_c is the mean over class c of |o − o_k| in
the public code, of KL(softmax o_k ‖ softmax o) in the paper.

The paper's clients are always there. Here sums over clients are over those of the round, among whom CKR is
divided, and one that was absent comes back to the newest global model (`methods.fedtad`).
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from fedsub.methods.stacked.parameters import Parameters
from tests.methods.loops import Part
from tests.methods.oracle import forward
from tests.methods.second_derivation.common import COMMUNITY, Pair, adam, copied, divided, gap, leaves
from tests.methods.second_derivation.rounds import SOME, overwrite
from tests.methods.second_derivation.served import average, plain, play

CLIENTS, CLASSES, DECAY = 5, 6, 5e-4
NODES, NOISE, NEAREST, REPEATS, STEPS, SEMANTIC, DIVERSITY = 40, 8, 5, 2, 3, 0.7, 1.3
EVERYONE: dict[str, Any] = {"rounds": 2}
AWAY: dict[str, Any] = {**SOME, "optimiser": "sgd", "learning_rate": 0.1}
"""Plain gradient steps of clients: after four rounds Adam's would show rounding, as below."""


def reliability(part: Part, classes: int, f: Tensor) -> Tensor:
    """CKR of one client before it is divided, (C,)."""
    found = torch.zeros(classes)
    for v in part["train"].nonzero().flatten():
        around = part["adjacency"][v].nonzero().flatten()
        total = 1 + sum(functional.cosine_similarity(f[v], f[u], dim=0) for u in around)
        found[part["labels"][v]] += total / (len(around) + 1)
    return found


def labels_of(nodes: int, classes: int) -> Tensor:
    """Return labels with equal numbers of every class; the last class gets the remainder."""
    each = nodes // classes
    return torch.cat(
        [torch.arange(classes).repeat_interleave(each), torch.full((nodes - each * classes,), classes - 1)]
    )


def pseudo_graph(x: Tensor, nearest: int) -> Tensor:
    """Adjacency, no self-loops: u and v are joined if one is among the other's nearest (itself counted)."""
    unit = functional.normalize(x.detach(), dim=1)
    near = (unit @ unit.T).topk(nearest, dim=1).indices.tolist()
    adjacency = torch.zeros(len(x), len(x))
    for v, others in enumerate(near):
        for u in others:
            if u != v:
                adjacency[v, u] = adjacency[u, v] = 1
    return adjacency


def generate(w: dict[str, Tensor], z: Tensor, y: Tensor) -> Tensor:
    """G(z, y): an embedding of the label beside the noise, three tanh layers, a linear one."""
    h = torch.cat([w["embedding"][y], z], dim=1)
    for layer in range(3):
        h = torch.tanh(h @ w[f"layers.{layer}.weight"] + w[f"layers.{layer}.bias"])
    return h @ w["layers.3.weight"] + w["layers.3.bias"]


def by_class(per_node: Tensor, y: Tensor, ckr: Tensor) -> Tensor:
    """Σ_c CKR_c times the mean over the nodes of class c, ()."""
    return sum(
        (ckr[c] * per_node[y == c].mean() for c in range(len(ckr)) if bool((y == c).any())), torch.zeros(())
    )


def divergence(kind: str, server: Tensor, client: Tensor) -> Tensor:
    """D of every node, (n,); the client's side has no gradient."""
    client = client.detach()
    if kind == "l1":
        return (server - client).abs().mean(dim=1)
    p = torch.softmax(client, dim=1)
    return (p * (p.log() - torch.log_softmax(server, dim=1))).sum(dim=1)


def diversity(z: Tensor, x: Tensor) -> Tensor:
    """exp(−mean over all pairs of the product of the two distances), ()."""
    total = torch.zeros(())
    for i in range(len(z)):
        total = total + (((z[i] - z) ** 2).mean(dim=1) * (x[i] - x).abs().mean(dim=1)).sum()
    return torch.exp(-total / len(z) ** 2)


def returns(adjacency: Tensor) -> Tensor:
    """Chances that a walk from v is back after 1 to 5 steps, (n, 5)."""
    walk = adjacency / adjacency.sum(dim=0).clamp(min=1)
    return torch.stack([torch.linalg.matrix_power(walk, step).diagonal() for step in range(1, 6)], dim=1)


def reliabilities(parts: Sequence[Part], kind: str) -> Tensor:
    """CKR, (K, C), of every class divided among the clients."""
    found = []
    for part in parts:
        x = part["features"]
        if kind == "count":
            found.append(torch.bincount(part["labels"][part["train"]], minlength=CLASSES).float())
        else:
            f = torch.cat([x, returns(part["adjacency"])], dim=1) if kind == "walk" else x
            found.append(reliability(part, CLASSES, f))
    table = torch.stack(found)
    for c in range(CLASSES):
        if table[:, c].sum() > 0:
            table[:, c] = table[:, c] / table[:, c].sum()
    return table


def distil(
    server: Parameters,
    maker: Parameters,
    optimisers: tuple[torch.optim.Adam, torch.optim.Adam],
    models: Sequence[Parameters],
    ckr: Tensor,
    backbone: str,
    kind: str,
    draws: torch.Generator,
) -> None:
    """The server's steps of one round, on its model and on its generator."""
    y = labels_of(NODES, CLASSES)
    for _ in range(REPEATS):
        z = torch.randn((NODES, NOISE), generator=draws)
        x = generate(maker, z, y)
        alike = diversity(z, x)
        graph = {"features": x, "adjacency": pseudo_graph(x, NEAREST)}
        loss = torch.zeros(())
        for client, model in enumerate(models):
            said, ours = forward(graph, model, backbone), forward(graph, server, backbone)
            loss = loss + SEMANTIC * by_class(
                functional.cross_entropy(said, y, reduction="none"), y, ckr[client]
            )
            loss = loss - by_class(divergence(kind, ours, said), y, ckr[client])
            loss = loss + DIVERSITY * alike
        optimisers[0].zero_grad()
        loss.backward()
        optimisers[0].step()
        x = generate(maker, z, y).detach()
        graph = {"features": x, "adjacency": pseudo_graph(x, NEAREST)}
        for _ in range(STEPS):
            ours = forward(graph, server, backbone)
            loss = torch.zeros(())
            for client, model in enumerate(models):
                loss = loss + by_class(
                    divergence(kind, ours, forward(graph, model, backbone)), y, ckr[client]
                )
            optimisers[1].zero_grad()
            loss.backward()
            optimisers[1].step()


@pytest.mark.parametrize("attendance", [EVERYONE, AWAY], ids=["everyone", "some"])
@pytest.mark.parametrize(
    ("backbone", "kind", "divergent"),
    [
        ("gcn", "walk", "kl"),
        ("gcn", "count", "l1"),
        ("graphsage", "walk", "kl"),
        ("mlp", "count", "kl"),
        ("sgc", "walk", "l1"),
    ],
)
def test_rounds_agree(backbone: str, kind: str, divergent: str, attendance: dict[str, Any]) -> None:
    options = {
        "reliability": kind,
        "divergence": divergent,
        "semantic": SEMANTIC,
        "diversity": DIVERSITY,
        "server_rounds": REPEATS,
        "model_steps": STEPS,
        "nodes": NODES,
        "noise": NOISE,
        "neighbours": NEAREST,
    }
    federation = divided(COMMUNITY, CLIENTS)
    pair = Pair(
        federation,
        "fedtad",
        options,
        backbone,
        local_epochs=3,
        weight_decay=DECAY,
        weighting="nodes",
        **attendance,
    )
    method, server = pair.method, leaves(pair.start, 0)
    maker = {name: value.detach().clone().requires_grad_() for name, value in method.maker.items()}
    optimisers = (adam(maker, 1e-3, DECAY), adam(server, 1e-3, DECAY))
    draws = torch.Generator()
    draws.set_state(method.generator.get_state())

    def update(received: Parameters, sent: dict[int, Parameters], weights: dict[int, float]) -> Parameters:
        overwrite([server], [0], average(received, sent, weights))
        ckr = reliabilities([pair.parts[k] for k in sent], kind)
        distil(server, maker, optimisers, list(sent.values()), ckr, backbone, divergent, draws)
        return copied(server)

    play(pair, plain(pair, backbone), update, once=CLIENTS * CLASSES)
    # Adam divides by a gradient's size, so that rounding shows where the gradient all but vanishes.
    assert gap({name: value[None] for name, value in method.maker.items()}, [maker]) < 1e-4
