from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmark import protocol as protocols
from benchmark.arguments import parse
from benchmark.plan import make_plan
from benchmark.protocol import ProtocolError, load_protocol, parse_protocol, setting_from_text
from benchmark.published import answerable, figures, published_figure
from datasets.errors import UserError
from datasets.options import parse_name

GRID = {"dataset": "cora", "partition": "metis", "clients": [5], "method": ["fedavg"], "backbone": "gcn"}


def parsed(**content: Any) -> protocols.Protocol:
    return parse_protocol("toy", {"grid": GRID, **content})


@pytest.mark.parametrize("name", protocols.names())
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
        ("fedpub-5", 14),
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


@pytest.mark.parametrize("name", protocols.names())
def test_every_protocol_has_cells_that_can_be_planned(name: str) -> None:
    plan = make_plan(parse(["--table", name]))
    assert not plan.skipped
    assert {cell.protocol for cell in plan.cells} == {name}


def test_choices_made_on_a_table_are_marked_where_they_hold() -> None:
    point = {"partition": "kmeans[balanced=false]", "clients": 100, "method": "fedcog", "backbone": "sgc"}
    protocol = load_protocol("fedcog-fig3")
    rates = {}
    for dataset in protocol.grid["dataset"]:
        settings = protocol.settings_for(dataset=dataset, **point)
        rates[dataset] = settings["optimiser"], settings["learning_rate"]
        (sentence,) = protocol.chosen_for(dataset=dataset, **point)
        assert "validation" in sentence
    assert rates["flickr"] == ("adam", 0.01)
    assert rates["dblp"] == ("sgd", 0.1)
    metis = {**point, "partition": "metis", "dataset": "flickr"}
    assert load_protocol("fedcog-fig4").settings_for(**metis)["optimiser"] == "sgd"
    assert "METIS" in load_protocol("fedcog-fig4").chosen_for(**metis)[-1]
    assert load_protocol("fedpub-2").chosen_for(dataset="cora", **point) == ()


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
    """With one start most of it is one client."""
    for name in ("fedcog-fig3", "fedcog-fig5", "fedcog-changes", "fedcog-shares"):
        protocol = load_protocol(name)
        for dataset, starts in {"citeseer": 10, "pubmed": None}.items():
            if dataset in protocol.grid["dataset"]:
                schemes = {scheme for scheme, _, _ in protocol.points(dataset, "fedcog")}
                options = [parse_name(scheme)[1] for scheme in schemes if scheme.startswith("kmeans")]
                assert [option.get("starts") for option in options] == [starts], (name, dataset)


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


def test_fedspray_is_run_as_printed() -> None:
    protocol = load_protocol("fedspray-2")
    for backbone in protocol.grid["backbone"]:
        point = {"dataset": "pubmed", "partition": "any", "clients": 7, "backbone": backbone}
        assert protocol.options_for(method="fedspray", **point) == {"lambda1": 5.0}
        assert not any("λ₁" in why for why in protocol.chosen_for(method="fedspray", **point))
        assert any("validation" in why for why in protocol.chosen_for(method="fedspray[lambda1=1]", **point))
        assert protocol.settings_for(method="fedspray", **point)["rounds"] == 500
        assert protocol.settings_for(method="fedavg", **point)["evaluate"] == "received"
        assert protocol.settings_for(method="local", **point)["evaluate"] == "local"


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


