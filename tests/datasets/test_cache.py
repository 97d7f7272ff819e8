"""Arrays kept on disk: computed once for each content, and never a reason to fail."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

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

    def test_pickles_are_not_loaded(self) -> None:
        remember("structure", "x", self.graph, {}, lambda: np.zeros((6, 2)))
        (file,) = folder("structure").glob("*.npz")
        with file.open("wb") as handle:
            np.savez(handle, values=np.array([{}] * 6, dtype=object))
        assert remember("structure", "x", self.graph, {}, lambda: np.ones((6, 2))).all()

    def test_an_unwritable_folder_is_no_reason_to_fail(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        monkeypatch.setenv("FEDSUB_CACHE", str(blocked))
        assert remember("structure", "x", self.graph, {}, lambda: np.ones((6, 2))).all()
