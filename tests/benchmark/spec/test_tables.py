"""What the protocols of published tables say: how their cells are run, which printed figures they answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsub.benchmark.analysis.published import answerable, figures, published_figure
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.plan import grid_cells, make_plan
from fedsub.benchmark.spec.protocol import load_protocol, names
from fedsub.datasets.partition import clients_in
from fedsub.datasets.registry import load
from fedsub.methods.core import registry


@pytest.mark.parametrize("name", names())
def test_every_protocol_that_comes_with_the_benchmark_is_valid(name: str) -> None:
    protocol = load_protocol(name)
    assert protocol.title != name
    assert protocol.seeds >= 1


@pytest.mark.parametrize(
    ("name", "figures_answered"),
    [
        ("fedpub-1", 146),
        ("fedpub-2", 146),
        ("fedpub-2-once", 144),
        ("fedpub-3", 21),
        # Six more, of other λ₂, are answered by the rows that answer these.
        ("fedpub-5", 8),
        ("fedpub-6", 24),
        ("fedpub-7", 8),
        ("fedpub-8", 24),
        ("fedpub-9", 8),
        ("fedpub-10", 20),
        ("fedpub-11", 24),
        ("fedpub-fig10", 14),
        ("fedpub-fig12", 24),
        ("fedstruct-1", 150),
        ("fedstruct-5", 192),
        ("fedstruct-7", 144),
        ("fedstruct-fig3-labels-1", 6),
        ("fedspray-2", 168),
        ("fedspray-3", 8),
        ("fedspray-5-epochs-10", 4),
        ("fedcog-3", 24),
        ("fedcog-4", 12),
        ("fedstruct-fig2-labels-5", 1),
        ("fedstruct-fig2-labels-50", 2),
        ("fedstruct-fig3-labels-10", 6),
        ("fedstruct-fig3-labels-50", 6),
        ("fedstruct-fig4", 4),
        ("fedspray-fig2", 2),
        ("fedcog-changes", 4),
        ("fedcog-fig3", 4),
        ("fedcog-fig4", 4),
        ("fedcog-fig5", 5),
        ("fedcog-fig6", 3),
        ("fedcog-shares", 11),
        ("fedaux-1", 180),
        ("topfgl-3", 128),
        ("fedtad-2", 150),
        ("fedgcn-main", 26),
    ],
)
def test_every_figure_of_a_table_has_a_cell(name: str, figures_answered: int) -> None:
    assert answerable(load_protocol(name)) == figures_answered


@pytest.mark.parametrize("name", names())
def test_every_protocol_has_cells_that_can_be_planned(name: str) -> None:
    plan = make_plan(parse(["--table", name, "--seeds", "1"]).request)
    assert not plan.skipped
    assert {cell.protocol for cell in plan.cells} == {name}


def test_a_finished_clone_has_nothing_left_to_do() -> None:
    records = Records(Path(__file__).parents[3] / "results")
    plan = make_plan(parse(["--all"]).request)
    # The records of `natural` are still to be made.
    left = [cell for cell in plan.cells if cell.protocol != "natural" and not records.done(cell)]
    # Graphs whose files could not be had where the records are made.
    assert {cell.dataset.name for cell in left} <= {"ogbn_arxiv", "wikics", "flickr_saint"}


def test_natural_clients_are_those_of_the_data(data_directory: Path) -> None:
    """Every method, on as many clients as the attribute has values."""
    protocol = load_protocol("natural")
    cells = grid_cells(protocol)
    assert protocol.seeds == 10
    assert {cell.method for cell in cells} == set(registry.names())
    places = {(cell.dataset, cell.partition, cell.clients) for cell in cells}
    assert len(places) == 5
    for dataset, scheme, clients in places:
        assert clients_in(load(dataset, data_directory, download=False), scheme) == clients
    assert {cell.largest_component for cell in cells} == {False}


def test_published_figures_are_found() -> None:
    protocol = load_protocol("fedpub-2")
    figure = published_figure(protocol, "accuracy", "cora", "metis", 10, "fedpub", "gcn")
    assert figure is not None
    assert (figure.mean, figure.source) == (81.54, "FED-PUB, 2")
    assert published_figure(protocol, "accuracy", "cora", "louvain", 10, "fedpub", "gcn") is None
    assert published_figure(protocol, "accuracy", "cora", "metis", 10, "fedpub[tau=1]", "gcn") is None
    assert sum(map(len, figures().values())) == 1773


@pytest.mark.parametrize(
    ("name", "point", "answered"),
    [
        ("fedpub-2", ("cora", "metis", 10, "fedpub", "gcn"), True),
        ("fedpub-2", ("cora", "metis[recursive=true]", 10, "fedpub", "gcn"), False),
        (
            "fedspray-2",
            ("pubmed", "file[path=partitions/fedspray.npz,key=PubMed]", 7, "fedavg", "gcn"),
            True,
        ),
        (
            "fedspray-2",
            ("wikics", "file[path=partitions/fedspray.npz,key=PubMed]", 7, "fedavg", "gcn"),
            False,
        ),
        ("fedspray-2", ("pubmed", "file[path=mine.txt]", 7, "fedavg", "gcn"), False),
    ],
)
def test_a_scheme_answers_for_its_variants_in_the_grid_alone(
    name: str, point: tuple[str, str, int, str, str], answered: bool
) -> None:
    figure = published_figure(load_protocol(name), "accuracy", *point)
    assert (figure is not None) == answered


def test_central_answers_a_figure_printed_without_partition() -> None:
    figure = published_figure(
        load_protocol("fedstruct-1"), "accuracy", "cora", "random", 10, "central", "graphsage"
    )
    assert figure is not None
    assert figure.mean == 82.06


def test_the_grid_may_depend_on_the_partition() -> None:
    protocol = load_protocol("fedpub-11")
    points = set(protocol.points("cora", "fedpub[community=explicit]"))
    assert points == {("metis", 10, "gcn"), ("metis-overlapping", 30, "gcn")}
    assert list(protocol.points("cora", "fedpub", clients=[3], partitions=["random"])) == [
        ("random", 3, "gcn")
    ]


def test_figures_that_share_a_place_are_told_apart_by_their_notes() -> None:
    means = []
    for epochs in (3, 10):
        protocol = load_protocol(f"fedspray-5-epochs-{epochs}")
        figure = published_figure(protocol, "accuracy", "wikics", "louvain-largest", 12, "fedspray", "gcn")
        assert figure is not None
        means.append(figure.mean)
    assert means == [81.37, 81.43]


def test_printed_figures_take_our_unit() -> None:
    figure = published_figure(
        load_protocol("fedcog-3"),
        "propagation_seconds_fedavg",
        "amazon_computers",
        "metis",
        100,
        "fedcog[hidden=100,timing=true]",
        "sgc",
    )
    assert figure is not None
    assert figure.mean == pytest.approx(0.283)
