"""The stacked program equals a plain loop over clients."""

from typing import Any

import pytest
import torch

from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from tests.methods.federations import make_method, small_federation
from tests.methods.loops import train_by_loop
from tests.methods.oracle import client_parts, forward
from tests.methods.second_device import DEVICES, on_device

ROUNDS, EPOCHS = 5, 3
SCHEDULE = Schedule(rounds=ROUNDS, local_epochs=EPOCHS, learning_rate=0.01, weight_decay=1e-3)


BACKBONES = ("gcn", "graphsage", "mlp", "sgc")
CASES = [
    *((method, backbone, True, "torch", "cpu") for method in ("fedavg", "local") for backbone in BACKBONES),
    # Kernel, feature format and device are independent of the method: FedAvg is enough.
    *(("fedavg", "gcn", sparse, "dgl", "cpu") for sparse in (True, False)),
    *(("fedavg", backbone, False, "torch", "cpu") for backbone in BACKBONES),
    *(("fedavg", "gcn", sparse, "auto", device) for sparse in (True, False) for device in DEVICES),
]


@pytest.mark.parametrize(("method", "backbone", "sparse", "kernel", "device"), CASES)
def test_the_stacked_run_equals_the_loop_over_clients(method, backbone, sparse, kernel, device):
    federation = small_federation(clients=4, nodes=80, features=40, sparse=sparse)
    architecture = Architecture(backbone=backbone, hidden=(16, 8), dropout=0.0)
    with on_device(device) as place:
        given: tuple[Any, ...] = (method, {}, federation, architecture, SCHEDULE, 3)
        stacked = make_method(*given, kernel=kernel, device=place)
        stacked.build()
        start = {name: value[0].detach().cpu().clone() for name, value in stacked.parameters.items()}
        shared = [] if method == "local" else stacked.shared()
        weights = stacked.weights.cpu()

        fresh = make_method(*given, kernel=kernel, device=place)
        train(fresh)
        found = {name: value.detach().cpu() for name, value in fresh.parameters.items()}

    parts = client_parts(federation)
    models = train_by_loop(
        federation, start, lambda k, model: forward(parts[k], model, backbone), shared, weights, SCHEDULE
    )
    for name, value in found.items():
        expected = torch.stack([model[name].detach() for model in models])
        torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5)
    moved = max(float((found[name] - start[name]).abs().max()) for name in start)
    assert moved > 0.05


def test_central_scores_each_client_on_the_whole_graph():
    federation = small_federation(clients=3)
    architecture = Architecture(hidden=(8,), dropout=0.0)
    method = make_method("central", {}, federation, architecture, Schedule(rounds=2))
    outcome = train(method)
    assert method.federation.graph.num_edges() == federation.graph.num_edges() + federation.inter.num_edges()
    right = method.predict().argmax(1) == federation.labels
    accuracy = [right[federation.test & (federation.client == client)].float().mean() for client in range(3)]
    assert outcome.metrics["accuracy_last"] == pytest.approx(float(torch.stack(accuracy).mean()))
    assert outcome.bytes == {"up": 0.0, "down": 0.0, "once": 0.0}
