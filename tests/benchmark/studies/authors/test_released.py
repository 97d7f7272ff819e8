import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsub import datasets
from fedsub.benchmark.studies.authors import released
from fedsub.datasets.own import READS_SAFELY
from fedsub.datasets.partition import partition


class Data:
    """A stand-in that is pickled like PyG's class."""


Data.__module__, Data.__qualname__ = "torch_geometric.data.data", "Data"


def of(**values: Any) -> Data:
    made = Data()
    vars(made).update(values)
    return made


@pytest.mark.skipif(not READS_SAFELY, reason="this torch reads no file of others")
def test_released_clients_lie_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch_geometric.data.data")
    monkeypatch.setattr(module, "Data", Data, raising=False)
    for name in ("torch_geometric", "torch_geometric.data", "torch_geometric.data.data"):
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / released.PLACE).mkdir(parents=True)
    for client in range(released.CLIENTS):
        nodes, role = client + 3, torch.arange(client + 3) % 3
        fields = {
            "x": torch.full((nodes, 2), float(client)),
            "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
            "y": torch.arange(nodes) % 2,
            **{name: role == number for number, name in enumerate(released.ROLES.values())},
        }
        part = of(_store=of(_mapping=fields))
        torch.save(part, tmp_path / released.PLACE / f"data{client}.pt")
    graph, owner = released.write(tmp_path, tmp_path)
    found = datasets.load(str(graph))
    parts = partition(found, f"file[path={owner}]", released.CLIENTS, 0)
    assert (found.features[:, 0].numpy() == np.repeat(range(10), range(3, 13))).all()
    assert (parts.assignment(found.nodes) == found.features[:, 0].numpy()).all()
    assert found.undirected_edges == 20
    assert found.official is not None
    assert found.official.sum(axis=(1, 2)).tolist() == [28, 25, 22]
