from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional

from fedsub.datasets.errors import UserError
from fedsub.methods.tasks import NodeClassification
from tests.methods.federations import community_federation, small_federation


def test_minority_nodes_are_those_outside_the_commonest_class_in_training() -> None:
    federation = community_federation(clients=5)
    task = NodeClassification(federation)
    output = torch.randn(federation.nodes, federation.classes, generator=torch.Generator().manual_seed(0))
    found = task.evaluate(output).test["minority_accuracy"]
    right, commonest = output.argmax(dim=1) == federation.labels, set()
    for client in range(federation.clients):
        mine = federation.client == client
        held = federation.labels[mine & federation.train].bincount()
        few = mine & federation.test & (federation.labels != held.argmax())
        assert float(found.value[client]) == pytest.approx(float(right[few].double().mean()))
        assert found.weight[client] == few.sum()
        commonest.add(int(held.argmax()))
    assert len(commonest) > 1


def test_a_clients_loss_and_class_means_are_over_its_own_training_nodes() -> None:
    federation = small_federation()
    # Client 0 trains on no node, client 1 on none of class 0.
    absent = (federation.client == 0) | ((federation.client == 1) & (federation.labels == 0))
    task = NodeClassification(replace(federation, train=federation.train & ~absent))
    output = torch.randn(federation.nodes, federation.classes, generator=torch.Generator().manual_seed(0))
    losses, means = task.client_loss(output), task.class_means(output[task.train])
    assert float(task.loss(output)) == pytest.approx(float(losses.sum()), rel=1e-5)
    for client in range(federation.clients):
        chosen = federation.train & ~absent & (federation.client == client)
        own = functional.cross_entropy(output[chosen], federation.labels[chosen]) if chosen.any() else 0
        assert float(losses[client]) == pytest.approx(float(own), rel=1e-5)
        for label in range(federation.classes):
            members = output[chosen & (federation.labels == label)]
            expected = members.mean(dim=0) if len(members) else torch.zeros(federation.classes)
            torch.testing.assert_close(means[client, label], expected)


@pytest.mark.parametrize(("rows", "columns"), [(0, -1), (0, 1), (-1, 0), (1, 0)])
def test_outputs_of_another_shape_are_refused(rows: int, columns: int) -> None:
    """The compiled passes would read and write out of bounds."""
    federation = small_federation(3)
    task = NodeClassification(federation)
    output = torch.zeros(federation.nodes + rows, federation.classes + columns)
    for read in (task.loss, task.client_loss, task.evaluate):
        with pytest.raises(
            UserError, match=f"have the shape {federation.nodes + rows} × {federation.classes + columns}"
        ):
            read(output)
