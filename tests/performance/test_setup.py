"""Set-up: load, partition, split, federate, build."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fedsub.benchmark.studies.peers.our_worker import make_federation, make_method
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.graph import Dataset
from fedsub.datasets.partition import partition
from fedsub.datasets.registry import is_available, load
from tests.performance.conftest import CLIENTS, GENERATED


@pytest.fixture(scope="module")
def dataset(dataset_name: str) -> Dataset:
    return load(dataset_name)


@pytest.mark.parametrize("name", [name for name in REGISTRY if is_available(name)] or [GENERATED])
def test_set_up(benchmark: Any, nothing_cached: Callable[[], None], name: str) -> None:
    """From the archive to the first round, of every graph at hand, nothing cached."""

    def from_archive_to_model() -> None:
        make_method(make_federation(name, CLIENTS)).build()

    benchmark.pedantic(from_archive_to_model, setup=nothing_cached, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("scheme", ["metis", "random", "louvain", "metis-overlapping"])
def test_partition(benchmark: Any, nothing_cached: Callable[[], None], dataset: Dataset, scheme: str) -> None:
    work = partial(partition, dataset, scheme, CLIENTS, 0)
    benchmark.pedantic(work, setup=nothing_cached, rounds=5, warmup_rounds=1)
