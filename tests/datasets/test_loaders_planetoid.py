"""Planetoid's pickles: read through a restricted unpickler, isolated test nodes included."""

import io
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedsub.datasets.loaders import planetoid
from fedsub.datasets.loaders.pickles import as_array, load_pickle
from fedsub.datasets.loaders.planetoid import parse
from fedsub.datasets.loaders.raw import MalformedFileError
from tests.datasets import formats

PYTHON2_ARRAY = (
    b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03"
    b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R"
    b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"\x89U\x08\x01\x00\x00\x00\xfe\xff\xff\xfftb."
)
"""What Python 2 wrote for numpy.array([1, -2], dtype='int32'): content as a string, not bytes."""


@pytest.mark.parametrize("number", [b"\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\xff\x00\x00\x00"])
def test_a_pickle_that_asks_for_more_room_than_it_fills_is_refused(number: bytes, tmp_path: Path):
    with pytest.raises(MalformedFileError, match="kept under the number"):
        load_pickle(io.BytesIO(b"\x80\x02]r" + number + b"."), tmp_path / "x")


def test_shuffled_test_rows_come_back_in_node_order(tmp_path: Path):
    raw = parse(formats.write_planetoid(tmp_path, test=[10, 8, 11, 9], start=8))
    np.testing.assert_array_equal(raw.features.toarray(), formats.DENSE)
    np.testing.assert_array_equal(raw.labels, formats.LABELS)
    assert raw.features.dtype == np.float32
    pairs = set(zip(raw.source.tolist(), raw.target.tolist(), strict=True))
    assert set(zip(formats.SOURCE.tolist(), formats.TARGET.tolist(), strict=True)) <= pairs


def test_the_public_split_comes_with_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = formats.write_planetoid(tmp_path, test=[11, 8, 10], start=8)
    assert planetoid.parse(files).official is None
    for name, nodes in (("TRAIN_PER_CLASS", 2), ("VALIDATION", 1), ("TEST", 3)):
        monkeypatch.setattr(planetoid, name, nodes)
    raw = planetoid.parse(files)
    split = [[0, 1, 2, 3, 4, 5], [6], [8, 10, 11]]
    assert raw.official is not None
    assert [np.flatnonzero(mask).tolist() for mask in raw.official[:, 0]] == split
    rebuilt = planetoid.split_of_archive(replace(raw, official=None))
    assert rebuilt is not None
    assert np.array_equal(rebuilt, raw.official)
    shuffled = replace(raw, labels=raw.labels[::-1].copy())
    shuffled.labels[0] = shuffled.labels[1]
    assert planetoid.split_of_archive(shuffled) is None
    for node in (0, 11):
        unlabelled = replace(raw, labels=raw.labels.copy())
        unlabelled.labels[node] = -1
        assert planetoid.split_of_archive(unlabelled) is None


def test_isolated_test_nodes_get_empty_features(tmp_path: Path):
    # as in CiteSeer: nodes 9 and 10 have no row although 11 has
    raw = parse(formats.write_planetoid(tmp_path, test=[11, 8], start=8))
    assert len(raw.labels) == 12
    assert raw.features[[9, 10]].nnz == 0
    np.testing.assert_array_equal(raw.labels[[9, 10]], 0)
    np.testing.assert_array_equal(raw.features[[8, 11]].toarray(), formats.DENSE[[8, 11]])
    np.testing.assert_array_equal(raw.labels[[8, 11]], formats.LABELS[[8, 11]])


def test_reads_what_python_2_wrote(tmp_path: Path):
    path = tmp_path / "array"
    path.write_bytes(PYTHON2_ARRAY)
    with path.open("rb") as stream:
        array = as_array(load_pickle(stream, path), path)
    np.testing.assert_array_equal(array, [1, -2])


class Hostile:
    """Pickles to a call of whatever function it is given."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("function", [os.system, eval, exec, getattr, __import__, open, np.load])
def test_hostile_pickle_is_refused_and_not_run(tmp_path: Path, function: object):
    files = formats.write_planetoid(tmp_path, test=[8, 9, 10, 11], start=8)
    witness = tmp_path / "witness"
    files["graph"].write_bytes(pickle.dumps(Hostile(function, f"touch {witness}"), protocol=2))
    with pytest.raises(MalformedFileError, match=r"refused"):
        parse(files)
    assert not witness.exists()


@pytest.mark.parametrize("part", ["allx", "ally", "tx", "ty", "graph", "test.index"])
@pytest.mark.parametrize("damage", ["truncated", "garbage"])
def test_damaged_parts_name_the_file(tmp_path: Path, part: str, damage: str):
    files = formats.write_planetoid(tmp_path, test=[8, 9, 10, 11], start=8)
    content = files[part].read_bytes()
    files[part].write_bytes(content[: len(content) // 3] if damage == "truncated" else b"\xff no\n" * 9)
    with pytest.raises(MalformedFileError, match="cannot read"):
        parse(files)


@settings(max_examples=60)
@given(
    part=st.sampled_from(["allx", "ally", "tx", "ty"]),
    content=arrays(
        st.sampled_from([np.int8, np.uint64, np.float16, np.float32, np.float64, np.bool_]),
        array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    ),
)
def test_any_array_as_a_part_is_refused_or_a_graph(tmp_path_factory, part: str, content: np.ndarray):
    files = formats.write_planetoid(tmp_path_factory.mktemp("part"), test=[8, 9, 10, 11], start=8)
    files[part].write_bytes(formats.python2_pickle(content))
    try:
        raw = parse(files)
    except MalformedFileError:
        return
    assert raw.features.shape == (12, 5)
    assert len(raw.labels) == 12
