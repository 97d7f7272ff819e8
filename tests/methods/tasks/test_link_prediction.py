"""Loss and sampler of link prediction; every method learns links, and only real ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedsub.datasets.federation import Federation
from fedsub.datasets.graph import build_dataset
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.training import train
from fedsub.methods.tasks import LinkPrediction
from tests.datasets.test_links import links_of, planted
from tests.methods.federations import divided, make_method, small_federation

METHODS = sorted(name for name in registry.names() if "link-prediction" in registry.describe(name).tasks)
SCHEDULE = Schedule(rounds=20, learning_rate=0.05)


def created(
    name: str, federation: Federation, schedule: Schedule, backbone: str = "sgc", options: str = ""
) -> Any:
    network = Architecture(backbone=backbone, hidden=(16, 16), dropout=0.0)
    return make_method(name, {}, federation, network, schedule, seed=3, task=f"link-prediction{options}")


def test_pairs_everywhere_have_one_auc():
    federation = planted()
    links = links_of(federation, pairs="everywhere")
    task = LinkPrediction(links)
    output = torch.randn(federation.nodes, 8, generator=torch.Generator().manual_seed(0))
    report = task.evaluate(output).test["roc_auc"]
    ends = links.test.ends
    scores = (output[ends[0]] * output[ends[1]]).sum(dim=1)
    assert report.value[0] == pytest.approx(roc_auc_score(links.test.joined, scores))
    assert report.value[1:].isnan().all()
    assert report.weight.tolist() == [ends.shape[1], 0, 0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_links(name: str) -> None:
    backbone = next(each for each in ("gcn", "graphsage") if each in registry.describe(name).backbones)
    schedule = SCHEDULE
    if name in ("feddc", "feddyn"):
        # Their corrections are of plain gradient steps (see `methods.feddc`).
        schedule = Schedule(rounds=20, local_epochs=3, learning_rate=0.2, optimiser="sgd")
    still = replace(schedule, rounds=1, learning_rate=1e-12)
    trained, untrained = (
        train(created(name, planted(), each, backbone, "[width=10]")).metrics["roc_auc_last"]
        for each in (schedule, still)
    )
    # FedIIH's network ranks these links well before it has learnt anything.
    assert trained > min(untrained + 0.05, 0.9)
    assert trained > 0.75


def test_nothing_is_learnt_where_links_are_chance() -> None:
    """Edges and features are random: an AUC above 1/2 would show a leak."""
    found = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        source, target = np.nonzero(np.triu(generator.random((150, 150)) < 0.06, 1))
        features = generator.normal(size=(150, 16)).astype(np.float32)
        dataset = build_dataset("chance", source, target, features, np.arange(150) % 4)
        schedule = Schedule(rounds=60, learning_rate=0.02)
        method = created("local", divided(dataset, 3, "random", seed), schedule)
        found.append(train(method).metrics["roc_auc_last"])
    assert np.mean(found) < 0.54


def test_clients_without_edges_have_no_score() -> None:
    federation = small_federation(clients=12, nodes=60)
    method = created("fedavg", federation, SCHEDULE, options="[test=0.4]")
    assert 0 < len(method.task.test.client.unique()) < 12
    outcome = train(method)
    assert 0 <= outcome.metrics["roc_auc"] <= 1
