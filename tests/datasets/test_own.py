"""Users' graphs: the same graph from every object and file, hostile files, nodes without a label."""

import pickle
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dgl
import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsub import datasets
from fedsub.datasets import cli, own
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, as_scipy, build_dataset
from fedsub.datasets.own import as_own
from fedsub.datasets.partition import partition, statistics
from fedsub.datasets.partition.base import as_partition
from fedsub.datasets.summary import summarise
from fedsub.methods import tasks
from fedsub.methods.core.setting import make_setting

EDGES = np.array([[0, 1, 2, 3, 1], [1, 2, 3, 4, 0]])
FEATURES = np.array([[0.5, 1], [1, 2], [2, -1], [3, 0], [4, 7]], dtype=np.float32)
LABELS = np.array([0, 1, -1, 1, 0])
reads_safely = pytest.mark.skipif(not own.READS_SAFELY, reason="this torch might run code of a file")


def same(found: Dataset) -> bool:
    """Whether a graph is the five nodes above."""
    pairs = {(a, b) for a, b in zip(*(end.tolist() for end in found.graph.edges()), strict=True) if a < b}
    return (
        pairs == {(0, 1), (1, 2), (2, 3), (3, 4)}
        and (as_scipy(found.features).toarray() == FEATURES).all()
        and found.labels.tolist() == LABELS.tolist()
        and found.classes == 2
    )


def tensors() -> dict[str, torch.Tensor]:
    return {"edge_index": torch.tensor(EDGES), "x": torch.tensor(FEATURES), "y": torch.tensor(LABELS)}


def as_networkx() -> networkx.Graph:
    graph = networkx.Graph()
    for node, (row, label) in enumerate(zip(FEATURES.tolist(), LABELS.tolist(), strict=True)):
        graph.add_node(f"n{node}", x=row, label=label)
    graph.add_edges_from((f"n{a}", f"n{b}") for a, b in EDGES.T)
    return graph


def write_tables(folder: Path) -> None:
    rows = [
        f"p{node},{'' if label < 0 else 'ab'[label]},{first},{second}"
        for node, ((first, second), label) in enumerate(zip(FEATURES.tolist(), LABELS.tolist(), strict=True))
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,f1,f2", *rows]) + "\n")
    pairs = [f"p{a},p{b}" for a, b in EDGES.T]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs]) + "\n")


COUNTRY = np.array(["NA", "fr", "", "NA", "fr"])
HOSPITAL = np.array([7, 7, -1, 3, 3])
TRAIN = np.array([1, 0, 0, 0, 1], dtype=bool)
TEST = np.array([0, 1, 0, 1, 0], dtype=bool)


def known(found: Dataset) -> bool:
    """Whether the graph is the five nodes above, with its official split and the clients of each node."""
    clients = [partition(found, f"attribute[key={key}]", 2, 0) for key in ("country", "hospital")]
    return (
        same(found)
        and found.official is not None
        and (found.official == np.stack([TRAIN, np.zeros(5, dtype=bool), TEST])[:, None]).all()
        and found.attributes.keys() == {"country", "hospital"}
        and (found.attributes["country"] == COUNTRY).all()
        and (found.attributes["hospital"] == HOSPITAL).all()
        and [[nodes.tolist() for nodes in each.nodes] for each in clients]
        == [[[0, 3], [1, 4]], [[3, 4], [0, 1]]]
    )


MASKS = {"train_mask": torch.tensor(TRAIN), "test_mask": torch.tensor(TEST)}


def as_pyg() -> Any:
    """Return a PyG object with further attributes; those that are no integer or text per node are ignored."""
    # Imported where it is needed: it takes seconds.
    from torch_geometric.data import Data

    aside = {"pos": torch.rand(5, 3), "edge_attr": torch.rand(5, 1), "height": torch.rand(5)}
    return Data(**tensors(), **MASKS, **aside, country=COUNTRY.tolist(), hospital=torch.tensor(HOSPITAL))


