"""Off the CPU: every method with its tensors on another device gives what it gives on the CPU.

The other device is CUDA where there is one, and always the stand-in of `tests.methods.second_device`,
which refuses operands from two devices as CUDA does.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.training import Outcome, train
from fedsub.methods.stacked.propagation import check_kernel
from tests.methods.federations import make_method, small_federation
from tests.methods.second_device import DEVICES, DeviceMismatchError, on_device, second_device
from tests.methods.variants import SHORT, choices

NEEDS: dict[tuple[str, str], dict[str, Any]] = {("fedstruct", "private"): {"version": "b", "features": "deg"}}
"""(method, option) → options that this option requires."""


def variants() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Every method as it is, and with every choice of every option; FedIIH with its bound; links."""
    for name in registry.names():
        yield name, {}, "node-classification"
        for option, value in choices(name):
            yield name, {option: value, **NEEDS.get((name, option), {})}, "node-classification"
    yield "fediih", {"variational": 1.0}, "node-classification"
    # The task is independent of the method: three methods that train on pairs in different ways.
    for name in ("fedavg", "central", "fedgcn"):
        yield name, {}, "link-prediction"


def trained(name: str, options: dict[str, Any], task: str, device: str) -> tuple[FederatedMethod, Outcome]:
    federation = small_federation(clients=4, nodes=80, features=120)
    backbones = registry.describe(name).backbones
    backbone = "gcn" if "gcn" in backbones else backbones[0]
    schedule = Schedule(rounds=2)
    if name in ("fediih", "fedsage+") or options.get("divergence") == "l1":
        # Adam turns rounding into steps where a gradient is as small as its ε: behind the routing, in
        # generated neighbours, and under an L1 divergence.
        schedule = dataclasses.replace(schedule, optimiser="sgd", learning_rate=0.1)
    network = Architecture(backbone=backbone, hidden=(16, 8), dropout=0.5)
    options = SHORT.get(name, {}) | options
    method = make_method(name, options, federation, network, schedule, seed=1, task=task, device=device)
    return method, train(method)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "options", "task"),
    [
        pytest.param(*each, id="-".join(map(str, (each[0], *each[1].values(), each[2]))))
        for each in variants()
    ],
)
def test_a_run_on_another_device_is_the_run_on_the_cpu(name, options, task, device):
    here, expected = trained(name, options, task, "cpu")
    with on_device(device) as place:
        there, outcome = trained(name, options, task, place)
        found = {key: value.detach().cpu() for key, value in there.parameters.items()}
    for key, value in here.parameters.items():
        # Adam makes steps of gradients that are rounding alone: MOON's part by 1.3e-3 on torch 2.2.1.
        torch.testing.assert_close(found[key], value.detach(), atol=2e-3, rtol=1e-3)
    assert there.parameters[key].device.type == place
    assert outcome.bytes == expected.bytes
    assert set(outcome.extras) == set(expected.extras)


@pytest.mark.parametrize("device", DEVICES)
def test_propagated_rows_of_nodes_without_neighbours_become_sparse(device):
    federation = small_federation(clients=20, sparse=False)
    with on_device(device) as place:
        method = make_method("fedavg", {}, federation, Architecture("graphsage", (8,)), device=place)
        method.build()
        assert method.inputs.propagated.dense is None


def test_the_stand_in_refuses_to_mix_devices_and_keeps_values():
    with second_device() as place:
        there = torch.tensor([1.0, 2.0], device=place)
        assert (there + torch.ones((), device="cpu")).cpu().tolist() == [2.0, 3.0]
        assert there[torch.tensor([1])].item() == 2.0
        with pytest.raises(DeviceMismatchError, match="from the CPU"):
            there + torch.ones(2)
        with pytest.raises(DeviceMismatchError, match="from the CPU"):
            torch.ones(2).mul_(there)
        with pytest.raises((RuntimeError, TypeError), match="numpy"):
            there.numpy()
        assert torch.zeros(2, device=place).copy_(torch.ones(2)).sum().item() == 2.0


def test_dgls_own_kernel_is_refused_where_dgl_cannot_run(monkeypatch):
    assert check_kernel("dgl", "cpu") == "dgl"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check_kernel("auto", "cuda") == "torch"
    with pytest.raises(UserError, match="no kernels for cuda: use --kernel torch"):
        check_kernel("dgl", "cuda")
