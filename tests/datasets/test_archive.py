"""The project's own file format: nothing lost, nothing torn, damage is one sentence."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub.datasets.archive import as_dataset, as_raw, read_archive, write_archive
from fedsub.datasets.errors import UserError
from fedsub.datasets.loaders.raw import RawGraph
from tests.datasets import formats

HEAD = b"\x93NUMPY\x01\0\x80\0{'descr': %s, 'fortran_order': False, 'shape': (%s,)}" + b" " * 128
"""The beginning of an array's file."""


def tiny(features: object = formats.SPARSE) -> RawGraph:
    return RawGraph(formats.SOURCE, formats.TARGET, features, formats.LABELS)


def changed(folder: Path, raw: RawGraph, **arrays: object) -> Path:
    """An archive with other `arrays`; None leaves one out, bytes are written as they are."""
    path = folder / "tiny.npz"
    write_archive(path, raw, {"name": "tiny"})
    with np.load(path) as content:
        kept = {**content, **arrays}
    stored = {name: values for name, values in kept.items() if isinstance(values, np.ndarray)}
    np.savez_compressed(path, **stored)  # type: ignore[arg-type]
    with zipfile.ZipFile(path, "a") as members:
        for name, values in kept.items():
            if isinstance(values, bytes):
                members.writestr(f"{name}.npy", values)
    return path


@pytest.mark.parametrize(
    ("features", "stored"),
    [
        (formats.DENSE, np.uint8),
        (formats.DENSE + 0.25, np.float32),
        (-formats.DENSE, np.float32),
        (formats.DENSE > 0, np.uint8),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_round_trip_keeps_every_value(tmp_path: Path, features: np.ndarray, stored: type, sparse: bool):
    path = tmp_path / "deep" / "tiny.npz"
    write_archive(path, tiny(sp.csr_matrix(features) if sparse else features), {"name": "tiny", "note": "ä"})
    raw, meta = read_archive(path)
    read = raw.features.toarray() if sparse else raw.features
    np.testing.assert_array_equal(read.astype(np.float32), features.astype(np.float32))
    assert read.dtype == stored
    np.testing.assert_array_equal(raw.source, formats.SOURCE)
    np.testing.assert_array_equal(raw.target, formats.TARGET)
    np.testing.assert_array_equal(raw.labels, formats.LABELS)
    assert meta == {"name": "tiny", "note": "ä"}


def test_published_splits_and_attributes_survive(tmp_path: Path):
    attributes = {"year": np.arange(formats.NODES), "country": np.array(["ä", "bc"] * 6)}
    before = replace(tiny(), official=formats.MASKS, attributes=attributes)
    write_archive(tmp_path / "tiny.npz", as_raw(as_dataset("tiny", before)), {})
    after = as_dataset("tiny", read_archive(tmp_path / "tiny.npz")[0])
    np.testing.assert_array_equal(after.official, formats.MASKS)
    assert {name: values.tolist() for name, values in after.attributes.items()} == {
        name: values.tolist() for name, values in attributes.items()
    }


def test_half_precision_stays_so(tmp_path: Path):
    features = (formats.DENSE + 0.25).astype(np.float16)
    write_archive(tmp_path / "tiny.npz", tiny(features), {})
    raw, _ = read_archive(tmp_path / "tiny.npz")
    assert raw.features.dtype == np.float16
    np.testing.assert_array_equal(raw.features, features)


@settings(max_examples=25)
@given(
    nodes=st.integers(1, 12),
    pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
    columns=st.integers(1, 4),
)
def test_dataset_survives_export(tmp_path_factory, nodes: int, pairs: list[tuple[int, int]], columns: int):
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2) % nodes
    features = np.arange(nodes * columns, dtype=np.float32).reshape(nodes, columns) % 3
    labels = np.arange(nodes) % 2
    before = as_dataset("g", RawGraph(ends[:, 0], ends[:, 1], features, labels))
    path = tmp_path_factory.mktemp("export") / "g.npz"
    write_archive(path, as_raw(before), {})
    after = as_dataset("g", read_archive(path)[0])
    for one, other in zip(before.graph.edges(), after.graph.edges(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(before.labels, after.labels)
    assert torch.equal(before.features.to_dense(), after.features.to_dense())


def test_more_classes_than_a_short_integer_holds_survive(tmp_path: Path):
    labels = np.arange(np.iinfo(np.int16).max + 3)
    none = np.empty(0, dtype=np.int64)
    raw = RawGraph(none, none, np.zeros((len(labels), 1), dtype=np.float32), labels)
    write_archive(tmp_path / "many.npz", raw, {})
    assert np.array_equal(read_archive(tmp_path / "many.npz")[0].labels, labels)


@settings(max_examples=60)
@given(data=st.data())
def test_any_flipped_byte_is_noticed_or_harmless(tmp_path_factory, data: st.DataObject):
    path = tmp_path_factory.mktemp("flip") / "tiny.npz"
    write_archive(path, tiny(), {"name": "tiny"})
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    try:
        raw, _ = read_archive(path)
    except UserError:
        pass
    else:
        np.testing.assert_array_equal(raw.features.toarray(), formats.DENSE)
        np.testing.assert_array_equal(raw.labels, formats.LABELS)


@pytest.mark.parametrize("length", [0, 1, 30, 500, -1])
def test_truncated_archive(tmp_path: Path, length: int):
    path = tmp_path / "tiny.npz"
    write_archive(path, tiny(), {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match="truncated"):
        read_archive(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"feat": np.zeros((12, 10**6), dtype=np.int8)}, "bytes unpack to 12,00"),
        ({"feat_shape": np.array([12, 2**31 - 1])}, "the features have 2,147,483,647 columns for"),
    ],
)
def test_a_small_file_that_asks_for_much_memory_is_not_read(
    tmp_path: Path, change: dict[str, np.ndarray], reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fedsub.datasets.loaders.raw.UNPACKED_BYTES", 10**7)
    path = changed(tmp_path, tiny(), **change)
    assert path.stat().st_size < 10**6
    with pytest.raises(UserError, match=reason):
        read_archive(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"label": b"no array"}, "'label' is damaged"),
        ({"label": HEAD % (b"()", b"12")}, "'label' is damaged"),
        ({"label": HEAD % (b"'<i8'", b"2" * 30)}, "'label' is damaged"),
        ({"edge_dst": np.full(14, 12)}, "outside its 12 nodes"),
        ({"label": np.zeros(5, dtype=int)}, "12 feature rows but 5 labels"),
        ({"feat_indptr": np.zeros(13, dtype=int)}, "row pointers"),
        ({"feat_indices": np.full(formats.SPARSE.nnz, -1)}, "outside its 5 columns"),
        ({"feat_indptr": np.array([0, 2**63 - 1, -2, *[20] * 9, formats.SPARSE.nnz])}, "row pointers"),
        ({"feat": np.full((12, 2), 1e300)}, "not finite|single precision"),
        ({"label": np.array([2**50, *[0] * 11])}, "at most 12 classes"),
        ({"meta": np.array('{"classes": 2}')}, "a label is 2 but the file states 2 classes"),
        ({"meta": np.array('{"classes": 40000}'), "label": np.arange(12) + 1}, "at most 12 classes"),
        ({"edge_dst": np.full(14, 1.9)}, "integer lists"),
        ({"split_test": None}, "'split_test' is missing"),
        ({"split_test": formats.MASKS[2, :, 1:]}, "its split masks are not true or false for each of 12"),
        ({"split_test": formats.MASKS[1]}, "gives a node two roles"),
        ({"attribute_x": np.arange(3)}, "its attribute x is not one integer or text per node"),
        ({"attribute_x": np.array([None] * formats.NODES)}, "'attribute_x' is damaged or holds objects"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, change: dict[str, np.ndarray], reason: str):
    official = formats.MASKS if "split_test" in change else None
    path = changed(tmp_path, replace(tiny(), official=official), **change)
    with pytest.raises(UserError, match=reason):
        read_archive(path)


NUMBERS = st.one_of(
    st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 4, 2**31, 2**62, 2**64 - 1, 0.5, np.nan, np.inf, "x"]),
    st.integers(-2, 12),
)


