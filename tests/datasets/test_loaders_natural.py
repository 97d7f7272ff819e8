"""Loaders of graphs with natural clients: small files of the upstream formats, and damaged ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from fedsub.datasets.archive import as_dataset
from fedsub.datasets.loaders import acdne, facebook100, musae
from fedsub.datasets.loaders.raw import MalformedFileError
from fedsub.datasets.partition import partition


def write_musae(folder: Path) -> dict[str, Path]:
    """Two languages of three and two nodes; FR has a doubled row, and a doubled feature."""
    content = {
        "DE": (
            "0,1\n2,1\n",
            {"1": [5, 5, 3169], "0": [], "2": [0]},
            ["9,1,True,5,False,2", "8,1,False,5,False,0"],
        ),
        "FR": (
            "0,1\n",
            {"0": [7], "1": [7, 8]},
            ["7,1,True,5,False,1", "6,1,False,5,True,0", "7,1,True,5,False,1"],
        ),
    }
    content["DE"][2].append("7,1,True,5,True,1")
    files = {}
    for language, (edges, features, target) in content.items():
        texts = {
            "edges.csv": "from,to\n" + edges,
            "features.json": json.dumps(features),
            "target.csv": "\n".join(["id,days,mature,views,partner,new_id", *target]) + "\n",
        }
        for ending, text in texts.items():
            path = files[f"{language}/musae_{language}_{ending}"] = folder / f"{language}_{ending}"
            path.write_text(text)
    return files


def test_twitch(tmp_path: Path) -> None:
    found = as_dataset("twitch", musae.parse(write_musae(tmp_path)))
    pairs = {(a, b) for a, b in zip(*(end.tolist() for end in found.graph.edges()), strict=True) if a < b}
    assert pairs == {(0, 1), (1, 2), (3, 4)}
    assert found.labels.tolist() == [0, 1, 1, 0, 1]
    assert found.attributes["language"].tolist() == ["DE", "DE", "DE", "FR", "FR"]
    matrix = found.features.to_dense()
    assert matrix.shape == (5, 3170)
    assert [np.flatnonzero(row).tolist() for row in matrix.numpy()] == [[], [5, 3169], [0], [7], [7, 8]]
    assert matrix.max() == 1
    parts = partition(found, "attribute[key=language]", 2, 0)
    assert parts.names == ("DE", "FR")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("DE/musae_DE_edges.csv", "from,to\n0,7\n", r"DE_edges.csv: it has a number outside 0…2"),
        ("FR/musae_FR_features.json", '{"0": [3170]}', r"FR_features.json: it has a number outside 0…3169"),
        ("FR/musae_FR_target.csv", "id,mature\n1,True\n", "FR_target.csv: not MUSAE's"),
    ],
)
def test_damaged_files_of_twitch_are_named(file: str, text: str, said: str, tmp_path: Path) -> None:
    files = write_musae(tmp_path)
    files[file].write_text(text)
    with pytest.raises(MalformedFileError, match=said):
        musae.parse(files)


def college(**changed: Any) -> dict[str, Any]:
    """150 people: 120 of 2006, 20 of 2007, 10 of an unknown year; dorms of 25, 15 and the rest unknown."""
    known = np.zeros((150, 7), dtype=np.uint16)
    known[:, 0] = np.arange(150) % 3
    known[:, 1] = np.arange(150) % 2
    known[:, 2] = np.arange(150) % 5
    known[:, 6] = 1000 + np.arange(150) % 7
    known[:25, 4], known[25:40, 4] = 333, 334
    known[:120, 5], known[120:140, 5] = 2006, 2007
    path = sp.diags([np.ones(149), np.ones(149)], [1, -1]).tocsc()
    return {"A": path, "local_info": known, **changed}


def test_facebook(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", college())
    raw = facebook100.parse({"": tmp_path / "a.mat"})
    found = as_dataset("college", raw)
    assert found.undirected_edges == 149
    assert np.bincount(found.labels.numpy() + 1).tolist() == [30, 120]
    assert np.bincount(found.attributes["dorm"]).nonzero()[0].tolist() == [0, 333]
    assert (found.attributes["dorm"] == 333).sum() == 25
    assert set(found.attributes["year"].tolist()) == {0, 2006}
    matrix = raw.features.toarray()
    assert matrix.shape == (150, 3 + 5 + 1 + 7)
    assert (matrix.sum(axis=1) == 4).all()
    gender = college()["local_info"][:, 1]
    assert not any((column == gender).all() or (column == 1 - gender).all() for column in matrix.T)
    assert partition(found, "attribute[key=dorm]", 2, 0).names == ("0", "333")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"local_info": np.zeros((9, 7))}, "not one row for each person"),
        ({"local_info": np.array([["a"] * 7] * 150)}, "local_info is no matrix of numbers"),
    ],
)
def test_damaged_files_of_facebook_are_named(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, college(**changed))
    with pytest.raises(MalformedFileError, match=f"a.mat: .*{said}"):
        facebook100.parse({"": path})
    scipy.io.savemat(path, {"A": college()["A"]})
    with pytest.raises(MalformedFileError, match="the matrix 'local_info' is missing"):
        facebook100.parse({"": path})
    content = path.read_bytes()
    for cut in (b"", b"text", content[: len(content) // 2]):
        path.write_bytes(cut)
        with pytest.raises(MalformedFileError, match=r"a\.mat"):
            facebook100.parse({"": path})


def write_libraries(folder: Path, **changed: Any) -> dict[str, Path]:
    files = {}
    for number, part in enumerate(acdne.LIBRARIES):
        nodes = 3 + number
        groups = np.eye(nodes, 5, dtype=np.uint8)
        groups[0] = [1, 1, 0, 0, 0]
        content = {
            "network": sp.csc_matrix(np.eye(nodes, k=1) + np.eye(nodes, k=-1)),
            "attrb": np.full((nodes, 4), number + 1, dtype=np.uint8),
            "group": groups,
        }
        files[part] = folder / part
        scipy.io.savemat(files[part], {**content, **(changed if number else {})})
    return files


def test_libraries(tmp_path: Path) -> None:
    found = as_dataset("libraries", acdne.parse(write_libraries(tmp_path)))
    assert (found.nodes, found.undirected_edges, found.classes) == (12, 2 + 3 + 4, 5)
    assert found.labels.tolist() == [-1, 1, 2, -1, 1, 2, 3, -1, 1, 2, 3, 4]
    parts = partition(found, "attribute[key=library]", 3, 0)
    assert parts.names == ("acm", "citation", "dblp")
    assert parts.sizes.tolist() == [3, 4, 5]
    assert found.features[:, 0].tolist() == [1] * 3 + [2] * 4 + [3] * 5


def test_damaged_files_of_libraries_are_named(tmp_path: Path) -> None:
    for changed, said in (
        ({"network": sp.csc_matrix((3, 4))}, "not one row for each paper"),
        ({"attrb": np.ones((4, 9))}, "other features than the first library's"),
    ):
        with pytest.raises(MalformedFileError, match=rf"citationv1\.mat: .*{said}"):
            acdne.parse(write_libraries(tmp_path, **changed))
