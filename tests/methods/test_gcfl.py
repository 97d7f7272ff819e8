"""GCFL: what is split, and by which weights."""

from typing import Any

import numpy as np
import torch

from fedsub.datasets.federation import federate
from fedsub.datasets.partition import Partition
from fedsub.datasets.splits import make_split
from fedsub.methods.core.base import Schedule
from fedsub.methods.gcfl import minimum_cut
from tests.methods.federations import SPLIT, small_dataset
from tests.methods.loops import Clients


def test_a_planted_federation_is_split_along_its_seam():
    """Six clients: the first three divide class 0 among them, the last three the other classes."""
    dataset = small_dataset(nodes=240)
    labels = dataset.labels.numpy()
    first, second = np.nonzero(labels == 0)[0], np.nonzero(labels != 0)[0]
    parts = Partition("planted", tuple([first[k::3] for k in range(3)] + [second[k::3] for k in range(3)]))
    schedule = Schedule(rounds=12, local_epochs=2, weighting="uniform", optimiser="sgd", learning_rate=0.5)
    clients = Clients(schedule, federation=federate(dataset, parts, make_split(labels, parts, SPLIT, 7, 3)))
    method = clients.run("gcfl", epsilon1=1e9, epsilon2=0.0, first_round=11)[0]
    assert method.extras == {"clusters": 2.0, "largest_cluster": 3.0, "first_split": 12.0, "splits": 1.0}
    assert len(set(method.clusters[:3].tolist())) == 1
    assert len(set(method.clusters[3:].tolist())) == 1


def test_shifted_cosines_peel_off_one_client_where_positive_ones_find_the_halves() -> None:
    """Two groups of three, cosines 0.3 inside and 0 between: (1.3·2 + 3) < 9, but 0 < 0.6."""
    group = torch.arange(6) // 3
    products = torch.eye(6) * 0.7 + 0.3 * (group.unsqueeze(0) == group.unsqueeze(1))
    sizes = {}
    for weights in ("shifted", "positive"):
        method: Any = Clients(Schedule()).create("gcfl", {"weights": weights})
        side = minimum_cut(method.edge_weights(products, torch.arange(6)))
        sizes[weights] = sorted((int(side.sum()), int((~side).sum())))
    assert sizes == {"shifted": [1, 5], "positive": [3, 3]}