@settings(max_examples=100)
@given(
    key=st.sampled_from(
        ["feat", "feat_data", "feat_indices", "feat_indptr", "feat_shape", "edge_src", "edge_dst", "label"]
    ),
    values=st.one_of(
        NUMBERS, st.lists(NUMBERS, max_size=14), st.lists(st.lists(NUMBERS, min_size=2, max_size=2))
    ),
)
def test_any_array_in_place_of_another_is_refused_or_a_graph(tmp_path_factory, key: str, values: object):
    path = tmp_path_factory.mktemp("swap") / "tiny.npz"
    write_archive(path, tiny(), {"name": "tiny"})
    stored = np.array(values)
    if stored.dtype == object:  # integers of more than 64 bits with others
        stored = stored.astype(np.float64)
    with np.load(path) as content:
        arrays = {**content, key: stored}
    np.savez(path, **arrays)
    try:
        raw, _ = read_archive(path)
    except UserError:
        return
    dataset = as_dataset("swapped", raw)
    assert dataset.nodes == len(dataset.labels) == len(dataset.features)
    np.testing.assert_array_equal(raw.source, arrays["edge_src"])
    np.testing.assert_array_equal(raw.target, arrays["edge_dst"])


def test_unwritable_folder_leaves_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="FEDSUB_CACHE"):
        write_archive(tmp_path / "file" / "tiny.npz", tiny(), {})


def test_features_take_the_faster_form():
    nothing, labels = np.zeros(0, dtype=int), np.zeros(30, dtype=int)
    wide = np.ones((30, 2000), dtype=np.float32)
    assert as_dataset("wide", RawGraph(nothing, nothing, wide, labels)).features.layout is torch.sparse_csr
    filled = sp.csr_matrix(np.ones((30, 20), dtype=np.float32))
    assert as_dataset("filled", RawGraph(nothing, nothing, filled, labels)).features.layout is torch.strided
