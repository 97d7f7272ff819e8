"""The clients whose operations are timed: Cora if the real graphs are available, else a similar graph."""

import pytest
import torch

from fedsub.benchmark.studies.peers.our_worker import make_federation
from fedsub.datasets.federation import Federation
from fedsub.datasets.registry import is_available
from fedsub.methods.stacked.memory import keep_freed_memory

GENERATED = "community[nodes=2500,features=1400,words=18,communities=100]"
CLIENTS = 10


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


@pytest.fixture(scope="session")
def federation() -> Federation:
    return make_federation("cora" if is_available("cora") else GENERATED, CLIENTS)
