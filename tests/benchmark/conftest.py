"""What the tests of the benchmark share."""

from collections.abc import Iterator

import pytest

from fedsub.benchmark.spec.catalog import remembering


@pytest.fixture(scope="module", autouse=True)
def _remembering(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cache the descriptions of methods, as commands do, in modules that plan often and change no method."""
    if request.path.parent.name in ("analysis", "report", "site") or request.path.stem in (
        "test_arena",
        "test_tables",
    ):
        with remembering():
            yield
    else:
        yield