def test_a_protocol_that_extends_another_says_only_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        extends = "fedpub-2"
        title = "Mine"
        grid = { clients = [3] }
        settings = { rounds = 7 }
        override = [{ when = { method = ["fedpub"] }, options = { tau = 9.0 } }]
        """
    )
    base, mine = load_protocol("fedpub-2"), load_protocol(str(path))
    assert (mine.name, mine.title, mine.seeds, mine.published) == ("mine", "Mine", base.seeds, ())
    assert mine.grid == {**base.grid, "clients": (3,)}
    assert mine.settings == {**base.settings, "rounds": 7}
    assert mine.overrides[:-1] == base.overrides
    assert mine.overrides[-1].options == {"tau": 9.0}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('extends = "fedpub2"', "unknown table in 'extends' 'fedpub2'.*fedpub-2"),
        ("extends = 2", "unknown table in 'extends'"),
        ('extends = "fedpub-2"\ngrid = 3', "'grid' must be a table"),
        ('extends = "fedpub-2"\noverride = 3', "'override' must be a list"),
    ],
)
def test_a_wrong_base_is_one_sentence(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(line)
    with pytest.raises(UserError, match=words):
        load_protocol(str(path))


def test_a_protocol_that_extends_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "FOLDER", tmp_path)
    (tmp_path / "one.toml").write_text('extends = "two"')
    (tmp_path / "two.toml").write_text('extends = "one"')
    with pytest.raises(ProtocolError, match="one extends itself"):
        load_protocol("one")


def test_overrides_apply_where_they_say_and_the_last_wins() -> None:
    protocol = parsed(
        settings={"rounds": 10},
        override=[
            {"when": {"dataset": "cora"}, "settings": {"rounds": 20, "dropout": 0}},
            {"when": {"dataset": ["cora"], "method": ["fedprox"]}, "settings": {"rounds": 30}},
            {"when": {"method": "fedprox"}, "options": {"mu": 0.1}, "grid": {"clients": [7]}},
        ],
    )
    point = {"dataset": "cora[x=1]", "partition": "metis", "clients": 5, "backbone": "gcn"}
    assert protocol.settings_for(**point, method="fedavg") == {"rounds": 20, "dropout": 0.0}
    assert protocol.settings_for(**point, method="fedprox[mu=1]")["rounds"] == 30
    assert protocol.settings_for(**{**point, "dataset": "pubmed"}, method="fedavg")["rounds"] == 10
    assert protocol.options_for(**point, method="fedprox") == {"mu": 0.1}
    assert protocol.grid_for(dataset="cora", method="fedprox")["clients"] == (7,)
    assert protocol.grid_for(dataset="cora")["clients"] == (5,)


def test_choices_made_on_the_table_are_told_where_they_hold() -> None:
    protocol = parsed(
        override=[
            {"settings": {"learning_rate": 0.1}, "chosen": "the rate"},
            {"when": {"method": "fedprox"}, "options": {"mu": 0.1}, "chosen": "mu"},
            {"when": {"dataset": "pubmed"}, "settings": {"learning_rate": 0.01}, "chosen": "its rate"},
            {"when": {"dataset": "uai"}, "settings": {"learning_rate": 0.03}},
        ]
    )
    point = {"partition": "metis", "clients": 5, "backbone": "gcn"}
    assert protocol.chosen_for(dataset="cora", method="fedprox[mu=1]", **point) == ("the rate", "mu")
    assert protocol.chosen_for(dataset="pubmed", method="fedavg", **point) == ("its rate",)
    assert protocol.chosen_for(dataset="uai", method="fedavg", **point) == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"titel": "x"}, "unknown key 'titel'.*title"),
        ({"grid": {**GRID, "client": [1]}}, r"unknown key 'client' in \[grid\].*clients"),
        ({"settings": {"learning_rat": 1}}, r"'learning_rat' in \[settings\].*learning_rate"),
        ({"settings": {"rounds": "ten"}}, "'rounds' must be a whole number, not 'ten'"),
        ({"settings": {"rounds": True}}, "'rounds' must be a whole number"),
        ({"settings": {"binarise": 1}}, "'binarise' must be true or false"),
        ({"settings": {"hidden": 64}}, "'hidden' must be a list"),
        ({"settings": {"hidden": ["a"]}}, "'hidden' must be a list"),
        ({"grid": {"dataset": "cora"}}, "lacks partition, clients, method, backbone"),
        ({"grid": {**GRID, "clients": ["5"]}}, "'clients' must be whole numbers"),
        ({"override": [{"wen": {}}]}, r"unknown key 'wen' in \[override\].*when"),
        ({"override": {"when": {}}}, r"'override' must be a list of tables"),
        ({"override": [{"when": {"datset": "cora"}}]}, r"'datset' in \[override.when\].*dataset"),
        ({"published": [{"tabel": "2"}]}, r"'tabel' in \[published\].*table"),
        ({"seeds": "three"}, "'seeds' must be a whole number"),
        ({"metrics": 3}, "'metrics' must be names"),
        ({"metrics": ["accuracy@roundlast"]}, "'metrics' must name a round by its number"),
        ({"metrics": ["accuracy@round"]}, "'metrics' must name a round by its number"),
        ({"metrics": ["accuracy@clients1"]}, "'metrics' must name clients as first-last"),
        ({"override": [{"chosen": 3}]}, "'chosen' must be text"),
        ({"seeds": 0}, "'seeds' must be at least 1"),
        ({"grid": {**GRID, "clients": []}}, "'clients' must list at least one value"),
        ({"settings": {"dropout": float("nan")}}, "'dropout' must be a finite number, not nan"),
        ({"settings": {"learning_rate": float("inf")}}, "'learning_rate' must be a finite number"),
        ({"settings": {"learning_rate": 10**400}}, "'learning_rate' must be a finite number"),
        ({"published": [{"method": {"fedavg": 5}}]}, "'fedavg' must be text or a table"),
        ({"published": [{"method": {"fedavg": {"clients": "5"}}}]}, "fedavg. lacks method"),
        (
            {"published": [{"method": {"fedavg": {"method": "FedAvg", "clients": 5}}}]},
            "'clients' must be text",
        ),
        ({"published": [{"dataset": {"cora": ["Cora"]}}]}, "'dataset.cora' must be text"),
        ({"published": [{"runs": 0}]}, "'runs' must be at least 1, not 0"),
        ({"published": [{"runs": "three"}]}, "'runs' must be a whole number"),
        ({"published": [{"drawn_once": 1}]}, "'drawn_once' must be true or false"),
        ({"published": [{"scale": float("nan")}]}, "'scale' must be a finite number"),
    ],
)
def test_a_wrong_key_is_named_with_the_nearest_valid_ones(content: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parsed(**content)
    message = str(caught.value)
    assert re.search(words, message), message
    assert "protocol toy" in message
    assert "\n" not in message


def test_a_file_that_is_not_toml_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("title = ")
    with pytest.raises(ProtocolError, match=r"bad\.toml is not valid TOML"):
        load_protocol(str(path))
    with pytest.raises(ProtocolError, match="No such file"):
        load_protocol(str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match=r"unknown table 'fedpub2'.*fedpub-2"):
        load_protocol("fedpub2")


def test_settings_are_read_from_text() -> None:
    assert setting_from_text("rounds=3") == ("rounds", 3)
    assert setting_from_text("dropout=0") == ("dropout", 0.0)
    assert setting_from_text("hidden=64+32") == ("hidden", [64, 32])
    assert setting_from_text("hidden=64") == ("hidden", [64])
    assert setting_from_text("binarise=true") == ("binarise", True)
    split = "ratio[train=0.5,validation=0.2,test=0.3]"
    assert setting_from_text(f"split={split}") == ("split", split)
    assert setting_from_text("task=link-prediction[width=16]") == ("task", "link-prediction[width=16]")


@pytest.mark.parametrize(
    "text",
    [
        *("rounds=many", "rounds", "round=3", "rounds=1,dropout=2", "binarise=2"),
        *("hidden=a", "hidden=", "hidden=64++32", "hidden=+64", "hidden=64+", "hidden=²"),
        *("learning_rate=nan", "learning_rate=inf", "learning_rate=-inf", f"dropout={'9' * 400}"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(text: str) -> None:
    with pytest.raises(UserError):
        setting_from_text(text)
