"""OGB's zip of CSV files."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedsub.datasets.loaders import MalformedFileError
from fedsub.datasets.loaders.ogb import MEMBERS, ROLES, parse
from tests.datasets import formats


def write_ogb(path: Path, without: str = "") -> dict[str, Path]:
    tables = {
        "edge.csv.gz": np.stack([formats.SOURCE, formats.TARGET], axis=1),
        "node-feat.csv.gz": formats.DENSE + 0.5,
        "node-label.csv.gz": formats.LABELS[:, None],
        "node_year.csv.gz": np.full((formats.NODES, 1), 2013),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, table in tables.items():
            if member != without:
                text = io.StringIO()
                np.savetxt(text, table, delimiter=",", fmt="%g")
                archive.writestr(f"arxiv/raw/{member}", gzip.compress(text.getvalue().encode()))
        for member, nodes in zip(ROLES, (range(6), (6, 8), (7, 9, 10)), strict=True):
            if member != without:
                lines = "".join(f"{node}\n" for node in nodes)
                archive.writestr(f"arxiv/split/time/{member}", gzip.compress(lines.encode()))
        archive.writestr("arxiv/mapping/labelidx2arxivcategeory.csv.gz", b"")
        archive.writestr("arxiv/raw/../../../../outside.csv.gz", b"a path that leaves the folder")
    return {"": path}


def test_the_graph_comes_back(tmp_path: Path):
    raw = parse(write_ogb(tmp_path / "arxiv.zip"))
    np.testing.assert_array_equal(raw.source, formats.SOURCE)
    np.testing.assert_array_equal(raw.target, formats.TARGET)
    np.testing.assert_array_equal(raw.labels, formats.LABELS)
    np.testing.assert_array_equal(raw.features, formats.DENSE + 0.5)
    assert raw.features.dtype == np.float32
    assert raw.official is not None
    split = [np.flatnonzero(mask).tolist() for mask in raw.official[:, 0]]
    assert split == [list(range(6)), [6, 8], [7, 9, 10]]


@pytest.mark.parametrize("member", [*MEMBERS, *ROLES])
def test_missing_members_are_named(tmp_path: Path, member: str):
    with pytest.raises(MalformedFileError, match=member):
        parse(write_ogb(tmp_path / "arxiv.zip", without=member.removeprefix("raw/")))


def test_truncated(tmp_path: Path):
    files = write_ogb(tmp_path / "arxiv.zip")
    files[""].write_bytes(files[""].read_bytes()[:300])
    with pytest.raises(MalformedFileError, match="truncated"):
        parse(files)
