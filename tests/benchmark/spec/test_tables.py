"""What the protocols of published tables say: how their cells are run, which printed figures they answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsub.benchmark.analysis.published import answerable, figures, published_figure
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.spec.plan import grid_cells, make_plan
from fedsub.benchmark.spec.protocol import load_protocol, names
from fedsub.datasets.options import parse_name


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
    left = [cell for cell in plan.cells if not records.done(cell)]
    # Graphs whose files could not be had where the records are made.
    assert {cell.dataset.name for cell in left} <= {"ogbn_arxiv", "wikics", "flickr_saint"}


def test_choices_made_on_a_table_are_marked_where_they_hold() -> None:
    point = {"partition": "kmeans[balanced=false]", "clients": 100, "method": "fedcog", "backbone": "sgc"}
    protocol = load_protocol("fedcog-fig3")
    rates = {}
    for dataset in protocol.grid["dataset"]:
        settings = protocol.settings_for(dataset=dataset, **point)
        rates[dataset] = settings["optimiser"], settings["learning_rate"]
        *clusters, rate = protocol.chosen_for(dataset=dataset, **point)
        assert "validation" in rate
        assert len(clusters) == (dataset in ("citeseer", "flickr", "blogcatalog"))
    assert rates["flickr"] == ("adam", 0.01)
    assert rates["dblp"] == ("sgd", 0.1)
    metis = {**point, "partition": "metis", "dataset": "flickr"}
    assert load_protocol("fedcog-fig4").settings_for(**metis)["optimiser"] == "sgd"
    assert "METIS" in load_protocol("fedcog-fig4").chosen_for(**metis)[-1]
    (rate,) = load_protocol("fedpub-2").chosen_for(dataset="cora", **point)
    assert rate.startswith("The learning rate")
    (bytes_counted,) = load_protocol("fedcog-4").chosen_for(**{**metis, "method": "fedcog[wire=nonzero]"})
    assert "wire=nonzero" in bytes_counted
    shares = load_protocol("fedcog-shares")
    assert "starts ten times" in shares.chosen_for(dataset="citeseer", **point)[0]
    assert shares.chosen_for(**metis) == shares.chosen_for(dataset="cora", **point)
    (distance,) = shares.chosen_for(**metis)
    assert "every two clients" in distance


def test_tables_use_the_temperature_of_their_clients() -> None:
    for name in ("fedpub-1", "fedpub-3", "fedpub-5", "fedpub-6", "fedpub-7", "fedpub-9", "fedpub-11"):
        protocol = load_protocol(name)
        for dataset in protocol.grid["dataset"]:
            for method in protocol.grid["method"]:
                for partition, clients, backbone in protocol.points(dataset, method):
                    point = {"partition": partition, "clients": clients, "backbone": backbone}
                    tau = protocol.options_for(dataset=dataset, method=method, **point).get("tau")
                    if method.startswith("fedpub"):
                        assert tau == (5.0 if partition == "metis-overlapping" else 3.0), (name, partition)


def test_rows_of_fedpub_table_5_run_two_epochs_wherever_they_stand() -> None:
    point = {"dataset": "cora", "partition": "metis-overlapping", "clients": 10, "backbone": "gcn"}
    epochs = {"fedpub[lambda1=0.9]": 2, "fedpub[lambda1=0.7]": 2, "fedpub[lambda1=0.5]": 1, "fedavg": 1}
    for method, expected in epochs.items():
        settings = load_protocol("fedpub-3").settings_for(method=method, **point)
        assert settings.get("local_epochs", 1) == expected, method
    table = load_protocol("fedpub-5")
    for method in table.grid["method"]:
        assert table.settings_for(method=method, **point)["local_epochs"] == 2


def test_citeseer_starts_k_means_ten_times() -> None:
    """With one start most of it is one client; other graphs keep to one."""
    seen = set()
    for name in ("fedcog-fig3", "fedcog-fig5", "fedcog-changes", "fedcog-shares"):
        protocol = load_protocol(name)
        for dataset in {"citeseer", "pubmed"} & {*protocol.grid["dataset"]}:
            schemes = {scheme for scheme, _, _ in protocol.points(dataset, "fedcog")}
            options = [parse_name(scheme)[1] for scheme in schemes if scheme.startswith("kmeans")]
            starts = 10 if dataset == "citeseer" else None
            assert [option.get("starts") for option in options] == [starts], (name, dataset)
            seen.add(dataset)
    assert seen == {"citeseer", "pubmed"}


def test_graphsage_under_fedstruct_has_the_layers_of_its_rivals() -> None:
    for labels in (1, 10, 50):
        protocol = load_protocol(f"fedstruct-fig3-labels-{labels}")
        point = {"dataset": "amazon_photo", "partition": "kmeans", "clients": 10, "backbone": "graphsage"}
        rival = protocol.settings_for(method="fedsgd", **point)["hidden"]
        methods = [method for method in protocol.grid["method"] if "network=graphsage" in method]
        assert methods
        for method in methods:
            options = protocol.options_for(method=method, **point)
            for part in ("feature_hidden", "structure_hidden"):
                assert options[part] == "+".join(map(str, rival)), (labels, method)


def test_fedspray_is_run_as_printed_and_starts_as_in_its_public_code() -> None:
    protocol = load_protocol("fedspray-2")
    for backbone in protocol.grid["backbone"]:
        point = {"dataset": "pubmed", "partition": "any", "clients": 7, "backbone": backbone}
        options = {"lambda1": 5.0, "initialisation": "uniform", "projector": "classifier"}
        assert protocol.options_for(method="fedspray", **point) == options
        assert any("public code" in why for why in protocol.chosen_for(method="fedspray", **point))
        assert protocol.settings_for(method="fedspray", **point)["rounds"] == 500
        assert protocol.settings_for(method="fedavg", **point)["evaluate"] == "received"
        assert protocol.settings_for(method="local", **point)["evaluate"] == "local"


def test_features_of_arxiv_are_left_as_they_are() -> None:
    """As in the public code of FED-PUB and FedAux: they have both signs, so that a row's sum says little."""
    seen = set()
    for name in ("fedpub-1", "fedpub-2", "fedpub-2-once", "fedpub-11", "fedpub-fig10", "fedaux-1"):
        for cell in grid_cells(load_protocol(name)):
            raw = cell.dataset.text == "ogbn_arxiv"
            assert cell.feature_transform == ("raw" if raw else "row-normalised"), (name, cell.dataset)
            if cell.method == "fedsage+":
                assert ("generated" in dict(cell.options)) is not raw, (name, cell.dataset)
            seen.add(raw)
    assert seen == {True, False}


