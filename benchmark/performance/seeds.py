"""Several seeds of one cell as one stack: what that would save over running them one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import dgl
import scipy.sparse as sp
import torch

from benchmark.performance.rounds import time_rounds, total
from benchmark.performance.subjects import Subject, make_federation, make_method
from datasets.federation import Federation
from datasets.graph import as_feature_tensor, as_scipy

DATASETS = ("cora", "pubmed", "amazon_photo")
CLIENTS = (5, 10, 50)
SEEDS = 3
ROUNDS = 30
TURNS = 3


def join(federations: Sequence[Federation]) -> Federation:
    """The federations of one graph, of several seeds, laid side by side: clients of the first, then of
    the second, and so on. They share no edge."""
    first = federations[0]
    if first.features.layout is torch.sparse_csr:
        stacked = sp.vstack([as_scipy(federation.features) for federation in federations]).tocsr()
        features = as_feature_tensor(stacked)
    else:
        features = torch.cat([federation.features for federation in federations])
    clients = [federation.client + index * first.clients for index, federation in enumerate(federations)]
    return replace(
        first,
        graph=dgl.batch([federation.graph for federation in federations]),
        inter=dgl.batch([federation.inter for federation in federations]),
        features=features,
        labels=torch.cat([federation.labels for federation in federations]),
        client=torch.cat(clients),
        sizes=torch.cat([federation.sizes for federation in federations]),
        train=torch.cat([federation.train for federation in federations]),
        validation=torch.cat([federation.validation for federation in federations]),
        test=torch.cat([federation.test for federation in federations]),
        origin=torch.cat([federation.origin for federation in federations]),
    )


def measure_seeds(dataset: str, clients: int) -> dict[str, Any]:
    """A round of FedAvg of three seeds, one after another and as one stack, in turns. In a fresh process.

    The stack averages over all its clients where three runs would average apart: the same bytes.
    """
    federations = [make_federation(Subject(dataset, clients, seed)) for seed in range(SEEDS)]
    joined = join(federations)
    apart, stacked = [], []
    for _ in range(TURNS):
        apart.append(sum(_seconds(federation) for federation in federations))
        stacked.append(_seconds(joined))
    ratios = [one / other for one, other in zip(apart, stacked, strict=True)]
    return {
        "dataset": dataset,
        "clients": clients,
        "seeds": SEEDS,
        "apart": median(apart),
        "seconds": median(stacked),
        "ratios": ratios,
    }


def _seconds(federation: Federation) -> float:
    return time_rounds(make_method(federation, rounds=total(ROUNDS))).median
