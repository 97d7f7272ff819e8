"""The pieces of the stacked program: kernels, segments, features, dropout, losses, mixtures, starts."""

import sys
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.graph import as_feature_tensor, row_normalised
from fedsub.methods.compiled import compile_pass
from fedsub.methods.stacked import segments as segments_module
from fedsub.methods.stacked.activation import Dropout, activate
from fedsub.methods.stacked.features import Features, NormalisedFeatures
from fedsub.methods.stacked.kernels import NARROW, cross_entropy, sparse_product
from fedsub.methods.stacked.mixing import cosine, gram
from fedsub.methods.stacked.optimiser import Descent, MaskedOptimiser, make_adam
from fedsub.methods.stacked.parameters import glorot, linear_start
from fedsub.methods.stacked.propagation import propagate, use_kernel, with_self_loops
from fedsub.methods.stacked.segments import Segments, padded_product, ranks, segment_product
from tests.methods.federations import small_dataset, small_federation
from tests.methods.rounding import assert_agree

SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 0)


def assert_same_function(
    out: torch.Tensor, expected: torch.Tensor, inputs: list[torch.Tensor], tolerance: float = 1e-4
) -> None:
    """Outputs agree, and so do the gradients of a random sum of them for the inputs."""
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)
    probe = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype)
    found, wanted = (torch.autograd.grad((each * probe).sum(), inputs) for each in (out, expected))
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


def test_kernels_agree_forward_and_backward():
    graph = with_self_loops(small_dataset(nodes=50).graph)
    # Not symmetric: gradients use the transpose, which must differ from the matrix.
    weight = torch.rand(graph.num_edges(), generator=torch.Generator().manual_seed(1))
    results = []
    for kernel in ("dgl", "torch"):
        h = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
        out = propagate(use_kernel(graph, kernel), h, weight)
        out.square().sum().backward()
        results.append((out.detach(), h.grad))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def test_a_changed_weight_is_not_served_from_the_cache():
    graph = small_dataset(nodes=30).graph
    weight, h = torch.ones(graph.num_edges()), torch.ones(30, 1)
    once = propagate(graph, h, weight)
    weight.mul_(2)
    torch.testing.assert_close(propagate(graph, h, weight), 2 * once)
    torch.testing.assert_close(propagate(graph, h, weight / 2), once)


def test_a_weight_that_is_learned_is_refused_where_it_would_get_no_gradient() -> None:
    graph = small_dataset(nodes=30).graph
    weight, h = torch.ones(graph.num_edges(), requires_grad=True), torch.ones(30, 1)
    with pytest.raises(ValueError, match="no gradient for edge weights"):
        propagate(graph, h, weight)
    with torch.no_grad():
        summed = propagate(graph, h, weight)
    again = propagate(use_kernel(graph, "dgl"), h, weight)
    torch.testing.assert_close(again.detach(), summed)
    again.sum().backward()
    torch.testing.assert_close(weight.grad, torch.ones(graph.num_edges()))


