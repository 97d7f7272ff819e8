"""Every metric is scikit-learn's, in each client; a protocol names them, a task refuses another's."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.methods.core.base import Schedule
from fedsub.methods.core.schedule import LAST, RULES
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import check_selects, train
from fedsub.methods.stacked import kernels
from fedsub.methods.tasks import further_metrics, metrics
from fedsub.methods.tasks.metrics import Items, Score
from tests.methods.federations import community_federation, make_method, small_federation
from tests.methods.rounding import assert_agree

CLIENTS, CLASSES = 4, 3


def assert_auc(found: Score, client: np.ndarray, joined: np.ndarray, score: np.ndarray) -> None:
    """Check each client's area and weight; the others are (m,)."""
    for k in range(CLIENTS):
        own = client == k
        if joined[own].any() and not joined[own].all():
            assert float(found.value[k]) == pytest.approx(roc_auc_score(joined[own], score[own]))
            assert found.weight[k] == own.sum()
        else:
            assert torch.isnan(found.value[k])
            assert found.weight[k] == 0


@settings(max_examples=30)
@given(
    data=st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3), st.booleans()), min_size=1, max_size=60)
)
# The highest score of one client is the lowest of the next: no tie.
@example(data=[(0, 0, False), (0, 1, True), (1, 1, True), (1, 2, False)])
def test_auc_is_scikit_learns_in_each_client(data: list[tuple[int, int, bool]]) -> None:
    client, score, joined = (np.array(column) for column in zip(*data, strict=True))
    labels, rows = torch.from_numpy(joined).float(), torch.arange(len(data))
    items = Items(labels, torch.from_numpy(client), CLIENTS, rows)
    found = metrics.find("roc_auc")(torch.from_numpy(score).float(), items)
    assert_auc(found, client, joined, score)


