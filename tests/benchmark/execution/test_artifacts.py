"""What is saved beside a record is what the method predicted with."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsub.benchmark.execution.artifacts import Saving, folder_of, remove
from fedsub.benchmark.execution.runner import run
from fedsub.datasets.graph import largest_component
from fedsub.datasets.options import Spec, parse_name
from fedsub.datasets.plugins import user_objects
from fedsub.datasets.registry import load
from fedsub.methods.apfl import APFL
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod, register
from fedsub.methods.ditto import Ditto
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.fedpub import FedPub
from fedsub.methods.stacked.activation import Dropout
from tests.benchmark.fakes import make_cell

GRAPH = "community[nodes=90,communities=3]"
CELL = make_cell(dataset=GRAPH, partition="random", clients=3, rounds=2, hidden=[12, 8])
SMALL = {"adafgl": "[width=8,epochs=2]", "fedsage+": "[generator_epochs=40]", "fedlap+": "[rank=20,steps=40]"}
FURTHER = (
    "adafgl[federated=1]",
    "fedaux[masks=false]",
    "fedcog[convolution=appnp,hidden=16]",
    "fedcog[convolution=gprgnn]",
    "fedcog[convolution=sgc]",
    "fedgcn[sent=features]",
    "fedgta[network=gamlp]",
)
NONE = {
    *("adafgl", "fedaux", "fedaux[masks=false]", "fedgta[network=gamlp]", "fedlap"),
    *("fedlap+", "fedlit", "fedstar", "fedstruct"),
}
PREDICTING: dict[type, Callable[..., dict[str, Tensor]]] = {
    APFL: lambda method: method.predicting(),
    Ditto: lambda method: method.predicting(),
    FedPub: lambda method: method.pruning(method.parameters).weights,
}
"""Methods that predict with other parameters than their own → those parameters."""


@dataclass(frozen=True)
class Keeping(Saving):
    """Saving that also keeps the method."""

    methods: list[FederatedMethod] = field(default_factory=list)

    def __call__(self, key: str, method: FederatedMethod) -> dict[str, str]:
        self.methods.append(method)
        return super().__call__(key, method)


def classified(method: FederatedMethod, embedding: Tensor, client: Tensor) -> Tensor:
    """Apply the method's final linear map to the saved embeddings; returns outputs, (n, C)."""
    parameters = dict(method.parameters)
    for kind, of in PREDICTING.items():
        if isinstance(method, kind):
            parameters = of(method)
    last = "head" if "head.bias" in parameters else "layers.2"
    bias = parameters[f"{last}.bias"]
    owner = client % len(bias)
    if method.backbone.architecture.backbone == "sgc" and embedding.shape[1] == bias.shape[1]:
        # The linear map came before the propagations.
        return embedding + bias[owner]
    weight = parameters[f"{last}.weight"]
    return torch.einsum("nh,nhc->nc", embedding, weight[owner]) + bias[owner]


NETWORKS = ("gcn", "sgc", "graphsage")
CASES = [
    (name, next(each for each in NETWORKS if each in registry.find(name).info.backbones))
    for name in registry.names()
]
CASES += [("fedavg", "sgc"), ("fedavg", "graphsage"), ("fedpub", "sgc")]


@pytest.mark.parametrize(("name", "backbone"), [*CASES, *((name, "gcn") for name in FURTHER)])
def test_the_saved_embedding_is_what_the_classifier_of_the_saved_prediction_reads(
    name: str, backbone: str, tmp_path: Path
) -> None:
    method, options = parse_name(name + SMALL.get(name, ""))
    architecture = replace(CELL.architecture, backbone=backbone)
    cell = replace(CELL, method=method, options=tuple(sorted(options.items())), architecture=architecture)
    saving = Keeping(tmp_path, ("predictions", "embeddings"))
    record = run(cell, save=saving)
    folder = folder_of(tmp_path, cell.key)
    if name in NONE:
        assert record.extras["not_saved"]["embeddings"].startswith(
            f"{method} has no embeddings (its outputs do not come"
        )
        assert not (folder / "embeddings.npz").exists()
        assert not saving.lacks(record)
        return
    assert "not_saved" not in record.extras
    with np.load(folder / "predictions.npz") as saved:
        output, client = torch.from_numpy(saved["output"]), torch.from_numpy(saved["client"])
    with np.load(folder / "embeddings.npz") as saved:
        embedding = torch.from_numpy(saved["embedding"])
        assert (saved["client"] == client.numpy()).all()
    assert len(embedding) == len(output) == 90
    with torch.no_grad():
        found = classified(saving.methods[0], embedding, client)
    torch.testing.assert_close(found, output, rtol=1e-4, atol=1e-4)


def test_the_saved_origin_is_the_number_of_the_graph_as_loaded(tmp_path: Path) -> None:
    """Even if only the largest component is trained on, whose nodes are renumbered."""
    cell = replace(CELL, dataset=Spec("community[nodes=200,average_degree=2]"), largest_component=True)
    run(cell, save=Saving(tmp_path, ("predictions", "embeddings")))
    whole = load(cell.dataset)
    component = largest_component(whole).component
    assert component is not None
    assert not component.all()
    with np.load(folder_of(tmp_path, cell.key) / "predictions.npz") as saved:
        origin, label = saved["origin"], saved["label"]
    with np.load(folder_of(tmp_path, cell.key) / "embeddings.npz") as saved:
        assert (saved["origin"] == origin).all()
    assert sorted(origin) == np.flatnonzero(component).tolist()
    assert (whole.labels.numpy()[origin] == label).all()


@register("doubled", title="Doubled", paper="none")
class Doubled(FedAvg):
    """A method that does not say from which embeddings its outputs are computed."""

    def logits(self, dropout: Dropout | None) -> Tensor:
        return 2 * super().logits(dropout)


def test_a_method_whose_outputs_are_its_own_loses_no_record(tmp_path: Path) -> None:
    with user_objects({("method", "doubled"): Doubled}):
        record = run(replace(CELL, method="doubled"), save=Saving(tmp_path, ("embeddings",)))
    assert record.status == "ok"
    assert "its outputs do not come" in record.extras["not_saved"]["embeddings"]


def test_what_a_cell_left_is_removed_and_that_of_others_stays(tmp_path: Path) -> None:
    def beside(key: str) -> list[Path]:
        names = (f"saved/{key}/model.pt", f"logs/{key}.log", f"checkpoints/{key}.pt")
        return [tmp_path / name for name in names]

    for path in (*beside("gone"), *beside("other")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    remove(tmp_path, "gone")
    assert not any(path.exists() for path in (*beside("gone"), tmp_path / "saved" / "gone"))
    assert all(path.exists() for path in beside("other"))