@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.floats(0, 1),
    st.sampled_from([1, NARROW - 1, NARROW, 2 * NARROW, NARROW + 53]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 1000),
)
def test_the_sparse_product_overwrites_what_was_in_memory(rows, density, width, dtype, seed):
    entries = sp.random(rows, 30, density=density, random_state=seed, format="csr")
    matrix = as_feature_tensor(entries).to(dtype)
    poison = torch.full((rows, width), float("nan"), dtype=dtype)
    del poison
    h = torch.randn(30, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    torch.testing.assert_close(sparse_product(matrix, h), matrix.to_dense() @ h, atol=1e-5, rtol=1e-5)


@settings(max_examples=40)
@given(
    SIZES,
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(0, 1000),
    st.sampled_from([segment_product, padded_product]),
)
def test_segment_product_is_each_clients_product(sizes, inner, outer, seed, product):
    generator = torch.Generator().manual_seed(seed)
    segments = Segments(torch.tensor(sizes))
    h = torch.randn(sum(sizes), inner, generator=generator, dtype=torch.float32).requires_grad_()
    weight = torch.randn(len(sizes), inner, outer, generator=generator).requires_grad_()
    out = product(h, weight, segments)
    expected = torch.einsum("ni,nio->no", h, weight[segments.client])
    assert_same_function(out, expected, [h, weight])


@settings(max_examples=30)
@given(SIZES, st.integers(0, 1000))
def test_segment_sum_and_mean(sizes, seed):
    segments = Segments(torch.tensor(sizes))
    h = torch.randn(sum(sizes), 3, generator=torch.Generator().manual_seed(seed))
    parts = torch.split(h, sizes)
    torch.testing.assert_close(segments.sum(h), torch.stack([part.sum(0) for part in parts]))
    means = [part.mean(0) if len(part) else torch.zeros(3) for part in parts]
    torch.testing.assert_close(segments.mean(h), torch.stack(means))


@pytest.mark.parametrize("density", [0.1, 0.9])
@pytest.mark.parametrize("probability", [0.5, 0.3])
def test_dropped_features_are_some_of_them_scaled_and_their_product_has_its_gradient(density, probability):
    matrix = sp.random(40, 30, density=density, random_state=0, format="csr", dtype=np.float32)
    segments = Segments(torch.tensor([15, 25]))
    dense, dropout = torch.from_numpy(matrix.toarray()), Dropout(probability, seed=1)
    features = Features(as_feature_tensor(matrix), segments)
    identity = torch.eye(30).expand(2, 30, 30)
    kept = []
    for _ in range(2):
        dropped = features.dropped(dropout.among(torch.arange(3), 40))
        found = dropped.times(identity)
        scaled = dense * dropout.scale
        assert ((found == 0) | torch.isclose(found, scaled)).all()
        share = float((found != 0).sum() / (dense != 0).sum())
        assert share == pytest.approx(1 - probability, abs=0.15)
        weight = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        expected = torch.einsum("ni,nio->no", found, weight[segments.client])
        got = torch.autograd.grad(dropped.times(weight).square().sum(), weight)
        wanted = torch.autograd.grad(expected.square().sum(), weight)
        torch.testing.assert_close(got, wanted, atol=1e-3, rtol=1e-3)
        kept.append(found)
    assert not torch.equal(*kept)
    torch.testing.assert_close(features.times(identity), dense)


@pytest.mark.parametrize("probability", [0.5, 0.3, 0.9])
def test_dropout_keeps_its_share_and_the_expectation(probability):
    dropout = Dropout(probability, seed=0)
    kept = torch.cat([dropout(torch.ones(1000, 37)) for _ in range(5)])
    assert float((kept == 0).float().mean()) == pytest.approx(probability, abs=0.01)
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.02)
    assert float(kept.max()) == pytest.approx(1 / (1 - probability), rel=1e-4)
    again = Dropout(probability, seed=0)
    torch.testing.assert_close(again(torch.ones(1000, 37)), kept[:1000])


def test_dropout_of_almost_everything_has_a_finite_scale():
    dropout = Dropout(1 - 1e-9, seed=0)
    assert dropout.scale == 2**16
    assert float(dropout(torch.ones(1000, 1000)).mean()) == pytest.approx(1, abs=1)


@pytest.mark.parametrize("probability", [0.0, 0.5, 0.25])
def test_activation_equals_its_parts(probability):
    segments = Segments(torch.tensor([3, 4]))
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(7, 33, generator=generator).requires_grad_()
    bias = torch.randn(2, 33, generator=generator).requires_grad_()
    out = activate(h, bias, segments, Dropout(probability, seed=5))
    expected = Dropout(probability, seed=5)(torch.relu(h + bias[segments.client]))
    assert_same_function(out, expected, [h, bias], tolerance=1e-5)


def test_federation_lays_clients_side_by_side():
    federation = small_federation(clients=4, nodes=60)
    source, target = federation.graph.edges()
    assert bool((federation.client[source] == federation.client[target]).all())
    source, target = federation.inter.edges()
    assert bool((federation.client[source] != federation.client[target]).all())
    total = federation.graph.num_edges() + federation.inter.num_edges()
    assert total == federation.source.graph.num_edges()
    assert torch.equal(federation.labels, federation.source.labels[federation.origin])
    features = federation.features.to_dense()
    assert torch.equal(features, federation.source.features.to_dense()[federation.origin])
    assert bool((federation.client.diff() >= 0).all())


@pytest.mark.parametrize(("mean", "tolerance"), [(0.0, 1e-5), (100.0, 1e-3)])
def test_sparse_features_are_normalised_as_dense_ones(mean: float, tolerance: float) -> None:
    """A row whose mean is 1000 times its deviation loses three digits, and no more."""
    matrix = mean + 0.1 * np.random.default_rng(0).standard_normal((20, 12), dtype=np.float32)
    weight = torch.eye(12).unsqueeze(0)
    expected = functional.layer_norm(torch.from_numpy(matrix), (12,))
    for given_as in (torch.from_numpy(matrix), as_feature_tensor(sp.csr_matrix(matrix))):
        found = NormalisedFeatures(given_as, Segments(torch.tensor([20]))).times(weight)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def test_row_normalised_features_sum_to_one():
    for sparse in (True, False):
        features = row_normalised(small_dataset(sparse=sparse)).features.to_dense()
        torch.testing.assert_close(features.sum(1), torch.ones(len(features)))