@settings(max_examples=30)
@given(
    labels=st.lists(
        st.tuples(st.integers(0, CLIENTS - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=40
    ),
    seed=st.integers(0, 1000),
    compiled=st.booleans(),
)
def test_scores_of_nodes_are_scikit_learns_in_each_client(
    labels: list[tuple[int, int]], seed: int, compiled: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Whole numbers: where several outputs are the highest, the first one counts.
    output = torch.randn(len(labels) + 5, CLASSES, generator=generator).round()
    if not compiled:
        output = output.double()
        assert not kernels.compiled(output)
    rows = torch.randperm(len(output), generator=generator)[: len(labels)]
    client, label = (torch.tensor(column) for column in zip(*labels, strict=True))
    majority = torch.randint(CLASSES, (CLIENTS,), generator=generator)
    items = Items(label, client, CLIENTS, rows, majority)
    predicted = torch.from_numpy(output[rows].numpy().argmax(axis=1))
    found = {
        name: metrics.find(name)(output, items) for name in ("accuracy", "minority_accuracy", "macro_f1")
    }
    for k in range(CLIENTS):
        own = client == k
        few = own & (label != majority[k])
        for name, chosen, expected in (
            ("accuracy", own, accuracy_score),
            ("minority_accuracy", few, accuracy_score),
            ("macro_f1", own, lambda true, guess: f1_score(true, guess, average="macro")),
        ):
            assert found[name].weight[k] == chosen.sum()
            if chosen.any():
                assert float(found[name].value[k]) == pytest.approx(
                    expected(label[chosen], predicted[chosen])
                )
            else:
                assert torch.isnan(found[name].value[k])


@settings(max_examples=30)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=60),
    seed=st.integers(0, 1000),
)
def test_auc_of_nodes_is_scikit_learns_by_the_probability_of_class_1(
    nodes: list[tuple[int, int]], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(len(nodes) + 5, 2, generator=generator)
    rows = torch.randperm(len(output), generator=generator)[: len(nodes)]
    client, label = (torch.tensor(column) for column in zip(*nodes, strict=True))
    found = metrics.find("roc_auc")(output, Items(label, client, CLIENTS, rows))
    likely = output.double().softmax(dim=1)[rows, 1]
    assert_auc(found, client.numpy(), label.numpy(), likely.numpy())


def test_the_metric_that_selects_has_the_curve_and_stands_beside_the_tasks_own() -> None:
    federation = small_federation(classes=2, features=6)
    schedule = Schedule(rounds=8, learning_rate=0.1, selection_metric="roc_auc")
    outcome = train(make_method("fedavg", {}, federation, schedule=schedule))
    best = outcome.selected_round - 1
    assert best == int(np.argmax(outcome.curve["validation"]))
    assert outcome.metrics["roc_auc"] == outcome.curve["test"][best]
    plain = Schedule(rounds=8, learning_rate=0.1)
    by_accuracy = train(make_method("fedavg", {}, federation, schedule=plain, metrics=["roc_auc"]))
    assert_agree(outcome.curve["loss"], by_accuracy.curve["loss"])
    assert by_accuracy.curve["validation"] != outcome.curve["validation"]
    assert by_accuracy.curve["test"][best] == outcome.metrics["accuracy"]


def test_a_metric_of_one_average_keeps_it_where_it_selects() -> None:
    federation, outcomes = community_federation(clients=5, nodes=150), []
    for name in ("", "minority_accuracy"):
        schedule = Schedule(rounds=4, learning_rate=0.1, selection="last", selection_metric=name)
        outcomes.append(train(make_method("fedavg", {}, federation, schedule=schedule)))
    beside, first = outcomes
    pooled, mean = (first.metrics[f"minority_accuracy_{kind}"] for kind in ("pooled", "client_mean"))
    assert pooled != mean
    assert first.metrics["minority_accuracy"] == pooled == beside.metrics["minority_accuracy"]
    assert first.curve["test"][-1] == pooled
    assert first.metrics["accuracy"] == beside.metrics["accuracy"]


def test_two_metrics_of_one_name_are_refused(tmp_path: Path) -> None:
    own = tmp_path / "accuracy.py"
    own.write_text(
        "from fedsub.methods.tasks.metrics import Score, metric\n@metric()\ndef accuracy(output, items):\n"
        "    return Score(items.count / (items.count + 1), items.count)\n"
    )
    with pytest.raises(UserError, match="two metrics have one name: rename the file"):
        make_method("fedavg", schedule=Schedule(selection_metric=str(own)))
    make_method("fedavg", schedule=Schedule(selection_metric="accuracy"))


def test_a_metric_that_scores_nothing_selects_nothing() -> None:
    with pytest.raises(UserError, match="roc_auc scores no validation item of small"):
        train(make_method("fedavg", schedule=Schedule(selection_metric="roc_auc")))
    from_one = SimpleNamespace(name="wards", labels=torch.tensor([1, 2, 1]), classes=3)
    with pytest.raises(UserError, match=r"3 classes \(class 0 has no node: number labels from 0\)"):
        check_selects(Schedule(selection_metric="roc_auc"), cast(Dataset, from_one), items=1)
    with pytest.raises(UserError, match="roc_auc scores no test item of small"):
        train(make_method("fedavg", schedule=Schedule(selection_metric="roc_auc", selection=LAST)))
    named = make_method("fedavg", schedule=Schedule(rounds=2), metrics=["roc_auc"])
    assert np.isnan(train(named).metrics["roc_auc"])


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != LAST])
def test_no_round_is_chosen_by_validation_nodes_that_nobody_has(rule: str) -> None:
    federation = community_federation()
    federation = replace(federation, validation=torch.zeros_like(federation.validation))
    with pytest.raises(UserError, match=f"no validation items, and {rule} .*: set selection=last"):
        train(make_method("fedavg", {}, federation, schedule=Schedule(rounds=2, selection=rule)))
    for metric in ("", "minority_accuracy"):
        schedule = Schedule(rounds=2, selection=LAST, selection_metric=metric)
        outcome = train(make_method("fedavg", {}, federation, schedule=schedule))
        assert outcome.selected_round == 2
        assert not {name for name in outcome.metrics if name.endswith(("_validation", "_per_client"))}


def test_a_task_takes_its_own_metrics_alone() -> None:
    named = ["accuracy", "macro_f1", "roc_auc", "update_mb"]
    assert further_metrics("node-classification", named) == ("macro_f1", "roc_auc")
    assert further_metrics("link-prediction[width=5]", ["macro_f1", "roc_auc"]) == ()
    with pytest.raises(UserError, match="macro_f1 scores node-classification, not link-prediction"):
        make_setting(small_federation(), task="link-prediction", metrics=["macro_f1"])
    with pytest.raises(UserError, match="did you mean macro_f1"):
        make_setting(small_federation(), metrics=["macrof1"])


def test_a_name_that_a_plan_takes_for_no_file_runs_none(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise AssertionError")
    with pytest.raises(UserError, match="unknown metric"):
        metrics.find(f"{tmp_path}/evil.py/[x].py")