def test_every_object_keeps_splits_and_attributes() -> None:
    fields = as_pyg().to_dict() | {"batch": None, "hospital": torch.tensor(HOSPITAL)[:, None]}
    told = SimpleNamespace(**tensors(), to_dict=lambda: fields)
    for each in (as_pyg(), fields, SimpleNamespace(**fields), told):
        assert known(datasets.from_pyg(each))
    assert known(as_own(as_pyg()))
    with pytest.raises(UserError, match="has no edge_index"):
        datasets.from_pyg(type(as_pyg())(x=torch.tensor(FEATURES), y=torch.tensor(LABELS)))

    graph = dgl.graph((torch.tensor(EDGES[0]), torch.tensor(EDGES[1])))
    content = {**MASKS, "hospital": torch.tensor(HOSPITAL), "pos": torch.rand(5, 3)}
    content |= {"feat": torch.tensor(FEATURES), "label": torch.tensor(LABELS)}
    for name, values in content.items():
        graph.ndata[name] = values
    found = datasets.from_dgl(graph)
    assert known(replace(found, attributes={**found.attributes, "country": COUNTRY}))

    plain = as_networkx()
    plain.add_edge("n0", "n1", weight=3)
    for node, name in enumerate(plain.nodes):
        plain.nodes[name].update(train_mask=bool(TRAIN[node]), test_mask=bool(TEST[node]), height=node / 3)
        if COUNTRY[node]:
            plain.nodes[name].update(country=str(COUNTRY[node]), hospital=int(HOSPITAL[node]))
    assert known(found := datasets.from_networkx(plain))
    assert "weight of edges" in found.note


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_networkx_nodes_may_hold_arrays_and_tensors(kind: Any) -> None:
    """As in `dgl.to_networkx(graph, node_attrs=["feat", "label"])`."""
    plain, scalars = as_networkx(), as_networkx()
    for graph in (plain, scalars):
        for _, content in graph.nodes(data=True):
            content["label"] = kind(content["label"])
            content["x"] = kind(content["x"])
    for _, content in scalars.nodes(data=True):
        content["a"], content["b"] = content.pop("x")
    for found in map(datasets.from_networkx, (plain, scalars)):
        assert same(found)
        assert not found.class_names