def test_topfgl_is_run_as_its_public_code_has_it() -> None:
    protocol = load_protocol("topfgl-3")
    point = {"partition": "metis", "clients": 10, "method": "fedavg", "backbone": "gcn"}
    for dataset in protocol.grid["dataset"]:
        settings = protocol.settings_for(dataset=dataset, **point)
        assert settings["features"] == ("raw" if dataset == "ogbn_arxiv" else "row-normalised")
        assert settings["local_epochs"] == (4 if dataset in ("amazon_photo", "amazon_computers") else 2)
        assert (settings["hidden"], settings["head"]) == ([128, 128], "linear")
        assert (settings["evaluate"], settings["selection"]) == ("received", "last")


def test_fedaux_is_run_as_the_log_of_its_public_run_has_it() -> None:
    protocol = load_protocol("fedaux-1")
    point = {"dataset": "cora", "partition": "metis", "clients": 10, "backbone": "gcn"}
    for method in ("fedaux", "fedaux[score=cosine,start=uniform]"):
        settings = protocol.settings_for(method=method, **point)
        assert (settings["hidden"], settings["learning_rate"]) == ([256, 256], 0.01)
        assert settings["weight_decay"] == 1e-6


def test_what_validation_chose_for_every_methods_table_is_marked() -> None:
    protocol = load_protocol("all-methods")
    point = {"dataset": "cora", "partition": "metis", "clients": 10, "backbone": "gcn"}
    for method, options in {"moon": {"mu": 0.1}, "scaffold": {"control": "gradient"}}.items():
        assert protocol.options_for(method=method, **point) == options
        assert any("validation" in why for why in protocol.chosen_for(method=method, **point))
    assert protocol.chosen_for(method="feddc", **point) == ()


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
