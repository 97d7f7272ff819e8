"""Users' tables: read as intended, or refused with the column's name."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedsub import datasets
from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset, as_scipy, standardised

FEATURES = ["0.5", "1.5", "2.5", "3.5"]
PAIRS = [("7", "5"), ("5", "9"), ("9", "4")]
IDS = ["5", "7", "9", "4"]


def write(
    folder: Path,
    labels: list[str] = ["a", "b", "a", "b"],  # noqa: B006
    ends: str = "source,target",
    columns: dict[str, list[str]] | None = None,
    identity: str = "id",
    separator: str = ",",
) -> Dataset:
    """Return the graph of a path of four nodes, 7 5 9 4, read from tables in this spelling."""
    table = {identity: IDS, "label": labels, **({"f1": FEATURES} if columns is None else columns)}
    rows = [list(table), *map(list, zip(*table.values(), strict=True))]
    (folder / "nodes.csv").write_text("\n".join(separator.join(row) for row in rows) + "\n")
    names = ends.split(",")
    lines = [names]
    for number, pair in enumerate(PAIRS):
        others = iter(pair)
        plain = names if len(names) == 2 else [name for name in names if name not in ("weight", "edge_id")]
        lines.append([next(others, "9") if name in plain else str(number) for name in names])
    (folder / "edges.csv").write_text("\n".join(separator.join(line) for line in lines) + "\n")
    return datasets.load(f"{folder}/")


def is_path(found: Dataset) -> bool:
    pairs = {(a, b) for a, b in zip(*(end.tolist() for end in found.graph.edges()), strict=True) if a < b}
    return pairs == {(0, 1), (0, 2), (2, 3)} and found.features[:, 0].tolist() == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("separator", [",", ", ", ";", "\t", " , "])
def test_separators_and_spaces(separator: str, tmp_path: Path) -> None:
    found = write(tmp_path, separator=separator)
    assert is_path(found)
    assert found.class_names == ("a", "b")


@pytest.mark.parametrize("name", ["txId", "uid", "name", "node_id", "account"])
def test_ids_of_another_name_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"has a column '{name}' and none called id: call the column"):
        write(tmp_path, identity=name)


def test_rows_without_ids_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    (tmp_path / "nodes.csv").write_text("label,f1\n0,5\n1,6\n0,7\n")
    assert datasets.load(f"{tmp_path}/").undirected_edges == 2
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,8\n")
    with pytest.raises(UserError, match=r"names the node 8, which is not in .*: call the column"):
        datasets.load(f"{tmp_path}/")
    (tmp_path / "edges.csv").write_text("source,target\n")
    assert datasets.load(f"{tmp_path}/").undirected_edges == 0


@pytest.mark.parametrize(
    "ends",
    [
        "source,target", "edge_id,source,target", "weight,source,target", "source,weight,target", "src,dst",
        "weight,from,to", "edge_id,src_id,dst_id", "txId1,txId2", "id_1,id_2,weight", "weight,Source,Target",
        "weight,node_a,node_b", "lender,borrower", "source,target,from,to",
    ],
)  # fmt: skip
def test_ends_of_edges_are_found_by_their_names(ends: str, tmp_path: Path) -> None:
    found = write(tmp_path, ends=ends)
    assert is_path(found)
    for name in ("weight", "edge_id"):
        assert (f"{name} of edges.csv" in found.note) == (name in ends)


@pytest.mark.parametrize("ends", ["weight,lender,owner", "edge_id,source,owner", "source,weight", "a,b,u,v"])
def test_ends_that_cannot_be_told_are_refused(ends: str, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=f"has the columns {ends.replace(',', ', ')}: call .* source and target"
    ):
        write(tmp_path, ends=ends)


@pytest.mark.parametrize(
    ("labels", "codes", "names"),
    [
        (["fraud", "ok ", " ok", "fraud "], [0, 1, 1, 0], ("fraud", "ok")),
        (["fraud", "", "ok", ""], [0, -1, 1, -1], ("fraud", "ok")),
        (["1", "NA", "0", ""], [1, -1, 0, -1], ()),
        (["1", "?", "0", "1"], [1, -1, 0, 1], ("0", "1")),
        (["1", "-1", "0", "1"], [1, -1, 0, 1], ()),
        (["NA", "EU", "AS", ""], [2, 1, 0, -1], ("AS", "EU", "NA")),
    ],
)
def test_labels_as_people_write_them(
    labels: list[str], codes: list[int], names: tuple[str, ...], tmp_path: Path
) -> None:
    found = write(tmp_path, labels=labels)
    assert (found.labels.tolist(), found.class_names) == (codes, names)


@pytest.mark.parametrize("labels", [["1", "-1", "1", "-1"], ["fraud", "", "fraud", ""]])
def test_one_class_alone_is_refused_where_others_are_read_as_none(labels: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"all labelled nodes of .* are of class {labels[0]}. -1 and none"):
        write(tmp_path, labels=labels)


@pytest.mark.parametrize(
    "spelt", ["[{}, 2.0]", "[{} 2.0]", "{} 2.0", "{}, 2.0", "[np.float64({}), np.float64(2.0)]", "({};2)"]
)
def test_lists_of_features_may_be_text(spelt: str, tmp_path: Path) -> None:
    fields = [f'"{spelt.format(value)}"' for value in FEATURES]
    found = write(tmp_path, columns={"x": fields, "age": ["1", "2", "3", "4"]})
    assert is_path(found)
    assert found.features[:, 1].tolist() == [2, 2, 2, 2]
    assert found.attributes["age"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": ["[1, 2]", "[1]", "[1, 2]", "[3, 4]"]}, "x must be numbers, the same number for every node"),
        ({"feat": ["old", "young", "old", "old"], "f1": FEATURES}, "feat of .* in row 0 .*'old'"),
        ({"x": ["1,234", "1,5", "2,5", "3,5"]}, "x of .* in row 0 .*'1,234'"),
        (
            {"f1": FEATURES, "sum": ["1,234", "2,000", "5", "1,100"]},
            "sum of .* holds numbers, but the text '1,234' in row 0",
        ),
        # Whose pattern must not take quadratic time.
        ({"f1": FEATURES, "sum": ["$3", "4 %", "- 5", f"6{' ' * 300_000}x"]}, "sum of .* the text"),
        ({"f1": FEATURES, "paid": ["True", "", "False", "True"]}, "has nodes without paid: fill it in"),
        ({"x": ["1 2"] * 4, "feat": FEATURES}, "has x and feat: keep one"),
        ({"f1": FEATURES, "sum": ["$3", "$4", "€5", "-$1"]}, r"sum of .* the text '\$3' in row 0"),
        (
            {"f1": FEATURES, "train": ["1", "0", "0", "0"], "test": ["0", "1", "0", "0"]},
            "columns train and test",
        ),
        ({"f1": FEATURES, "split": ["0", "1", "2", "2"]}, "has numbers in its column split: write train"),
        ({"f1": [*FEATURES[:3], "1e38"]}, "a feature is 1e.38, but the maximum .* is 1e.12"),
    ],
)
def test_features_that_cannot_be_read_as_meant_are_refused(
    columns: dict[str, list[str]], said: str, tmp_path: Path
) -> None:
    quoted = {
        name: [f'"{value}"' if "," in value else value for value in values]
        for name, values in columns.items()
    }
    with pytest.raises(UserError, match=said):
        write(tmp_path, columns=quoted)


@pytest.mark.parametrize("name", ["val_mask", "valid_mask", "validation_mask", "dev_mask"])
def test_masks_of_other_names(name: str, tmp_path: Path) -> None:
    roles = {"train_mask": ["True", "False"] * 2, name: ["False", "True", "False", "False"]}
    roles["test_mask"] = ["False", "False", "False", "True"]
    found = write(tmp_path, columns={"f1": FEATURES, **roles})
    assert is_path(found)
    assert found.features.shape[1] == 1
    assert found.official is not None
    assert found.official.sum(axis=(1, 2)).tolist() == [2, 1, 1]
    masks = {key: torch.tensor([value == "True" for value in values]) for key, values in roles.items()}
    given = {"x": torch.rand(4, 1), "y": torch.tensor([0, 1, 0, 1]), "edge_index": torch.tensor([[0], [1]])}
    again = datasets.from_pyg({**given, **masks}).official
    assert again is not None
    assert (again == found.official).all()
    masks["hold_mask"] = masks.pop(name)
    with pytest.raises(UserError, match="graph has hold_mask beside train_mask and test_mask"):
        datasets.from_pyg({**given, **masks})
    with pytest.raises(UserError, match="has val_mask and dev_mask beside"):
        datasets.from_pyg({**given, **masks, "val_mask": masks["hold_mask"], "dev_mask": masks["hold_mask"]})


def test_standardised_features_have_mean_0_and_deviation_1() -> None:
    for name in ("community[nodes=100]", "synthetic_figure1"):
        found = standardised(datasets.load(name)).features.numpy().astype(np.float64)
        before = as_scipy(datasets.load(name).features).toarray()
        varied = before.std(axis=0) > 0
        assert np.allclose(found.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(found.std(axis=0)[varied], 1, atol=1e-4)
        assert (found[:, ~varied] == 0).all()
