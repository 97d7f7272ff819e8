from __future__ import annotations

import pytest
import torch

from fedsub.benchmark.machine import check_device, describe_device
from fedsub.datasets.errors import UserError


@pytest.fixture
def _one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Played GPU")


def test_a_missing_gpu_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="leave --device out"):
        check_device("cuda", "auto")


@pytest.mark.usefixtures("_one_gpu")
def test_a_device_that_is_not_there_is_told() -> None:
    check_device("cuda:0", "torch")
    for device in ("tpu", "cuda:x", "meta"):
        with pytest.raises(UserError, match=f"unknown device '{device}': use cpu or cuda"):
            check_device(device, "auto")
    with pytest.raises(UserError, match="there is no cuda:1: this machine has 1"):
        check_device("cuda:1", "auto")


@pytest.mark.usefixtures("_one_gpu")
def test_a_run_says_what_carries_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_device("cuda", "auto") == "cuda: Played GPU; messages pass through torch's CSR kernels"
    monkeypatch.setattr("fedsub.methods.stacked.propagation.dgl_runs_on", lambda device: True)
    assert describe_device("cuda", "dgl").endswith("DGL's kernels")
