"""The public codes, played by checkouts of our own, are given our clients and run as the cell says."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsub.benchmark.studies.authors.fedpub_worker import reported
from fedsub.benchmark.studies.clients import write_clients
from fedsub.benchmark.studies.worker import Worker
from fedsub.datasets.federation import Federation
from fedsub.methods.core import registry
from tests.benchmark.fakes import make_cell
from tests.methods.federations import small_federation

CHECKOUTS = Path(__file__).parent / "checkouts"
ROUNDS = 3


@pytest.fixture(scope="module")
def federation() -> Federation:
    return small_federation(clients=4)


def answer(federation: Federation, folder: Path, code: str, method: str, **changed: Any) -> dict[str, Any]:
    """Return the answer of a code's worker for a cell with this method."""
    cell = make_cell(clients=federation.clients, method=method, seed=5, rounds=ROUNDS, **changed)
    counts = write_clients(federation, folder / "clients.npz")
    options = asdict(registry.make_options(method, dict(cell.options)))
    task = {
        "cell": {**cell.to_dict(), "options": options},
        "seed": cell.seed,
        "checkout": str(CHECKOUTS / code),
        "exchange": str(folder / "clients.npz"),
        "folder": str(folder),
        "graphlets": "no-such-file",
        "memory": 10**11,
    }
    module = f"fedsub.benchmark.studies.authors.{code}_worker"
    with Worker(code, sys.executable, module, 120) as worker:
        found = worker.ask(task)
    assert found["counts"] == counts
    assert found["seconds"] > 0
    return found


def shares(federation: Federation, guesses: Iterable[int], role: str) -> list[float]:
    """Return for each client the share of its nodes with the role that have the guessed class."""
    mask = getattr(federation, role)
    return [
        float((federation.labels[mask & (federation.client == number)] == guess).double().mean())
        for number, guess in enumerate(guesses)
    ]


def commonest(federation: Federation, alone: bool) -> list[int]:
    """Return each client's most frequent training class, its own (`alone`) or that of the clients' mean."""
    counts = torch.zeros(federation.clients, federation.classes)
    rows = federation.train
    place = (federation.client[rows], federation.labels[rows])
    counts.index_put_(place, torch.ones(int(rows.sum())), accumulate=True)
    if alone:
        return counts.argmax(dim=1).tolist()
    return [int(counts.sum(dim=0).argmax())] * federation.clients


def pooled(federation: Federation, guesses: Iterable[int]) -> float:
    """The share of all test nodes whose client guesses their class."""
    guess = np.repeat(list(guesses), federation.sizes)
    return float((federation.labels.numpy() == guess)[federation.test.numpy()].mean())


@pytest.mark.parametrize("method", ["fedavg", "fedpub"])
def test_fedpubs_round_of_the_best_mean_validation_is_reported(
    federation: Federation, tmp_path: Path, method: str
) -> None:
    """Round one predicts class 0, later rounds the most frequent class: of all clients with FedAvg, of each
    client with the fake FED-PUB, whose server returns each client's own model."""
    found = answer(federation, tmp_path, "fedpub", method)
    choices = [[0] * federation.clients, commonest(federation, alone=method != "fedavg")]
    validation = [np.mean(shares(federation, guesses, "validation")) for guesses in choices]
    test = [np.mean(shares(federation, guesses, "test")) for guesses in choices]
    assert found["metrics"]["accuracy"] == pytest.approx(100 * test[int(np.argmax(validation))])
    versions = {name: version(name) for name in ("torch", "torch-geometric", "numpy")}
    assert found["versions"].items() >= versions.items()


def test_fedpubs_best_round_is_the_first_to_a_hundredth_of_a_percent() -> None:
    """As in the evaluations/visualizer.py, means over clients are rounded before the best is taken."""
    validation = np.array([[0.5, 0.6, 0.60004], [0.5, 0.8, 0.8]])
    test = np.array([[0.1, 0.2, 0.3], [0.1, 0.4, 0.5]])
    assert reported(validation, test) == pytest.approx(30.0)
    assert reported(validation + np.array([0, 0, 0.0002]), test) == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("method", "options", "called"),
    [
        ("fedsage-true", {}, "'FL': True, 'mended': True, 'data_type': 'feature', 'fmodel_type': 'GNN'"),
        (
            "fedstruct",
            {"features": "deg"},
            "'smodel_type': 'DGCN', 'fmodel_type': 'DGCN', 'structure_type': 'degree'",
        ),
    ],
)
def test_fedstruct_is_called_as_its_simulations_call_it(
    federation: Federation, tmp_path: Path, method: str, options: dict[str, Any], called: str
) -> None:
    settings: dict[str, Any] = {"learning_rate": 0.004, "dropout": 0.25, "options": options}
    found = answer(federation, tmp_path, "fedstruct", method, **settings)
    guesses = commonest(federation, alone=False)
    assert found["metrics"]["accuracy"] == pytest.approx(100 * pooled(federation, guesses))
    text = (tmp_path / "called.txt").read_text()
    assert called in text
    for setting in ("'seed': 5", "'lr': 0.004", "'dropout': 0.25", f"'iterations': {ROUNDS}"):
        assert setting in text
    if method == "fedstruct":
        assert "'DGCN_structure_layers_size': [256]" in text
    # Edges between clients are written too.
    assert text.endswith(f" {2 * federation.inter.num_edges()}")
    # The seconds exclude set-up, which takes an hour by the fake code's clock.
    assert found["seconds"] < 3600


def test_the_whole_graph_is_central(federation: Federation, tmp_path: Path) -> None:
    found = answer(federation, tmp_path, "fedstruct", "central")
    guess = commonest(federation, alone=False)[0]
    expected = (federation.labels[federation.test] == guess).double().mean()
    assert found["metrics"]["accuracy"] == pytest.approx(100 * float(expected))
    assert found["seconds"] < 3600
