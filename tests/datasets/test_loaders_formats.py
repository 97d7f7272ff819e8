"""The other upstream formats: the same small graph comes back, damage is one sentence."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedsub.datasets.archive import as_dataset
from fedsub.datasets.loaders import (
    MalformedFileError,
    am_gcn,
    gnn_benchmark,
    graphsaint,
    heterophilous,
    wikics,
)
from fedsub.datasets.loaders.raw import RawGraph
from tests.datasets import formats

WRITERS = {
    "gnn_benchmark": (formats.write_gnn_benchmark, gnn_benchmark.parse, "tiny.npz"),
    "heterophilous": (formats.write_heterophilous, heterophilous.parse, "tiny.npz"),
    "am_gcn": (formats.write_am_gcn, am_gcn.parse, "tiny.zip"),
    "wikics": (formats.write_wikics, wikics.parse, "data.json"),
    "graphsaint": (formats.write_graphsaint, graphsaint.parse, "flickr.zip"),
}


def assert_is_the_graph(raw: RawGraph) -> None:
    features = raw.features.toarray() if sp.issparse(raw.features) else raw.features
    np.testing.assert_array_equal(features, formats.DENSE)
    np.testing.assert_array_equal(raw.labels, formats.LABELS)
    dataset = as_dataset("tiny", raw)
    assert dataset.undirected_edges == formats.UNDIRECTED_EDGES
    assert dataset.classes == formats.CLASSES


@pytest.mark.parametrize("name", WRITERS)
def test_the_graph_comes_back(name: str, tmp_path: Path):
    write, parse, file = WRITERS[name]
    assert_is_the_graph(parse(write(tmp_path / file)))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_files_name_themselves(name: str, share: float, tmp_path: Path):
    write, parse, file = WRITERS[name]
    files = write(tmp_path / file)
    content = files[""].read_bytes()
    files[""].write_bytes(content[: int(share * len(content))])
    with pytest.raises(MalformedFileError, match=file):
        parse(files)


def test_the_ten_splits_come_with_the_heterophilous_graphs(tmp_path: Path):
    files = formats.write_heterophilous(tmp_path / "tiny.npz")
    np.testing.assert_array_equal(heterophilous.parse(files).official, formats.MASKS)
    with np.load(files[""]) as content:
        arrays = {name: values for name, values in content.items() if "masks" not in name}
    np.savez(files[""], **arrays)
    assert heterophilous.parse(files).official is None


def test_gnn_benchmark_with_dotted_names(tmp_path: Path):
    assert_is_the_graph(gnn_benchmark.parse(formats.write_gnn_benchmark(tmp_path / "tiny.npz", dotted=True)))


def test_labels_stored_as_objects_are_not_unpickled(tmp_path: Path):
    files = formats.write_gnn_benchmark(tmp_path / "tiny.npz")
    with np.load(files[""], allow_pickle=True) as content:
        arrays = dict(content)
    arrays["labels"] = formats.LABELS.astype(object)
    np.savez(files[""], **arrays)
    with pytest.raises(MalformedFileError, match=r"'labels' is damaged or holds objects"):
        gnn_benchmark.parse(files)


def test_missing_array_is_named(tmp_path: Path):
    np.savez(tmp_path / "tiny.npz", node_features=formats.DENSE, edges=np.zeros((1, 2), dtype=int))
    with pytest.raises(MalformedFileError, match="'node_labels' is missing"):
        heterophilous.parse({"": tmp_path / "tiny.npz"})


def test_am_gcn_labels_written_as_floats(tmp_path: Path):
    assert_is_the_graph(am_gcn.parse(formats.write_am_gcn(tmp_path / "tiny.zip", float_labels=True)))


def test_am_gcn_writes_no_member_anywhere(tmp_path: Path):
    folder = tmp_path / "inner" / "most"
    folder.mkdir(parents=True)
    am_gcn.parse(formats.write_am_gcn(folder / "tiny.zip"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "tiny.zip"]


def test_am_gcn_ragged_rows(tmp_path: Path):
    path = tmp_path / "tiny.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.edge", "0 1\n")
        archive.writestr("t.label", "0\n1\n")
        archive.writestr("t.feature", "0 1 0\n0 1\n")
    with pytest.raises(MalformedFileError, match="differ in length"):
        am_gcn.parse({"": path})


def test_graphsaint_with_a_class_missing(tmp_path: Path):
    files = formats.write_graphsaint(tmp_path / "flickr.zip", {"class_map.json": b'{"0": 1, "7": 2}'})
    with pytest.raises(MalformedFileError, match="nodes that do not exist"):
        graphsaint.parse(files)


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("class_map.json", b"[1, 2]", "its members are not GraphSAINT's"),
        ("class_map.json", b"{", "its members are not GraphSAINT's"),
        ("feats.npy", b"no array", "its members are not GraphSAINT's"),
        ("adj_full.npz", b"PK no archive", "its npz member is damaged"),
    ],
)
def test_graphsaint_with_a_damaged_member(tmp_path: Path, member: str, content: bytes, reason: str):
    with pytest.raises(MalformedFileError, match=reason):
        graphsaint.parse(formats.write_graphsaint(tmp_path / "flickr.zip", {member: content}))


@pytest.mark.parametrize("name", ["gnn_benchmark", "heterophilous", "am_gcn", "graphsaint"])
def test_members_that_unpack_to_too_much_are_not_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write, parse, file = WRITERS[name]
    files = write(tmp_path / file)
    monkeypatch.setattr("fedsub.datasets.loaders.raw.MAXIMUM_MEMBER_BYTES", 50)
    with pytest.raises(MalformedFileError, match=rf"{file}: its member \S+ claims \d+ bytes"):
        parse(files)


def test_an_npz_inside_a_zip_that_unpacks_to_too_much_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stored = io.BytesIO()
    np.savez_compressed(stored, data=np.zeros(10**5), indices=[], indptr=[], shape=[])
    files = formats.write_graphsaint(tmp_path / "flickr.zip", {"adj_full.npz": stored.getvalue()})
    monkeypatch.setattr("fedsub.datasets.loaders.raw.MAXIMUM_MEMBER_BYTES", 10**5)
    with pytest.raises(MalformedFileError, match=r"its member data\.npy claims 800128 bytes"):
        graphsaint.parse(files)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("labels", [0] * 11, "12 feature rows but 11 labels"),
        ("labels", [-1] * 12, "a label is negative"),
        ("links", [[99]] + [[]] * 11, "outside its 12 nodes"),
        ("links", 7, "not the JSON of Wiki-CS"),
        ("features", [[float("nan")]] * 12, "not finite"),
        ("features", "text", "not the JSON of Wiki-CS"),
    ],
)
def test_inconsistent_content_is_refused(tmp_path: Path, field: str, value: object, reason: str):
    files = formats.write_wikics(tmp_path / "data.json")
    content = json.loads(files[""].read_text())
    content[field] = value
    files[""].write_text(json.dumps(content))
    with pytest.raises(MalformedFileError, match=reason):
        wikics.parse(files)
