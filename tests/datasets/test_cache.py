"""Arrays kept on disk: computed once for each content, and never a reason to fail."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsub.datasets.cache import folder, remember


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh cache folder."""
    monkeypatch.setenv("FEDSUB_CACHE", str(tmp_path))


def random_graph(nodes: int, share: float, seed: int) -> sp.csr_matrix:
    """A symmetric 0/1 matrix."""
    upper = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < share, 1)
    return sp.csr_matrix((upper | upper.T).astype(np.float32))


class TestCache:
    """`remember` computes once per content."""

    graph = random_graph(6, 0.5, 0)

    def test_computes_once_and_again_for_other_content(self) -> None:
        calls: list[int] = []

        def compute() -> np.ndarray:
            calls.append(1)
            return np.arange(12.0).reshape(6, 2)

        first = remember("structure", "x", self.graph, {"seed": 0}, compute)
        np.testing.assert_array_equal(first, remember("structure", "x", self.graph, {"seed": 0}, compute))
        assert len(calls) == 1
        remember("structure", "x", self.graph, {"seed": 1}, compute)
        remember("structure", "x", random_graph(6, 0.5, 1), {"seed": 0}, compute)
        assert len(calls) == 3
        assert not list(folder("structure").glob("*.tmp"))

    def test_a_broken_file_is_computed_again(self, caplog: pytest.LogCaptureFixture) -> None:
        remember("structure", "x", self.graph, {}, lambda: np.zeros((6, 2)))
        (file,) = folder("structure").glob("*.npz")
        file.write_bytes(file.read_bytes()[:40])
        with caplog.at_level(logging.WARNING):
            assert remember("structure", "x", self.graph, {}, lambda: np.ones((6, 2))).all()
        assert "unreadable" in caplog.text
        assert remember("structure", "x", self.graph, {}, lambda: np.zeros((6, 2))).all()

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def test_a_flipped_bit_changes_no_answer(self, place: float, bit: int) -> None:
        expected = np.arange(12.0).reshape(6, 2)
        remember("structure", "x", self.graph, {}, lambda: expected)
        (file,) = folder("structure").glob("*.npz")
        content = bytearray(file.read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        file.write_bytes(content)
        np.testing.assert_array_equal(remember("structure", "x", self.graph, {}, lambda: expected), expected)

    def test_an_exchanged_array_is_computed_again(self, caplog: pytest.LogCaptureFixture) -> None:
        """An array of another file, and one that was not written here."""

        def ask(seed: int) -> np.ndarray:
            return remember("structure", "x", self.graph, {"seed": seed}, lambda: np.full((6, 2), seed))

        ask(0)
        ask(1)
        one, other = folder("structure").glob("*.npz")
        one.write_bytes(other.read_bytes())
        assert (ask(0) == 0).all()
        assert (ask(1) == 1).all()
        with np.load(one) as content:
            checksum = content["checksum"]
        np.savez(one, values=np.full((6, 2), 7), checksum=checksum)
        assert (ask(0) == 0).all()
        assert (ask(1) == 1).all()
        assert caplog.text.count("its checksum is another") == 2

    def test_pickles_are_not_loaded(self) -> None:
        remember("structure", "x", self.graph, {}, lambda: np.zeros((6, 2)))
        (file,) = folder("structure").glob("*.npz")
        with file.open("wb") as handle:
            np.savez(handle, values=np.array([{}] * 6, dtype=object))
        assert remember("structure", "x", self.graph, {}, lambda: np.ones((6, 2))).all()
