"""What the protocols of published tables say: how their cells are run, which printed figures they answer."""

from pathlib import Path

import pytest

from fedsub.benchmark.analysis.published import answerable, answered_figures, figures
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.plan import grid_cells, make_plan
from fedsub.benchmark.spec.protocol import ARENA, load_protocol, names
from fedsub.benchmark.spec.request import Request
from fedsub.methods.core import registry


def test_every_printed_figure_that_can_be_answered_has_a_cell() -> None:
    """A changed name of a graph, a scheme or a method leaves figures without one."""
    assert sum(answerable(load_protocol(name)) for name in names()) == 2165


@pytest.mark.parametrize("name", names())
def test_every_protocol_can_be_planned_without_an_option_of_no_effect(name: str) -> None:
    plan = make_plan(parse(["--table", name, "--seeds", "1"]).request)
    assert not plan.skipped
    assert {cell.protocol for cell in plan.cells} == {name}
    for cell in plan.cells:
        given = dict(cell.options)
        idle = registry.make_options(cell.method, given).unused(cell.architecture.backbone)
        assert not given.keys() & idle.keys(), cell.title


@pytest.mark.parametrize("name", names())
def test_a_table_gives_options_only_to_the_methods_that_they_are_meant_for(name: str) -> None:
    """Else another method is refused, or takes the value of an option of the same name."""
    assert all("method" in override.when for override in load_protocol(name).overrides if override.options)


def test_a_finished_clone_has_nothing_left_to_do() -> None:
    records = Records(Path(__file__).parents[3] / "results")
    plan = make_plan(parse(["--all"]).request)
    left = [cell for cell in plan.cells if not records.done(cell)]
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
        without_a_table = Request(dataset=(str(dataset),), partition=(str(scheme),), method=("local",))
        assert [cell.clients for cell in make_plan(without_a_table).cells] == [clients]
    assert {cell.largest_component for cell in cells} == {False}
    bare = make_plan(Request(dataset=("community",), method=tuple(registry.names()))).cells
    default = {(cell.method, cell.options) for cell in bare}
    control = ("scaffold", (("control", "gradient"),))
    assert {(cell.method, cell.options) for cell in cells} == default | {control}
    # The arena tunes the options, so it has no variants.
    assert load_protocol(str(ARENA)).grid["method"] == tuple(dict.fromkeys(cell.method for cell in cells))


def test_a_requested_attribute_counts_the_clients_of_the_graph_that_the_table_keeps(
    data_directory: Path,
) -> None:
    # An option with spaces means the same.
    scheme = "attribute[key= library]"
    request = Request(table=(str(ARENA),), dataset=("libraries",), partition=(scheme,), method=("local",))
    assert {cell.clients for cell in make_plan(request).cells} == {3}


def test_published_figures_are_found() -> None:
    protocol = load_protocol("fedpub-2")
    figure = next(answered_figures(protocol, "accuracy", "cora", "metis", 10, "fedpub", "gcn"))
    assert (figure.mean, figure.source) == (81.54, "FED-PUB, 2")
    assert not any(answered_figures(protocol, "accuracy", "cora", "louvain", 10, "fedpub", "gcn"))
    assert not any(answered_figures(protocol, "accuracy", "cora", "metis", 10, "fedpub[tau=1]", "gcn"))
    assert sum(map(len, figures().values())) == 1971


@pytest.mark.parametrize(
    ("name", "point", "answered"),
    [
        ("fedpub-2", ("cora", "metis", 10, "fedpub", "gcn"), True),
        ("fedpub-2", ("cora", "metis[recursive=true]", 10, "fedpub", "gcn"), False),
        ("fedspray-2", ("pubmed", "file[path=partitions/fedspray.npz,key=PubMed]", 7, "fedavg", "gcn"), True),
        ("fedspray-2", ("pubmed", "file[path=mine.txt]", 7, "fedavg", "gcn"), False),
    ],
)
def test_a_scheme_answers_for_its_variants_in_the_grid_alone(
    name: str, point: tuple[str, str, int, str, str], answered: bool
) -> None:
    assert any(answered_figures(load_protocol(name), "accuracy", *point)) == answered
