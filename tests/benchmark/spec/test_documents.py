"""Statements of the documents agree with the project."""

import re
import shlex
from pathlib import Path

import pytest

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse

ROOT = Path(__file__).resolve().parents[3]
GUIDES = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/*.md"))]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *GUIDES]
NOTES = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("results/notes/*.md"))]
SUFFIXES = (".py", ".md", ".toml", ".csv", ".jsonl", ".cfg")
GENERATED = (
    *("results/site/", "results/verified.jsonl", "results/figures/", "results/checkpoints/"),
    *("results/leases/", "results/logs/", ".venv-authors/"),
)
"""Files that commands make and git ignores."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def named_paths(text: str) -> set[str]:
    """Return the paths in the prose of a document, in backticks or as links."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    quoted = re.findall(r"`([\w./*-]+)`", prose)
    linked = [target for target in re.findall(r"\]\(([^)#\s]+)\)", prose) if "://" not in target]
    in_tree = [name for name in quoted if "/" in name or Path(name).suffix in SUFFIXES]
    return {name for name in [*in_tree, *linked] if not name.startswith(("./", "/"))}


@pytest.mark.parametrize("document", [*DOCUMENTS, *NOTES])
def test_every_path_that_is_named_exists(document: str) -> None:
    named = named_paths(text_of(document))
    assert named or document in NOTES
    # A code block marked with a file name is an example that the reader writes.
    written_by_the_reader = set(re.findall(r"<!-- (\S+) -->\n```", text_of(document))) | {".venv/bin/python"}
    beside = (ROOT / document).parent
    missing = {name for name in named if not any(ROOT.glob(name)) and not (beside / name).exists()}
    assert not {name for name in missing - written_by_the_reader if not name.startswith(GENERATED)}


def test_the_graph_of_the_guide_runs_by_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is read from the folder that the guide names, inside the working folder."""
    guide = text_of("docs/graphs.md")
    (tmp_path / "bank").mkdir()
    for name, content in re.findall(r"<!-- (\w+\.csv) -->\n```\n(.*?)```", guide, re.DOTALL):
        (tmp_path / "bank" / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^python -m benchmark (--dataset \./bank .*?)(?: +#.*)?$", guide, re.MULTILINE)
    assert len(commands) == 2
    for number, command in enumerate(commands):
        quick = ["--rounds", "2", "--engine", "in-process", "--results", f"results{number}"]
        assert main(parse([*shlex.split(command), *quick])) == 0
