"""Records as frames: what is a row, what is averaged, and what is said where nothing can be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from fedsub.benchmark.analysis.frame import Results, across, select
from fedsub.benchmark.records.record import Record
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import failed, make_cell, make_record, write_method


def scores(*values: float | None, method: str = "fedavg") -> tuple[Record, ...]:
    return tuple(make_record(make_cell(seed=seed, method=method), each) for seed, each in enumerate(values))


def test_means_and_sample_deviations_are_over_seeds() -> None:
    found = Results((*scores(50.0, 52.0), *scores(61.0, method="local")))
    assert found.pivot()["cora"].to_dict() == {"fedavg": "51.00 ± 1.41", "local": "61.00"}
    numbers = found.pivot(text=False)["cora"]
    assert numbers["runs"].to_dict() == {"fedavg": 2, "local": 1}


def test_what_was_not_scored_is_an_empty_field() -> None:
    found = Results((*scores(50.0, None, 52.0), *scores(None, None, method="local")))
    assert found.pivot()["cora"].to_dict() == {"fedavg": "51.00 ± 1.41", "local": ""}
    assert Results(scores(None, None)).pivot()["cora"].to_dict() == {"fedavg": ""}


def test_a_failure_is_a_row_and_no_part_of_means_and_curves() -> None:
    broken = failed(make_cell(seed=1, method="local"), "it was told to fail")
    found = Results((*scores(50.0), broken))
    assert found.frame()["status"].tolist() == ["ok", "failed"]
    assert [*found.pivot().index] == ["fedavg"]
    assert set(found.curves()["method"]) == {"fedavg"}
    assert (len(found.successes), found.failures) == (1, (broken,))
    assert Results((broken,)).curves().empty


def test_the_score_is_that_by_which_the_round_was_selected() -> None:
    cell = make_cell(dataset="tolokers", selection_metric="roc_auc")
    metrics = {"accuracy": 78.0, "roc_auc": 71.0}
    frame = Results((make_record(cell, metrics=metrics),)).frame()
    assert frame[["score", "accuracy", "roc_auc"]].to_numpy().tolist() == [[71.0, 78.0, 71.0]]


def test_settings_have_their_names_in_the_code_and_scores_those_of_records() -> None:
    """A record calls the averaging of the accuracy `accuracy`, as the score."""
    record = make_record(make_cell(accuracy="pooled", hidden=[64, 32], options={"mu": 0.5}), 50.0)
    row = Results((record,)).frame().iloc[0]
    assert (row["accuracy"], row["averaging"], row["hidden"]) == (50.0, "pooled", "64+32")
    assert (row["options.mu"], row["seconds.train"], row["bytes.up"]) == (0.5, 2.0, 2e6)
    assert not {"curve", "extras", "environment", "chosen", "label"} & {*row.index}


def test_hyper_parameters_are_chosen_by_the_validation_score_of_the_selected_round() -> None:
    record = make_record(
        make_cell(),
        curve={"round": [1.0, 2.0, 3.0], "validation": [40.0, 41.5, 41.0], "test": [49.0, 50.0, 51.0]},
        selected_round=2,
        metrics={"accuracy": 50.0, "accuracy_mean_validation": 50.0, "accuracy_per_client": 51.0},
    )
    frame = Results((record, failed(make_cell(seed=1), "it was told to fail"))).frame()
    assert frame["validation"].iloc[0] == 41.5
    assert frame["validation"].isna().tolist() == [False, True]
    # No score that was taken on test nodes is called one of validation.
    assert {name for name in frame if "validation" in name} == {
        "validation",
        "accuracy.selected_by_mean-validation",
    }
    assert frame["accuracy.selected_by_per-client"].iloc[0] == 51.0


def test_scores_by_client_are_rows_of_their_own() -> None:
    record = make_record(make_cell(), by_client={"test": [40.0, None, 60.0]})
    found = Results((record, *scores(70.0))).by_client()
    assert found["client"].tolist() == [0, 1, 2]
    assert found["test"].fillna(-1).tolist() == [40.0, -1.0, 60.0]
    assert set(found["method"]) == {"fedavg"}


def test_versions_of_a_part_are_never_averaged() -> None:
    first = scores(50.0, 52.0)
    second = [replace(each, cell=replace(each.cell, versions="metis=2")) for each in scores(60.0, 62.0)]
    found = Results((*first, *second))
    assert found.pivot().index.names == ["method", "versions"]
    assert found.pivot()["cora"].tolist() == ["51.00 ± 1.41", "61.00 ± 1.41"]


def test_versions_that_a_partition_implies_are_no_level() -> None:
    cells = [
        make_cell(partition=partition, versions=versions)
        for partition, versions in (("metis", "metis=2,split=2"), ("louvain", "split=2"))
    ]
    found = Results(tuple(make_record(cell, 60.0) for cell in cells)).pivot()
    assert found.index.names == ["method", "partition"]


def test_a_default_that_older_records_lack_is_no_other_setting() -> None:
    older, newer = (
        make_record(make_cell(seed=seed), 50.0 + 2 * seed, default_options=options)
        for seed, options in enumerate(({}, {"alpha": 1}))
    )
    assert Results((older, newer)).pivot()["cora"].to_dict() == {"fedavg": "51.00 ± 1.41"}


SCORES = {"local": 60.0, "fedavg": 50.0, "fedpub": 70.0}


def drawn(*methods: str) -> Results:
    """Each method on two graphs, over two seeds; only Local sends nothing."""
    return Results(
        tuple(
            make_record(
                make_cell(method=method, label=method, dataset=dataset, seed=seed),
                SCORES[method] + seed,
                bytes={"up": 1e6 * (method != "local"), "down": 0.0, "once": 0.0},
                curve={"round": [1, 2], "validation": [0.0, 0.0], "test": [10.0, SCORES[method] + 2 * seed]},
            )
            for method in methods
            for dataset in ("community[nodes=300]", "community[nodes=500]")
            for seed in range(2)
        )
    )


def test_curves_are_means_over_seeds_each_with_its_name() -> None:
    axes = drawn(*SCORES).plot("curves")
    assert len(axes.lines) == 6
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [10.0, 61.0]
    legend = axes.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert len(set(names)) == 6
    assert names[0] == "local, community[nodes=300]"


def test_costs_stand_over_bytes_with_their_front() -> None:
    axes = drawn(*SCORES).plot("cost")
    front, *points = axes.lines
    assert len(points) == 6
    assert len(axes.texts) == 6
    spent, scores = (np.asarray(values).tolist() for values in (front.get_xdata(), front.get_ydata()))
    assert spent[0] == 0.0
    assert scores == sorted(scores)
    assert scores[-1] == 70.5


def test_ranks_are_ordered_by_their_mean() -> None:
    axes = drawn(*SCORES).plot("ranks")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "local", "fedpub"]


def test_ranks_leave_out_methods_of_few_graphs() -> None:
    # "fedper" has one of three graphs.
    cells = [("fedper", "a"), *((method, dataset) for method in ("local", "fedavg") for dataset in "abc")]
    records = [
        make_record(make_cell(method=method, label=method, dataset=dataset), SCORES.get(method, 90.0))
        for method, dataset in cells
    ]
    axes = Results(tuple(records)).plot("ranks")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "local"]


@pytest.mark.parametrize(
    "setting",
    [
        {"learning_rate": 0.5},
        {"rounds": 7},
        {"task": "link-prediction"},
        {"options": {"mu": 0.5}},
        {"hidden": [8]},
    ],
)
def test_a_plot_never_averages_different_settings(setting: dict[str, Any]) -> None:
    """One seed each: any mean over both settings would be a value that no run has."""
    records = [
        make_record(
            make_cell(method=method, label=method, **changed),
            score,
            curve={"round": [1.0], "validation": [0.0], "test": [score]},
        )
        for method, scores in {"fedprox": (20.0, 80.0), "fedavg": (30.0, 70.0)}.items()
        for score, changed in zip(scores, ({}, setting), strict=True)
    ]
    found = Results(tuple(records))
    lines = {
        str(line.get_label()): np.asarray(line.get_ydata()).item() for line in found.plot("curves").lines
    }
    assert sorted(lines.values()) == [20.0, 30.0, 70.0, 80.0]
    _, *points = found.plot("cost").lines
    assert sorted(np.asarray(point.get_ydata()).item() for point in points) == [20.0, 30.0, 70.0, 80.0]
    names = [label.get_text() for label in found.plot("ranks").get_yticklabels()]
    # Settings of methods make contestants, others make blocks.
    if setting.keys() & {"learning_rate", "options", "hidden"}:
        assert len(names) == len({*names}) == 4
    else:
        assert names == ["fedprox", "fedavg"]


def test_what_breaks_privacy_is_drawn_but_has_no_rank_and_no_place_on_the_front() -> None:
    central = [
        make_record(replace(record.cell, method="central", label="central"), 99.0, privacy="all in one place")
        for record in drawn("local")
    ]
    found = Results((*central, *drawn("local", "fedavg")))
    assert [label.get_text() for label in found.plot("ranks").get_yticklabels()] == ["fedavg", "local"]
    front, *points = found.plot("cost").lines
    assert len(points) == 6
    assert 99.0 not in np.asarray(front.get_ydata())


def test_values_stand_in_their_places_in_whatever_order_they_come() -> None:
    places = [("b", "y"), ("a", "y"), ("b", "x"), ("a", "x")]
    found = across(pandas.Series(["by", "ay", "bx", "ax"], index=pandas.MultiIndex.from_tuples(places)))
    rows = [("b", {"y": "by", "x": "bx"}), ("a", {"y": "ay", "x": "ax"})]
    assert [*found.to_dict("index").items()] == rows


def test_records_of_a_users_file_are_selected_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_method(Path("mine.py"))
    Path("rings.npz").touch()
    Path("clients.txt").touch()
    mine = make_cell(dataset="rings", method="mine", partition="clients.txt")
    records = Results(tuple(map(make_record, (mine, make_cell(dataset="rings"), make_cell(method="mine")))))
    for method in ("./mine.py", "mine"):
        asked = Request(dataset=("./rings.npz",), method=(method,), partition=("file[path=clients.txt]",))
        chosen = select(records, asked)
        assert [record.cell for record in chosen] == [mine]
    with pytest.raises(UserError, match=r"unknown method in the records './other.py'"):
        select(records, Request(method=("./other.py",)))


def test_only_another_graph_makes_another_column() -> None:
    one = [
        make_cell(dataset="rings", files="a" * 64),
        make_cell(dataset="rings", files="b" * 64, method="mine"),
        make_cell(dataset="rings", files="c" * 64, backbone="my-net"),
        make_cell(dataset="rings", files="d" * 64, split="mine"),
        make_cell(dataset="rings", files="e" * 64, partition="mine"),
    ]
    assert [*Results(tuple(map(make_record, one))).pivot().columns] == ["rings"]
    edited = make_cell(dataset="rings", files="0" * 64)
    found = Results(tuple(map(make_record, [*one, edited])))
    assert {"rings (aaaaaaaa)", "rings (00000000)"} <= {*found.pivot()}
