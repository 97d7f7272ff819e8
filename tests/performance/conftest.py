"""The clients whose operations are timed: Cora if the real graphs are available, else a similar graph."""

import pytest
import torch

from fedsub.benchmark.studies.peers.our_worker import make_federation, make_method
from fedsub.datasets.federation import Federation
from fedsub.datasets.registry import is_available
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.stacked.memory import keep_freed_memory

GENERATED = "community[nodes=2500,features=1400,words=18,communities=100]"
CLIENTS = 10


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


@pytest.fixture(scope="session")
def dataset_name() -> str:
    """`cora`, or a generated graph of its size."""
    return "cora" if is_available("cora") else GENERATED


@pytest.fixture(scope="session")
def federation(dataset_name: str) -> Federation:
    return make_federation(dataset_name, CLIENTS)


@pytest.fixture(scope="session")
def built(federation: Federation) -> FederatedMethod:
    method = make_method(federation)
    method.build()
    return method
