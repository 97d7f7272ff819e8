"""The wheel, installed in a fresh environment, works in any folder and beside Hugging Face's `datasets`."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.benchmark.fakes import write_method

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--clients", "3", "--rounds", "2", "--seeds", "1", "--engine", "in-process")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources without downloading setuptools."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("fedsub", "datasets", "methods", "benchmark"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    code = "from setuptools import build_meta; build_meta.build_wheel('built')"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    (built,) = (copy / "built").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and this one's dependencies, Hugging Face's `datasets` among them."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, env=bare(folder))
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def bare(folder: Path) -> dict[str, str]:
    """Return environment variables without the path of these sources."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**kept, "PATH": f"{folder / 'bin'}{os.pathsep}{kept.get('PATH', '')}"}


def run(folder: Path, place: Path, *command: str) -> str:
    """Run a command of the environment in the folder `place`; return its output, or its error if it fails."""
    program, *arguments = command
    done = subprocess.run(
        [str(folder / "bin" / program), *arguments],
        cwd=place,
        env=bare(folder),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_one_package_with_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("METADATA"))
        told = archive.read(metadata).decode()
    assert {name.split("/")[0] for name in names} == {"fedsub", metadata.split("/")[0]}
    modules = [
        path for package in ("datasets", "methods", "benchmark") for path in ROOT.glob(f"{package}/**/*.py")
    ]
    places = ("protocols/*.toml", "report/site/assets/*", "**/templates/*")
    data = [path for place in places for path in ROOT.glob(f"benchmark/{place}")]
    assert {f"fedsub/{source.relative_to(ROOT)}" for source in (*modules, *data)} <= {*names}
    assert "fedsub/datasets/catalogue.toml" in names
    assert "Requires-Dist: dgl==1.1.3" in told
    assert "Classifier: Private :: Do Not Upload" in told


def test_the_command_runs_a_method_from_another_folder_beside_hugging_faces_datasets(
    environment: Path, tmp_path: Path
) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    write_method(elsewhere / "mine.py")
    asked = ("--dataset", "community[nodes=200]", "--method", "fedavg", str(elsewhere / "mine.py"))
    out = run(environment, place, "fedsub", *asked, *SMALL, "--format", "json")
    records = json.loads(out)
    assert {record["method"] for record in records} == {"fedavg", "mine"}
    assert len({record["metrics"]["accuracy"] for record in records}) == 1
    assert {record["commit"] for record in records} == {"v0.1.0"}
    # Records are in the command's working folder.
    assert [path.name for path in place.iterdir()] == ["results"]
    assert not any(elsewhere.rglob("runs"))
    code = (
        "import datasets, fedsub; methods = fedsub.results('results').frame()['method']; "
        "print(datasets.Dataset.from_dict({'a': [1, 2]}).num_rows, methods.nunique(), fedsub.__file__)"
    )
    *said, file = run(environment, place, "python", "-c", code).split()
    assert said == ["2", "2"]
    assert Path(file).is_relative_to(environment)
