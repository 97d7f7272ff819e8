"""Weakening removes the requested number of edges inside classes, always the same ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.graph import Dataset, weakened
from tests.methods.federations import small_dataset

shares = st.floats(0.01, 1)
seeds = st.integers(0, 2**40)


def edges(dataset: Dataset) -> set[tuple[int, int]]:
    return set(zip(*(end.tolist() for end in dataset.graph.edges()), strict=True))


@given(share=shares, seed=seeds)
@settings(max_examples=10)
def test_edges_inside_classes_go_and_those_between_stay(share: float, seed: int) -> None:
    dataset = small_dataset()
    found = weakened(dataset, share, seed)
    labels = dataset.labels.tolist()
    inside = {(u, v) for u, v in edges(dataset) if labels[u] == labels[v]}
    assert edges(dataset) - inside == edges(found) - inside
    left = edges(found) & inside
    assert {(target, source) for source, target in left} == left
    assert len(inside) - len(left) == 2 * round(share * len(inside) / 2)
    assert edges(weakened(dataset, share, seed)) == edges(found)
    assert left <= edges(weakened(dataset, share / 2, seed))