@pytest.mark.parametrize("share", [0.2, 0.3])
def test_above_a_size_features_take_the_shorter_form(share, monkeypatch):
    matrix = sp.random(40, 30, density=share, random_state=0, format="csr", dtype=np.float32)
    segments = Segments(torch.tensor([15, 25]))
    sparse = Features(as_feature_tensor(matrix), segments)
    assert sparse.dense is None
    monkeypatch.setattr("fedsub.methods.stacked.features.DENSE_BYTES", 100)
    large = Features(as_feature_tensor(matrix), segments)
    stored = (part.values().nbytes + part.col_indices().nbytes for part in (sparse.matrix, sparse.transpose))
    assert (large.dense is not None) == (sum(stored) > 4 * 40 * 30)


def _absent_features():
    """Two clients of three; each has only some of the features."""
    matrix = sp.random(12, 40, density=0.06, random_state=1, format="csr", dtype=np.float32)
    return Features(as_feature_tensor(matrix), Segments(torch.tensor([4, 4, 4]))), matrix


def _gradients(features, weight, uses):
    weight.grad = None
    features.renew_gradients()
    for _ in range(uses):
        features.times(weight).square().sum().backward()
    return weight.grad


@pytest.mark.parametrize("width", [5, NARROW, 2 * NARROW])
def test_kept_gradient_buffers_give_the_same_gradients(width):
    features, matrix = _absent_features()
    assert len(features.rows_present) < 0.9 * 120
    segments = features.segments
    weight = torch.randn(3, 40, width, generator=torch.Generator().manual_seed(0)).requires_grad_()
    dense = torch.from_numpy(matrix.toarray())
    expected = torch.einsum("ni,nio->no", dense, weight[segments.client]).square().sum()
    (wanted,) = torch.autograd.grad(expected, weight)
    for uses in (1, 1, 2, 1):
        torch.testing.assert_close(_gradients(features, weight, uses), uses * wanted, atol=1e-4, rtol=1e-4)
    assert weight.grad is not None
    weight.grad.add_(1.0)
    torch.testing.assert_close(_gradients(features, weight, 1), wanted, atol=1e-4, rtol=1e-4)
    both = features.times(weight).square().sum() + features.times(2 * weight).square().sum()
    weight.grad = None
    features.renew_gradients()
    both.backward()
    torch.testing.assert_close(weight.grad, 5 * wanted, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: Descent(values, lr=0.1),
        lambda values: make_adam(values, 0.1, 0.0),
        lambda values: MaskedOptimiser(values, 0.1, 0.0, lambda: torch.tensor([True, False, True])),
    ],
)
def test_an_evaluated_product_is_used_until_its_weight_changes(make, monkeypatch):
    # No optimiser may load torch's compiler, which takes a second; those of torch 2.2 do.
    if not torch.__version__.startswith("2.2."):
        monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    features, matrix = _absent_features()
    dense, client = torch.from_numpy(matrix.toarray()), features.segments.client
    weight = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimiser, counted = make([weight]), Mock(side_effect=sparse_product)
    monkeypatch.setattr("fedsub.methods.stacked.kernels.sparse_product", counted)
    for _ in range(3):
        with torch.no_grad():
            evaluated = features.times(weight)
            torch.testing.assert_close(evaluated, torch.einsum("ni,nio->no", dense, weight[client]))
        counted.reset_mock()
        trained = features.times(weight)
        counted.assert_not_called()
        assert_agree(trained.detach(), evaluated)
        (fresh,) = torch.autograd.grad(Features.times(_absent_features()[0], weight).square().sum(), weight)
        (gradient,) = torch.autograd.grad(trained.square().sum(), weight)
        assert_agree(gradient, fresh)
        optimiser.zero_grad()
        optimiser.load_state_dict(optimiser.state_dict())
        weight.grad = gradient
        optimiser.step()
    with torch.no_grad():
        features.times(weight).zero_()
        assert features.times(weight).count_nonzero()


