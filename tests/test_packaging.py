"""Our `datasets` and Hugging Face's never overwrite each other, nor is one taken for the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that building reads, beside the three packages, empty."""
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("datasets", "methods", "benchmark"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    return tmp_path


def build(project: Path, hook: str) -> subprocess.CompletedProcess[str]:
    """What an installer runs, without its download of setuptools."""
    code = f"from setuptools import build_meta; print(build_meta.{hook}('built'))"
    (project / "built").mkdir()
    return subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)


def test_a_wheel_is_refused_with_one_sentence(project: Path) -> None:
    done = build(project, "build_wheel")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: fedsub-bench makes no wheel")
    assert "pip install -e ." in last
    assert not list(project.rglob("*.whl"))


def test_installing_in_place_gives_the_dependencies_and_the_command(project: Path) -> None:
    done = build(project, "build_editable")
    assert done.returncode == 0, done.stderr
    (wheel,) = (project / "built").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name.rpartition("/")[2]: name for name in archive.namelist()}
        commands = archive.read(names["entry_points.txt"]).decode()
        assert "fedsub-bench = benchmark.__main__:run" in commands
        assert "fedsub = benchmark.__main__:run" in commands
        metadata = archive.read(names["METADATA"]).decode()
    assert "Requires-Dist: dgl==1.1.3" in metadata
    assert "Classifier: Private :: Do Not Upload" in metadata


def test_the_command_refuses_a_foreign_datasets(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("raise SystemExit('imported')\n")
    place = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "benchmark", "--list"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": place},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (sentence,) = done.stderr.strip().splitlines()
    assert f"finds another package of that name ({tmp_path / 'datasets'}): run `python" in sentence
    assert f"from {ROOT}" in sentence
