import numpy as np
import pytest

from fedsub.benchmark.analysis.frame import Results
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import failed, make_cell, make_record

SCORES = {"local": 60.0, "fedavg": 50.0, "fedpub": 70.0}


def results(*methods: str) -> Results:
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
    axes = results(*SCORES).plot("curves")
    assert len(axes.lines) == 6
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [10.0, 61.0]
    legend = axes.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert len(set(names)) == 6
    assert names[0] == "local, community[nodes=300]"


def test_costs_stand_over_bytes_with_their_front() -> None:
    axes = results(*SCORES).plot("cost")
    front, *points = axes.lines
    assert len(points) == 6
    assert len(axes.texts) == 6
    spent, scores = (np.asarray(values).tolist() for values in (front.get_xdata(), front.get_ydata()))
    assert spent[0] == 0.0
    assert scores == sorted(scores)
    assert scores[-1] == 70.5


def test_ranks_are_ordered_by_their_mean() -> None:
    axes = results(*SCORES).plot("ranks")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "local", "fedpub"]


def test_a_plot_of_many_points_names_six_and_one_of_many_curves_is_refused() -> None:
    many = Results(
        tuple(
            make_record(make_cell(clients=clients), 50.0 + clients, curve={"round": [1], "test": [1.0]})
            for clients in range(2, 31)
        )
    )
    named = [text.get_text() for text in many.plot("cost").texts]
    assert len(named) == 6
    assert any(name.endswith("30") for name in named)
    with pytest.raises(UserError, match="29 curves cannot be told apart, at most 28"):
        many.plot("curves")


def test_ranks_leave_out_methods_of_few_graphs() -> None:
    # "fedper" has one of three graphs.
    cells = [("fedper", "a"), *((method, dataset) for method in ("local", "fedavg") for dataset in "abc")]
    records = [
        make_record(make_cell(method=method, label=method, dataset=dataset), SCORES.get(method, 90.0))
        for method, dataset in cells
    ]
    axes = Results(tuple(records)).plot("ranks")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fedavg", "local"]


def test_what_cannot_be_drawn_is_a_sentence() -> None:
    with pytest.raises(UserError, match="two methods"):
        results("local").plot("ranks")
    with pytest.raises(UserError, match="no result"):
        Results((failed(make_cell(), "it failed"),)).plot("cost")
    with pytest.raises(UserError, match="curves"):
        results("local").plot("curve")
