"""One round of every registered method with its default options."""

from typing import Any

import pytest

from fedsub.benchmark.studies.peers.our_worker import make_method, one_round
from fedsub.datasets.federation import Federation
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture

CHEAP: dict[str, dict[str, Any]] = {"fedsage+": {"generator_epochs": 1}}
"""Options that shorten the set-up and leave a round as it is."""


@pytest.mark.parametrize("name", registry.names())
def test_round(benchmark: Any, federation: Federation, name: str) -> None:
    backbones = registry.describe(name).backbones
    architecture = Architecture(backbone="gcn" if "gcn" in backbones else backbones[0])
    method = make_method(federation, name, architecture=architecture, **CHEAP.get(name, {}))
    method.build()
    benchmark.pedantic(one_round(method), rounds=10, warmup_rounds=2)
