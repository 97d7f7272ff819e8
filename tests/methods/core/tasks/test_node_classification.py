from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional

from datasets.errors import UserError
from methods.core.setting import make_setting
from methods.core.tasks import NodeClassification
from methods.stacked import kernels
from tests.methods.federations import small_federation


@pytest.mark.parametrize("compiled", [True, False])
def test_scores_are_counted_by_client(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(kernels, "compiled", lambda h: False)
    federation = small_federation()
    task = NodeClassification(federation)
    output = torch.randn(federation.nodes, federation.classes, generator=torch.Generator().manual_seed(0))
    found = task.evaluate(output)
    right = output.argmax(dim=1) == federation.labels
    for client in range(federation.clients):
        mine = federation.client == client
        assert float(found.test.value[client]) == pytest.approx(
            float(right[mine & federation.test].double().mean())
        )
        assert float(found.validation.value[client]) == pytest.approx(
            float(right[mine & federation.validation].double().mean())
        )
    held = federation.validation
    loss = functional.cross_entropy(output[held], federation.labels[held])
    assert found.validation_loss == pytest.approx(float(loss), rel=1e-5)


def test_it_takes_no_options() -> None:
    with pytest.raises(UserError, match="takes no options"):
        make_setting(small_federation(), task="node-classification[width=3]")
