"""Command lines become requests, or one sentence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.cli.values import parse_seeds, split_list
from fedsub.benchmark.spec.request import Request
from fedsub.datasets.options import format_name

words = st.text(st.sampled_from("abcxyz0189_-+."), min_size=1, max_size=6)
names = st.builds(
    lambda name, options: format_name(name, options),
    words,
    st.dictionaries(words.map(lambda key: key.replace("-", "_")), words, max_size=3),
)


@given(st.lists(names, min_size=1, max_size=5))
def test_lists_split_at_commas_outside_brackets(items: list[str]) -> None:
    assert split_list(",".join(items)) == items
    assert split_list(" , ".join(items) + ",") == items


def test_filters_take_several_values_in_every_spelling() -> None:
    filters = ["--dataset", "cora,citeseer", "pubmed", "--clients", "5,10", "20", "--dataset", "acm"]
    named = ["--method", "fedprox[mu=0.1,x=y],fedavg", "--partition", "kmeans[balanced=false,starts=10]"]
    request = parse([*filters, *named]).request
    assert request.dataset == ("cora", "citeseer", "pubmed", "acm")
    assert request.clients == (5, 10, 20)
    assert request.method == ("fedprox[mu=0.1,x=y]", "fedavg")
    assert request.partition == ("kmeans[balanced=false,starts=10]",)


@pytest.mark.parametrize("option", ["table", "dataset", "method", "clients", "backbone"])
def test_a_list_without_an_item_is_not_one_left_out(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for empty in ("", " , "):
        with pytest.raises(SystemExit):
            parse([f"--{option}", empty])
        assert f"--{option} is empty" in capsys.readouterr().err
    assert parse([f"--{option}", "", "7"]).request == parse([f"--{option}", "7"]).request


@pytest.mark.parametrize("line", ["records forget a-0 b-0 --results x", "records forget --results x a-0 b-0"])
def test_keys_stand_before_or_after_options(line: str) -> None:
    assert parse(line.split()).options.key == ["a-0", "b-0"]


def test_a_bundle_may_have_any_name() -> None:
    assert parse(["verify", "study"]).options.count == Path("study")


def test_without_a_command_it_runs() -> None:
    for argv in ([], ["--dataset", "cora"], ["--all", "--dry-run"]):
        assert parse(argv).name == "run"
        assert parse(argv).request == parse(["run", *argv]).request


def test_a_command_line_asks_for_what_a_program_does_by_default() -> None:
    plain = parse(["--workers", "1"]).request
    assert plain == Request()
    assert parse(["--rounds", "5", "--set", "hidden=7"]).request.settings == ("hidden=7", "rounds=5")


def test_one_worker_is_on_a_gpu_however_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert parse(["--device=cpu"]).request.workers == 3
    for one in ("--device=cuda", "--set=device=cuda", "--set=rounds=3 --set=device=cuda:0"):
        assert parse(one.split()).request.workers == 1
    assert parse(["--device", "cuda", "--workers", "2"]).request.workers == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("0.5h", 1800)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse(["--checkpoint", text]).request.checkpoint == seconds


@pytest.mark.parametrize(
    ("values", "seeds"),
    [
        (["3"], (0, 1, 2)),
        (["3,"], (3,)),
        (["0,2,2"], (0, 2)),
        (["0,2-4", "3"], (0, 2, 3, 4)),
        (["7-7"], (7,)),
    ],
)
def test_seeds(values: list[str], seeds: tuple[int, ...]) -> None:
    assert parse_seeds(values) == seeds


@pytest.mark.parametrize(
    "text", ["0", "-1", "1,b", ",", "1.5", "5-3", "1-2-3", "3-", "2025112", "9" * 30, "0-999999"]
)
def test_seeds_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds takes"):
        parse_seeds([text])


@pytest.mark.parametrize(
    "argv",
    [
        ["--rounds", "5", "--set", "rounds=7"],
        ["--no-such-flag"],
        ["--timeout", "2d"],
        ["--timeout", "2h", "--engine", "in-process"],
        ["--all", "--table", "fedpub-2"],
        ["--slurm-config", "slurm.yaml"],
        ["--dataset"],
        ["verify", "3", "--max-seconds", "0"],
        ["report", "--workers", "3"],
        ["records", "pack", "--data", "."],
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("fedsub")
    assert captured.out == ""


@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        ("--lr 0.1", "there is no --lr, did you mean --set learning_rate=…?"),
        ("tune --num_layers 3", "did you mean --set hidden=…?"),
        ("--num-clients 3", "did you mean --clients?"),
        ("--gpu", "did you mean --device?"),
        ("exprot a.md", "there is no exprot, did you mean export?"),
    ],
)
def test_an_unknown_option_or_command_is_answered_with_what_was_meant(
    argv: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(argv.split())
    assert answer in capsys.readouterr().err
