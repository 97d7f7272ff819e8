"""The other upstream formats: the same small graph comes back, damage is one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedsub.datasets.archive import as_dataset
from fedsub.datasets.loaders import am_gcn, gnn_benchmark, graphsaint, heterophilous, ogb, wikics
from fedsub.datasets.loaders.raw import MalformedFileError, RawGraph
from tests.datasets import formats

WRITERS = {
    "gnn_benchmark": (formats.write_gnn_benchmark, gnn_benchmark.parse, "tiny.npz"),
    "heterophilous": (formats.write_heterophilous, heterophilous.parse, "tiny.npz"),
    "am_gcn": (formats.write_am_gcn, am_gcn.parse, "tiny.zip"),
    "wikics": (formats.write_wikics, wikics.parse, "data.json"),
    "graphsaint": (formats.write_graphsaint, graphsaint.parse, "flickr.zip"),
    "ogb": (formats.write_ogb, ogb.parse, "arxiv.zip"),
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


def test_the_split_comes_with_ogbs_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = formats.write_ogb(tmp_path / "arxiv.zip")
    official = ogb.parse(files).official
    assert official is not None
    assert [np.flatnonzero(mask).tolist() for mask in official[:, 0]] == [[*range(6)], [6, 8], [7, 9, 10]]
    # More than a packed table and less than one unpacked.
    monkeypatch.setattr("fedsub.datasets.loaders.raw.UNPACKED_BYTES", 110)
    monkeypatch.setattr("fedsub.datasets.loaders.raw.UNPACKED_RATIO", 0)
    with pytest.raises(MalformedFileError, match="bytes unpack to 120, more"):
        ogb.parse(files)


@pytest.mark.parametrize("member", [*ogb.MEMBERS, *ogb.ROLES])
def test_missing_members_of_ogb_are_named(tmp_path: Path, member: str):
    with pytest.raises(MalformedFileError, match=member):
        ogb.parse(formats.write_ogb(tmp_path / "arxiv.zip", without=member.removeprefix("raw/")))


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("class_map.json", b"[1, 2]", "its members are not GraphSAINT's"),
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


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("labels", [0] * 11, "12 feature rows but 11 labels"),
        ("links", [[99]] + [[]] * 11, "outside its 12 nodes"),
        ("features", [[float("nan")]] * 12, "not finite"),
    ],
)
def test_inconsistent_content_is_refused(tmp_path: Path, field: str, value: object, reason: str):
    files = formats.write_wikics(tmp_path / "data.json")
    content = json.loads(files[""].read_text())
    content[field] = value
    files[""].write_text(json.dumps(content))
    with pytest.raises(MalformedFileError, match=reason):
        wikics.parse(files)