@reads_safely
def test_every_file_keeps_splits_and_attributes(tmp_path: Path) -> None:
    torch.save(as_pyg().to_dict(), tmp_path / "mine.pt")
    plain = as_networkx()
    plain.graph["node_default"] = {"country": "NA"}
    role = np.where(TRAIN, "train", np.where(TEST, "test", ""))
    for node, (name, content) in enumerate(plain.nodes(data=True)):
        content["f1"], content["f2"] = content.pop("x")
        plain.nodes[name].update(
            attribute_hospital=int(HOSPITAL[node]), country=str(COUNTRY[node]), split=str(role[node])
        )
    del plain.nodes["n0"]["country"]
    networkx.write_graphml(plain, tmp_path / "mine.graphml")
    write_tables(tmp_path)
    path = tmp_path / "nodes.csv"
    head, *rows = path.read_text().splitlines()
    more = [
        f"{row},{country},{'' if hospital < 0 else hospital},{split}"
        for row, country, hospital, split in zip(rows, COUNTRY, HOSPITAL, role, strict=True)
    ]
    path.write_text("\n".join([f"{head},country,attribute_hospital,split", *more]) + "\n")
    for name in ("mine.pt", "mine.graphml", "edges.csv", ""):
        found = datasets.load(str(tmp_path / name))
        assert known(found), name
        assert found.name == ("mine" if "mine" in name else tmp_path.name)
    archive = tmp_path / "mine.npz"
    assert cli.main(["export", str(tmp_path / "edges.csv"), "--output", str(archive)]) == 0
    assert known(datasets.load(str(archive)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"labels": torch.zeros(4, dtype=torch.int64)}, "every node a row of features and a label"),
        ({"features": torch.ones(5, 2, dtype=torch.float64)}, "float32"),
        ({"features": torch.ones(5, 2).to_sparse()}, "torch.sparse_coo: give them as float32, dense or CSR"),
        ({"features": FEATURES}, "the features of mine is a ndarray: give it in the type"),
        ({"official": np.ones((3, 0, 5), dtype=bool)}, "give masks, bool of shape"),
        ({"attributes": {"year": [1] * 5}}, "the attribute year of mine is a list"),
        ({"class_names": ("a",)}, "mine has 2 classes: give as many class_names, or none"),
        ({"labels": torch.tensor([0, 1, 2, 1, 0])}, "from 0 to 1"),
        ({"graph": dgl.graph(([0, 1], [1, 2]), num_nodes=5)}, "in one direction only"),
        ({"graph": dgl.graph(([0, 1, 1], [1, 0, 1]), num_nodes=5)}, "self-loops"),
        ({"graph": dgl.graph(([0, 1, 0, 1], [1, 0, 1, 0]), num_nodes=5)}, "more than once"),
    ],
)
def test_a_dataset_of_ones_own_is_checked(wrong: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Objects and plug-ins are checked: edges in only one direction would silently give another graph."""
    good = build_dataset("mine", EDGES[0], EDGES[1], FEATURES, LABELS)
    assert as_own(good) is good
    assert datasets.load(good) is good
    with pytest.raises(UserError, match="give a name or a path, not array"):
        datasets.partition.partition(good, np.zeros(5), 3)  # type: ignore[arg-type]
    bad = replace(good, **wrong)
    with pytest.raises(UserError, match=said):
        as_own(bad)
    plugin = tmp_path / "mine.py"
    plugin.write_text("from tests.datasets.test_own import HANDED\n\ndef load():\n    return HANDED[-1]\n")
    HANDED.append(bad)
    with pytest.raises(UserError, match=said):
        datasets.load(str(plugin))


HANDED: list[Dataset] = []


@reads_safely
def test_a_data_of_pyg_is_read_from_its_file(tmp_path: Path) -> None:
    from torch_geometric.data import Data, HeteroData

    path = tmp_path / "mine.pt"
    torch.save(as_pyg(), path)
    found = datasets.load(str(path))
    assert known(found)
    assert found.name == "mine"
    more, old = "more than tensors and a PyG Data", Data.__new__(Data)
    vars(old).update(tensors())
    for wrong, said in ((Data(**tensors(), more=Harmful()), more), (HeteroData(), more), (old, "older")):
        torch.save(wrong, path)
        with pytest.raises(UserError, match=said):
            datasets.load(str(path))
    assert not Path("harm").exists()


def test_several_official_splits() -> None:
    """As PyG's WikiCS: one mask of test nodes for all splits."""
    train = torch.eye(5, dtype=torch.bool)[:, :2]
    masks = {"train_mask": train, "val_mask": train.roll(2, 0), "test_mask": torch.tensor([0, 0, 0, 0, 1])}
    official = datasets.from_pyg({**tensors(), **masks}).official
    assert official is not None
    assert official.shape == (3, 2, 5)
    assert [np.flatnonzero(mask).tolist() for mask in official[:, 1]] == [[1], [3], [4]]


def test_what_is_no_attribute_is_left_out() -> None:
    held = {
        "long": ["x" * 201, "", "", "", ""],
        "mixed": ["a", 1, "b", 2, "c"],
        "huge": [2**70, 0, 0, 0, 0],
        "short": ["a", "b"],
        "endless": torch.tensor([torch.inf, 0, 0, 0, 0]),
        "sparse": torch.tensor([1, 0, 0, 0, 1]).to_sparse(),
        "objects": np.array([{}, {}, {}, {}, {}]),
    }
    found = datasets.from_pyg({**tensors(), **held, "split": ["a", "train", "test", "", ""]})
    assert found.attributes.keys() == {"split"}
    assert found.official is None


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("harm"),)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pt", pickle.dumps(Harmful()), "cannot read .*a.pt"),
        ("b.pt", b"no tensors", "cannot read .*b.pt"),
        ("c.graphml", b"<graphml><oops>", "cannot read .*c.graphml"),
        ("d.csv", b"source,target\n0,1\n", "there is no .*nodes.csv"),
        ("e.graphml", b'<graphml><key attr.type="boolean"><default/></key></graphml>', "read .*e.graphml"),
        ("a" * 300, None, "File name too long; check the path and its permissions"),
        ("nope", None, "there is no graph at .*nope: check the path"),
        ("nope.csv", None, "there is no graph at .*nope.csv: check the path"),
    ],
)
def test_files_that_are_no_graph_are_sentences(
    name: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        datasets.load(str(tmp_path / name))
    assert not Path("harm").exists()


def test_the_advice_for_several_kinds_of_edges_gives_the_graph() -> None:
    ends = torch.tensor(EDGES)
    relations = {("a", "r", "a"): (ends[0, :3], ends[1, :3]), ("a", "s", "a"): (ends[0, 3:], ends[1, 3:])}
    graph = dgl.heterograph(relations, {"a": len(LABELS)})
    graph.ndata["feat"], graph.ndata["label"] = torch.tensor(FEATURES), torch.tensor(LABELS)
    with pytest.raises(UserError, match="several kinds") as refused:
        datasets.from_dgl(graph)
    (advice,) = re.findall(r"give dgl\.to_homogeneous\(graph, ndata=(\[.*?\])\)", str(refused.value))
    assert same(datasets.from_dgl(dgl.to_homogeneous(graph, ndata=re.findall(r"\w+", advice))))


def nested(depth: int) -> list[object]:
    """Return nested lists of five, `depth` deep; small in memory, since each level is stored once."""
    inner: list[object] = [1.0] * 5
    for _ in range(depth):
        inner = [inner] * 5
    return inner


@reads_safely
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": torch.zeros(1, 1).expand(5, 10**9)}, "bytes unpack to 20,000,000,"),
        ({"x": torch.eye(5).to_sparse().sparse_resize_((5, 10**9), 2, 0)}, "bytes unpack to 20,000,000,"),
        ({"y": torch.zeros(1, dtype=torch.long).expand(10**9)}, "bytes unpack to 8,000,000,"),
        ({"further": torch.zeros(1).expand(10**9)}, "bytes unpack to 4,000,000,"),
        ({"y": ["ab" * 100 + "c"] * 5}, "a label has 201 characters, but the maximum is 200"),
        ({"x": nested(12)}, "its x is a list of lists or objects; save a tensor"),
    ],
)
def test_a_small_file_that_asks_for_much_memory_is_a_sentence(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.pt"
    torch.save({**tensors(), **change}, path)
    assert path.stat().st_size < 10_000
    with pytest.raises(UserError, match=said):
        datasets.load(str(path))


def test_a_torch_that_might_run_code_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "READS_SAFELY", False)
    torch.save(tensors(), tmp_path / "mine.pt")
    with pytest.raises(UserError, match="might run code in it; save an npz file"):
        datasets.load(str(tmp_path / "mine.pt"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": None}, "has no y or label"),
        ({"feat": torch.rand(5, 2)}, "graph has x and feat: keep one, and rename or remove the others"),
        ({"y": torch.tensor([0.5, 1, 1, 1, 1])}, "whole numbers"),
        ({"x": [[1], [1, 2], [1], [1], [1]]}, "features cannot be read as an array"),
        ({"edge_index": torch.tensor([[0, 1, 2]])}, "give \\(2, edges\\)"),
        ({"train_mask": TRAIN, "test_mask": TRAIN}, "its split gives a node two roles; correct the graph"),
    ],
)
def test_parts_that_do_not_fit_are_sentences(change: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        datasets.from_pyg({**tensors(), **change})


NODES = "id,label,f1\n0,0,1.5\n1,1,2\n2,0,3\n3,1,4\n"
ENDS = "source,target\n0,1\n1,2\n2,3\n"


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        (NODES, "source,target\n0,1,2\n1,2,3\n2,3,1\n", "edges.csv has more fields than the first"),
        (NODES, "0,1\n1,2\n2,3\n", "edges.csv begins with an edge"),
        (",id,label,f1\n0,0,0,1.5\n1,1,1,2\n", ENDS, "first column of .*nodes.csv has no name"),
        (NODES.replace("f1", "y"), ENDS, "has y and label: keep one"),
        (NODES.replace("f1", "label"), ENDS, "nodes.csv names two columns 'label' in its first row"),
        (NODES.replace("1.5", ""), ENDS, "has nodes without f1"),
    ],
)
def test_tables_that_would_be_read_as_another_graph_are_sentences(
    nodes: str, edges: str, said: str, tmp_path: Path
) -> None:
    """Rows longer than the header, row numbers of pandas, no header, a second column of labels."""
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text(edges)
    with pytest.raises(UserError, match=said):
        datasets.load(f"{tmp_path}/")


