"""How a protocol is read: its keys, what it extends, where its overrides hold; and settings as text."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedsub.benchmark.spec import protocol as protocols
from fedsub.benchmark.spec.protocol import load_protocol, parse_protocol
from fedsub.benchmark.spec.settings import setting_from_text
from fedsub.datasets.errors import UserError

GRID = {"dataset": "cora", "partition": "metis", "clients": [5], "method": ["fedavg"], "backbone": "gcn"}


def parsed(**content: Any) -> protocols.Protocol:
    return parse_protocol("toy", {"grid": GRID, **content})


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
    assert mine.overrides[-1].options == {"tau": 9.0}


def test_a_setting_of_a_table_replaces_overrides_of_its_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('extends = "fedpub-2"\nseeds = 4\n[settings]\nfeatures = "row-normalised"')
    point = {"partition": "metis", "clients": 5, "method": "fedpub", "backbone": "gcn"}
    base, mine = load_protocol("fedpub-2"), load_protocol(str(path))
    assert base.settings_for(dataset="ogbn_arxiv", **point)["features"] == "raw"
    assert mine.settings_for(dataset="ogbn_arxiv", **point)["features"] == "row-normalised"
    once = {**point, "dataset": "amazon_photo", "method": "central"}
    assert (base.seeds_for(**once), mine.seeds_for(**once)) == (0, 4)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('extends = "fedpub2"', "unknown table in 'extends' 'fedpub2'.*fedpub-2"),
        ('extends = "fedpub-2"\ngrid = 3', "'grid' must be a table"),
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
    with pytest.raises(UserError, match="one extends itself"):
        load_protocol("one")


def test_a_file_with_the_name_of_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fedpub-2.toml"
    path.write_text('extends = "fedpub-1"')
    with pytest.raises(UserError, match="already has a table fedpub-2"):
        load_protocol(str(path))
    shipped = protocols.FOLDER / "fedpub-2.toml"
    assert load_protocol(str(shipped)) == load_protocol("fedpub-2")


def test_overrides_apply_where_they_say_and_the_last_wins() -> None:
    protocol = parsed(
        settings={"rounds": 10},
        override=[
            {"when": {"dataset": "cora"}, "settings": {"rounds": 20, "dropout": 0}},
            {"when": {"dataset": ["cora"], "method": ["fedprox"]}, "settings": {"rounds": 30}},
            {"when": {"method": "fedprox"}, "options": {"mu": 0.1}, "grid": {"clients": [7]}},
            {"when": {"method": "fedprox[mu=2]"}, "settings": {"rounds": 40}},
        ],
    )
    point = {"dataset": "cora[x=1]", "partition": "metis", "clients": 5, "backbone": "gcn"}
    assert protocol.settings_for(**point, method="fedavg") == {"rounds": 20, "dropout": 0.0}
    assert protocol.settings_for(**point, method="fedprox[mu=1]")["rounds"] == 30
    # As the grid spells it.
    assert protocol.settings_for(**point, method="fedprox[mu=2]")["rounds"] == 40
    assert protocol.settings_for(**{**point, "dataset": "pubmed"}, method="fedavg")["rounds"] == 10
    assert protocol.options_for(**point, method="fedprox") == {"mu": 0.1}
    assert protocol.grid_for(dataset="cora", method="fedprox")["clients"] == (7,)
    assert protocol.grid_for(dataset="cora")["clients"] == (5,)


def test_points_are_of_the_grid_as_overridden_for_their_method_and_partition() -> None:
    protocol = parsed(
        override=[
            {"when": {"method": "fedprox"}, "grid": {"partition": ["metis", "louvain"]}},
            {"when": {"partition": "louvain"}, "grid": {"clients": [7, 8], "backbone": "sgc"}},
        ]
    )
    louvain = [("louvain", 7, "sgc"), ("louvain", 8, "sgc")]
    assert [*protocol.points("cora", "fedavg")] == [("metis", 5, "gcn")]
    assert [*protocol.points("cora", "fedprox")] == [("metis", 5, "gcn"), *louvain]
    assert [*protocol.points("cora", "fedavg", ["louvain"])] == louvain
    assert [*protocol.points("cora", "fedprox", clients=[3], backbones=["mlp"])] == [
        ("metis", 3, "mlp"),
        ("louvain", 3, "mlp"),
    ]


def test_a_cell_that_predicts_links_instead_has_a_score_in_every_table() -> None:
    assert parsed(metrics=["accuracy", "update_mb"]).scores == ("accuracy", "update_mb", "roc_auc")
    assert parsed(metrics=["roc_auc", "accuracy"]).scores == ("roc_auc", "accuracy")


def test_choices_made_on_the_table_are_told_where_they_hold() -> None:
    protocol = parsed(
        override=[
            {"settings": {"learning_rate": 0.1}, "chosen": "the rate"},
            {"when": {"method": "fedprox"}, "options": {"mu": 0.1}, "chosen": "mu"},
            {"when": {"dataset": "pubmed"}, "settings": {"learning_rate": 0.01}, "chosen": "its rate"},
            {"when": {"dataset": "uai"}, "settings": {"learning_rate": 0.03}},
            {"when": {"dataset": "acm"}, "settings": {"learning_rate": 0.1}},
            {"when": {"dataset": "acm", "partition": "metis"}, "chosen": "the clients"},
            # An option of the method that has the same name as the setting.
            {"when": {"method": "fedcog"}, "options": {"learning_rate": 1}},
        ]
    )
    point = {"partition": "metis", "clients": 5, "backbone": "gcn"}
    assert protocol.chosen_for(dataset="cora", method="fedprox", **point) == ("the rate", "mu")
    assert protocol.chosen_for(dataset="cora", method="fedprox[mu=1]", **point) == ("the rate",)
    assert protocol.chosen_for(dataset="cora", method="fedcog", **point) == ("the rate",)
    assert protocol.chosen_for(dataset="pubmed", method="fedavg", **point) == ("its rate",)
    assert protocol.chosen_for(dataset="uai", method="fedavg", **point) == ()
    assert protocol.chosen_for(dataset="acm", method="fedavg", **point) == ("the clients",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"titel": "x"}, "unknown key 'titel'.*title"),
        ({"settings": {"rounds": "ten"}}, "'rounds' must be a whole number, not 'ten'"),
        ({"grid": {"dataset": "cora"}}, "lacks partition, clients, method, backbone"),
        ({"settings": {"lr": 0.1}}, r"unknown key 'lr' in \[settings\]: it is called learning_rate here"),
        ({"settings": {"clients": 3}}, r"clients is not a setting: give it with --clients or in \[grid\]"),
        ({"override": [{"wen": {}}]}, r"unknown key 'wen' in \[override\].*when"),
        ({"metrics": ["accuracy@roundlast"]}, "'metrics' must name a round by its number"),
        ({"seeds": 0}, "'seeds' must be at least 1"),
        ({"grid": {**GRID, "clients": []}}, "'clients' must list at least one value"),
        ({"published": [{"method": {"fedavg": {"clients": "5"}}}]}, "fedavg. lacks method"),
        ({"override": [{"when": {"backbone": "sgc"}, "grid": {"clients": 7}}]}, "cannot change clients so"),
        ({"override": [{"when": {"method": "local"}, "grid": {"method": "central"}}]}, "change method so"),
        ({"override": [{"grid": {"dataset": "cora"}}]}, "cannot change dataset so"),
        ({"published": [{"runs": 0}]}, "'runs' must be at least 1, not 0"),
    ],
)
def test_a_wrong_key_is_named_with_the_nearest_valid_ones(content: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(**content)
    message = str(caught.value)
    assert re.search(words, message), message
    assert "protocol toy" in message
    assert "\n" not in message


def test_a_file_that_is_not_toml_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("title = ")
    with pytest.raises(UserError, match=r"bad\.toml is not valid TOML"):
        load_protocol(str(path))
    with pytest.raises(UserError, match="No such file"):
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
