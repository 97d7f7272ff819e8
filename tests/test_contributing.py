"""Both guides are valid: every file and every command in them works exactly as printed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from fedsub.benchmark.records.folder import Records
from fedsub.methods.core.base import FederatedMethod

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(
    r"(?:<!-- (?P<path>\S+) -->\n)?^```(?P<language>.*)\n(?P<text>(?s:.*?))^```$", re.MULTILINE
)

RUN = """
import json, runpy, shlex, sys

sys.path[0] = ""
from fedsub.benchmark.execution import engines

engines.ProcessPool = lambda workers, threads, timeout: engines.InProcess(threads)
for line in json.load(sys.stdin):
    python, option, module, *arguments = shlex.split(line)
    assert (python, option) == ("python", "-m"), line
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            sys.exit(f"{line}: {end.code}")
    print("done:", line, flush=True)
"""
"""Runs each command as `python -m` does, all in one process: imports take longer than the commands."""


def blocks() -> list[re.Match[str]]:
    """The fenced blocks of both pages."""
    pages = (ROOT / name for name in ("CONTRIBUTING.md", "docs/recipes.md"))
    return [match for page in pages for match in FENCED.finditer(page.read_text(encoding="utf-8"))]


def recipes() -> dict[str, str]:
    """Path → the file that a guide prints."""
    return {match["path"]: match["text"] for match in blocks() if match["path"]}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree, compiled files included, with the guides' files in the places that they name."""
    # Other processes may be writing such files at this moment.
    ignored = shutil.ignore_patterns("*.tmp.*", "*.pyc.*")
    for name in ("datasets", "methods", "benchmark", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copytree(ROOT / "fedsub", tmp_path / "fedsub", symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in recipes().items():
        assert not (tmp_path / path).exists(), f"{path} exists: the guide would overwrite it"
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def test_every_command_works(tree: Path, tmp_path: Path) -> None:
    text = "\n".join(match["text"] for match in blocks() if match["language"] == "bash")
    commands = [line for line in text.splitlines() if line.strip()]
    assert len(commands) > 7
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(commands),
        cwd=tree,
        env={**os.environ, "FEDSUB_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("done:")] == [
        f"done: {command}" for command in commands
    ]
    records = [*Records(tree / "results").every()]
    assert {record.status for record in records} == {"ok"}
    used = {
        str(getattr(record.cell, field))
        for record in records
        for field in ("method", "dataset", "partition", "protocol")
    }
    assert {"fedtrimmed", "my_graph", "by-label", "my_table"} <= used


def test_the_tables_list_every_public_member_of_a_method_and_twelve_are_hooks() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+(?:\()?)", row)]
    known = [f"{name}(" for name, value in vars(FederatedMethod).items() if callable(value)]
    members = [name for name in (*known, *FederatedMethod.__annotations__) if not name.startswith("_")]
    assert sorted(listed) == sorted(members)
    assert sum(name.endswith("(") for name in members) <= 12


TOUR = ROOT / "docs" / "tour.ipynb"


def test_the_tour_runs() -> None:
    """Runs all cells and checks the promised outputs."""
    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(TOUR.parent)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    (page,) = (page for page in pages if "slow-average</th>" in page)
    scores = re.findall(r"[\d.]+ ± [\d.]+", page)
    assert len({*scores}) == 2
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "round 10 of 10" in printed
    assert "| Local" in printed