@pytest.mark.parametrize("sizes", [[40, 0, 3], [43]])
def test_large_products_are_those_of_each_client(monkeypatch, sizes):
    generator = torch.Generator().manual_seed(0)
    segments = Segments(torch.tensor(sizes))
    h = torch.randn(43, 30, generator=generator).requires_grad_()
    weight = torch.randn(len(sizes), 30, 50, generator=generator).requires_grad_()
    expected = padded_product(h, weight, segments)
    monkeypatch.setattr("fedsub.methods.stacked.segments._LARGE", 0.0)
    large = Mock(side_effect=segments_module.large_product)
    monkeypatch.setattr(segments_module, "large_product", large)
    assert_same_function(segment_product(h, weight, segments), expected, [h, weight], tolerance=1e-5)
    # A torch without grouped_mm uses the padded product.
    assert large.call_count == (3 * len(sizes) if hasattr(functional, "grouped_mm") else 0)


@settings(max_examples=40)
@given(
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(0, 1000),
    st.floats(0.1, 80),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_cross_entropy_and_its_gradient_are_torchs(rows, classes, seed, spread, dtype):
    generator = torch.Generator().manual_seed(seed)
    output = spread * torch.randn(30, classes, generator=generator, dtype=dtype)
    chosen = torch.randperm(30, generator=generator)[:rows]
    labels = torch.randint(classes, (rows,), generator=generator)
    weight = torch.rand(rows, generator=generator, dtype=dtype)
    output.requires_grad_()
    loss = cross_entropy(output, chosen, labels, weight)
    expected = torch.dot(functional.cross_entropy(output[chosen], labels, reduction="none"), weight)
    assert_same_function(loss, expected, [output])


@settings(max_examples=40)
@given(clients=st.integers(1, 6), seed=st.integers(0, 99), still=st.sets(st.integers(0, 5)))
def test_similarities_are_those_of_whole_vectors(clients: int, seed: int, still: set[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(clients, *shape, generator=generator) for shape in ((3, 2), (5,))]
    for value in values:
        value[[client for client in still if client < clients]] = 0
    vectors = torch.cat([value.flatten(1) for value in values], dim=1).double()
    found = gram(values)
    torch.testing.assert_close(found, vectors @ vectors.T, atol=1e-5, rtol=1e-5)
    # For a client that did not move every cosine is 0, as in torch, even that with itself.
    expected = functional.cosine_similarity(vectors[:, None], vectors[None], dim=2)
    torch.testing.assert_close(cosine(found), expected, atol=1e-5, rtol=1e-5)


def test_rounding_makes_no_cosine_above_one() -> None:
    products = torch.tensor([[1.0, 1 + 1e-7], [1 + 1e-7, 1.0]], dtype=torch.float64)
    assert cosine(products).tolist() == [[1, 1], [1, 1]]
    assert cosine(products * torch.tensor([[1.0, -1], [-1, 1]])).tolist() == [[1, -1], [-1, 1]]


def test_glorots_start_is_torchs() -> None:
    expected = torch.nn.init.xavier_uniform_(torch.empty(50, 7), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(glorot((50, 7), torch.Generator().manual_seed(3)), expected)


def test_a_linear_layers_start_is_torchs() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layer = torch.nn.Linear(50, 7)
    start = linear_start(50, 7, torch.Generator().manual_seed(3))
    assert start["weight"].shape == (50, 7)
    torch.testing.assert_close(start["weight"].flatten(), layer.weight.detach().flatten())
    torch.testing.assert_close(start["bias"], layer.bias.detach())


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_rows_lie_side_by_side_and_come_back(sizes: list[int]) -> None:
    segments = Segments(torch.tensor(sizes))
    assert ranks(segments.sizes).tolist() == [rank for size in sizes for rank in range(size)]
    h = 1 + torch.arange(2.0 * segments.rows).view(-1, 2)
    batch = segments.pad(h)
    for client, own in enumerate(h.split(sizes)):
        assert torch.equal(batch[client, : len(own)], own)
        assert not batch[client, len(own) :].any()
    assert torch.equal(batch[:, :, 0] > 0, segments.filled)
    assert torch.equal(segments.unpad(batch), h)


@compile_pass
def _divide(above: np.ndarray, below: np.ndarray, out: np.ndarray) -> None:
    """out = above / √below, entry by entry."""
    for place in range(len(above)):
        out[place] = above[place] / np.sqrt(below[place])


def test_a_pass_divides_as_every_processor_does() -> None:
    """Estimated quotients would round full registers differently from the remaining entries."""
    generator = np.random.default_rng(0)
    above, below = generator.random((2, 1003), dtype=np.float32) + np.float32(0.5)
    out = np.empty_like(above)
    _divide(above, below, out)
    np.testing.assert_array_equal(out, above / np.sqrt(below))
