"""The federation of the modules that use a single graph."""

import pytest

from fedsub.datasets.federation import Federation
from tests.methods.second_derivation.common import COMMUNITY, divided


@pytest.fixture(scope="module")
def federation(request: pytest.FixtureRequest) -> Federation:
    """`COMMUNITY` among the module's CLIENTS."""
    return divided(COMMUNITY, request.module.CLIENTS)
