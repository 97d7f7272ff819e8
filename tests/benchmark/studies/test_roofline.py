"""The roofline's counts and its ceilings."""

from __future__ import annotations

import pytest
import torch

from fedsub.benchmark.studies.performance.roofline import BOUNDS, Ceilings, count_work, measure_round
from fedsub.benchmark.studies.subjects import make_method
from fedsub.methods.core.base import Architecture
from tests.methods.federations import small_federation

CEILINGS = Ceilings(1e9, {2**10: 8e9, 2**20: 4e9, 2**30: 1e9})
HIDDEN = 4


def test_counts_of_a_small_case_by_hand() -> None:
    method = make_method(small_federation(), architecture=Architecture(hidden=(HIDDEN,)))
    method.build()
    federation = method.federation
    n, k, c = federation.nodes, federation.clients, federation.classes
    d, e = federation.features.shape[1], federation.graph.num_edges() + federation.nodes
    parameters = k * (d * HIDDEN + HIDDEN + HIDDEN * c + c)
    dense_matrix = federation.features.to_dense()
    nonzeros = int(torch.count_nonzero(dense_matrix))
    occurring = sum(
        int((block != 0).any(dim=0).sum()) for block in dense_matrix.split(federation.sizes.tolist())
    )
    work, touched = count_work(method)
    assert method.inputs.propagated is None
    # X W forwards in training and evaluation, Xᵀ g backwards: 3 products of non-zeros with rows of 4.
    matrix, out = nonzeros * 8 + (n + 1) * 4, n * HIDDEN * 4
    moved = matrix + occurring * HIDDEN * 4 + out
    assert work["feature product"].tolist() == [6 * nonzeros * HIDDEN, 3 * moved, 3 * nonzeros * HIDDEN * 4]
    # One convolution, 3 times; the linear head propagates nothing.
    gathered = 3 * e * HIDDEN * 4
    assert work["propagation"].tolist() == [6 * e * HIDDEN, 3 * (e * 8 + (n + 1) * 4 + 2 * out), gathered]
    # The head: forwards twice, backwards two products.
    moved = 4 * (n * (HIDDEN + c) * 4 + k * HIDDEN * c * 4)
    assert work["dense layers"].tolist() == [4 * 2 * n * HIDDEN * c, moved, 0]
    assert work["Adam"][1] == 7 * 4 * parameters
    assert work["mixing"][1] == 2 * 4 * parameters
    assert work["dropout masks"][1] == n * HIDDEN / 8
    assert work["scoring"][1] == (n + int(federation.validation.sum())) * c * 4
    layers = 4 * 4 * n * (HIDDEN + c)
    assert touched == 4 * 4 * parameters + 2 * nonzeros * 8 + 2 * e * 8 + layers


def test_bandwidth_is_interpolated_between_sizes_and_kept_beyond_them() -> None:
    assert CEILINGS.rates(2**20).tolist() == [1e9, 4e9, 8e9]
    assert CEILINGS.rates(2**25)[1] == pytest.approx(2.5e9)
    assert CEILINGS.rates(2**40)[1] == 1e9


def test_a_round_is_measured_and_taken_apart() -> None:
    found = measure_round("community[nodes=200,features=60]", 4, CEILINGS, budget=0.05)
    assert found["limit"] == pytest.approx(sum(each["limit"] for each in found["operations"].values()))
    assert found["fastest"] <= found["seconds"] <= found["slowest"]
    assert {each["bound"] for each in found["operations"].values()} <= set(BOUNDS)
