from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsub.benchmark.cli.arguments import parse, parse_seeds, split_list
from fedsub.datasets.options import format_name, parse_name

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
    for item in items:
        name, options = parse_name(item)
        assert parse_name(format_name(name, options)) == (name, options)


def test_filters_take_several_values_in_every_spelling() -> None:
    filters = ["--dataset", "cora,citeseer", "pubmed", "--clients", "5,10", "20", "--dataset", "acm"]
    named = ["--method", "fedprox[mu=0.1,x=y],fedavg", "--partition", "metis[recursive=true,contiguous=true]"]
    arguments = parse([*filters, *named])
    assert arguments.dataset == ("cora", "citeseer", "pubmed", "acm")
    assert arguments.clients == (5, 10, 20)
    assert arguments.method == ("fedprox[mu=0.1,x=y]", "fedavg")
    assert arguments.partition == ("metis[recursive=true,contiguous=true]",)


@pytest.mark.parametrize("option", ["table", "dataset", "method", "clients", "backbone", "save", "forget"])
def test_a_list_without_an_item_is_not_one_left_out(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for empty in ("", " , "):
        with pytest.raises(SystemExit):
            parse([f"--{option}", empty])
        assert f"--{option} names nothing" in capsys.readouterr().err
    assert parse([f"--{option}", "", "7"]) == parse([f"--{option}", "7"])


def test_one_worker_is_on_a_gpu_however_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    for several in ("--rounds=3", "--device=cpu", "--set=device=cuda --set=device=cpu"):
        assert parse(several.split()).workers == 3
    for one in ("--device=cuda", "--set=device=cuda", "--set=rounds=3 --set=device=cuda:0"):
        assert parse(one.split()).workers == 1
    assert parse(["--device", "cuda", "--workers", "2"]).workers == 2


def test_parts_of_the_performance_page() -> None:
    assert parse(["--performance"]).performance == ()
    assert parse(["--performance", "roofline,peers"]).performance == ("roofline", "peers")
    assert parse(["--peers"]).performance == ("peers",)
    assert parse([]).performance is None


def test_records_to_forget_are_a_list() -> None:
    assert parse(["--forget", "0123,4567", "89ab"]).forget == ("0123", "4567", "89ab")


def test_an_option_of_its_own_is_a_setting_like_those_in_set() -> None:
    assert parse(["--rounds", "5", "--set", "hidden=7"]).settings == ("hidden=7", "rounds=5")


@pytest.mark.parametrize(
    ("given", "seconds"), [((), 600), (("0",), 0), (("90s",), 90), (("10m",), 600), (("0.5h",), 1800)]
)
def test_the_time_between_checkpoints(given: tuple[str, ...], seconds: float) -> None:
    assert parse([*["--checkpoint"] * len(given), *given]).checkpoint == seconds


@pytest.mark.parametrize(
    ("values", "seeds"),
    [
        (["3"], (0, 1, 2)),
        (["3,"], (3,)),
        (["0,2,2"], (0, 2)),
        (["4", "7"], (4, 7)),
        (["1"], (0,)),
        (["3-5"], (3, 4, 5)),
        (["0,2-4", "3"], (0, 2, 3, 4)),
        (["7-7"], (7,)),
    ],
)
def test_seeds(values: list[str], seeds: tuple[int, ...]) -> None:
    assert parse_seeds(values) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "a", "1,b", ",", "1.5", "5-3", "1-2-3", "3-", "-"])
def test_seeds_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds takes"):
        parse_seeds([text])


@pytest.mark.parametrize(
    "argv",
    [
        ["--clients", "0"],
        ["--clients", "five"],
        ["--seeds", "0"],
        ["--rounds", "0"],
        ["--rounds", "5", "--set", "rounds=7"],
        ["--workers", "-1"],
        ["--kernel", "cuda"],
        ["--no-such-flag"],
        ["--seed", "7"],
        ["--shard", "0/4"],
        ["--shard", "5/4"],
        ["--shard", "3"],
        ["--timeout", "2d"],
        ["--timeout", "0h"],
        ["--timeout", "2h", "--engine", "in-process"],
        ["--timeout", "2h", "--pdb"],
        ["--campaign", "--hours", "-1"],
        ["--hours", "2"],
        ["--max-seconds", "2"],
        ["--rows", "dataset"],
        ["--columns", "method"],
        ["--pairs", "3"],
        ["--peer-python", "python"],
        ["--peer-checkout", "clone"],
        ["--authors-python", "python"],
        ["--verify", "3", "--hours", "2"],
        ["--list", "--verify", "3"],
        ["--export", "table.md", "--report"],
        ["--campaign", "--performance"],
        ["--report", "--dry-run"],
        ["--report", "--workers", "1000"],
        ["--list", "--rerun"],
        ["--export", "table.md", "--timeout", "2h"],
        ["--forget", "0123456", "--dry-run"],
        ["--campaign", "--seeds", "3"],
        ["--campaign", "--set", "rounds=3"],
        ["--campaign", "--device", "cuda"],
        ["--campaign", "--shard", "1/2"],
        ["--verify", "3", "--rounds", "50"],
        ["--export", "table.md", "--rounds", "50"],
        ["--forget", "0123456", "--dataset", "cora"],
        ["--report", "--dataset", "cora"],
        ["--peers", "--table", "fedpub-2"],
        ["--all", "--table", "fedpub-2"],
        ["--slurm-config", "slurm.yaml"],
        ["--slurm-config", "slurm.yaml", "--engine", "ray"],
        ["--dataset"],
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
    assert captured.err.startswith("benchmark: ")
    assert captured.out == ""


def test_how_one_seed_is_named_is_said() -> None:
    with pytest.raises(ValueError, match="1 is seed 0 alone, and 3, is seed 3"):
        parse_seeds(["0"])
    assert (parse_seeds(["1"]), parse_seeds(["3,"])) == ((0,), (3,))


def test_an_option_that_needs_another_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--max-seconds", "2"])
    assert "--max-seconds needs --verify" in capsys.readouterr().err
    together = ["--export", "table.md", "--rows", "dataset", "--forget", "0123456"]
    assert parse(together).rows == "dataset"
    assert parse(["--campaign", "--hours", "2", "--dry-run"]).hours == 2


def test_an_option_that_a_command_would_pass_over_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--verify", "3", "--table", "fedpub-2", "--method", "fedavg", "--rounds", "50"])
    assert "--verify does not choose by --rounds" in capsys.readouterr().err
    together = ["--export", "table.md", "--forget", "0123456", "--dataset", "cora", "--seeds", "3"]
    assert parse(together).seeds == (0, 1, 2)
    assert parse(["--verify", "3", "--table", "fedpub-2", "--seeds", "1,"]).seeds == (1,)
    assert parse(["--authors", "fedpub=x", "--set", "rounds=9"]).settings == ("rounds=9",)


def test_an_option_is_spelt_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--seed", "7"])
    assert "did you mean --seeds" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse(["--timeout", text]).timeout == seconds


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("fedsub-bench")


def test_a_shard_is_a_part_of_their_number() -> None:
    assert parse(["--shard", "3/16"]).shard == (3, 16)


def test_reading_the_command_line_imports_nothing_that_counts_threads() -> None:
    code = "import sys, fedsub.benchmark.cli.arguments; print({'torch', 'numpy', 'dgl'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