def test_labels_are_read_all_at_once(tmp_path: Path) -> None:
    """If read in chunks, the first chunks would be numbers, and 1 would be another class than "1"."""
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n2,3\n")
    rows = 300_000
    labels = ["", *[str(1 + row % 3) for row in range(1, rows - 1)], "other"]
    lines = (f"{row},{label},1" for row, label in enumerate(labels))
    (tmp_path / "nodes.csv").write_text("id,label,f1\n" + "\n".join(lines) + "\n")
    assert datasets.load(tmp_path).classes == 4


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_features_of_every_precision(kind: torch.dtype) -> None:
    found = datasets.from_pyg({**tensors(), "x": torch.tensor(FEATURES, dtype=kind)})
    assert same(found)
    assert found.features.dtype == torch.float32


@settings(max_examples=20)
@given(
    share=st.floats(0.05, 0.8),
    seed=st.integers(0, 2**16),
    scheme=st.sampled_from(["ratio", "ratio-per-client", "per-class[train=3,test=5]"]),
)
def test_nodes_without_a_label_are_never_trained_validated_or_tested_on(
    share: float, seed: int, scheme: str
) -> None:
    full = datasets.load("community", nodes=300)
    generator = np.random.default_rng(seed)
    hidden = torch.from_numpy(generator.random(300) < share)
    labels = torch.where(hidden, -1, full.labels)
    graph = Dataset(full.name, full.graph, full.features, labels, full.classes)
    parts = partition(graph, "metis", 3, 0)
    split = datasets.make_split(labels, parts, scheme, seed, graph.classes)
    federation = datasets.federate(graph, parts, split)
    unlabelled = federation.labels < 0
    assert not ((federation.train | federation.validation | federation.test) & unlabelled).any()
    # The outputs of unlabelled nodes change no loss and no metric.
    wanted = [
        name
        for name in tasks.metrics.names()
        if "node-classification" in tasks.metrics.find(name).tasks
        and name not in (*tasks.NodeClassification.default, "roc_auc")
    ]
    task = make_setting(federation, metrics=wanted).task
    output = torch.randn(federation.nodes, graph.classes, generator=torch.Generator().manual_seed(seed))
    other = torch.where(unlabelled.unsqueeze(1), 1000 * torch.randn_like(output), output)
    assert torch.equal(task.loss(output), task.loss(other))
    assert torch.equal(task.client_loss(output), task.client_loss(other))
    before, after = task.evaluate(output), task.evaluate(other)
    assert before.validation_loss == pytest.approx(after.validation_loss, nan_ok=True)
    for name in before.test:
        torch.testing.assert_close(before.test[name].value, after.test[name].value, equal_nan=True)
    assert int(statistics.label_counts(graph, parts).sum()) == int((~hidden).sum())
    assert summarise(graph).largest_class <= 1


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("scheme", ["ratio", "ratio-per-client"])
def test_shares_are_of_the_labelled_nodes(scheme: str, stratified: bool) -> None:
    """Of 10 labelled nodes among 40 two are trained on; of 5 at each of two clients, one each."""
    labels = np.where(np.arange(40) % 4 == 0, np.arange(40) // 4 % 2, -1)
    parts = as_partition("halves", np.arange(40) % 8 // 4, 40, 2)
    written = f"{scheme}[train=0.2,validation=0.4,test=0.4,stratified={str(stratified).lower()}]"
    for seed in range(5):
        split = datasets.make_split(labels, parts, written, seed, 2)
        counts = [int(mask.sum()) for mask in (split.train, split.validation, split.test)]
        assert counts == [2, 4, 4]
        if scheme == "ratio-per-client" or stratified:
            assert split.train.any()
