"""The project files agree with the code and with each other."""

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("datasets", "methods", "benchmark")
OPTIONAL_IMPORTS = {"flwr": "flower", "submitit": "slurm", "torch_geometric": "pyg"}
"""Top-level modules that only an extra installs, with the extra's name."""
DISTRIBUTION_OF = {"sklearn": "scikit-learn", "sknetwork": "scikit-network", "yaml": "pyyaml"}
"""Import name → distribution name, where the two differ."""


def read(name: str) -> configparser.ConfigParser:
    """Read one of the project's ini files without interpolation."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / name, encoding="utf-8")
    return parser


def requirements(text: str) -> dict[str, str]:
    """Return distribution name → version specifier, from one requirement per line."""
    pairs = [re.match(r"([A-Za-z0-9_.-]+)(.*)", line) for line in text.split("\n") if line.strip()]
    return {pair[1].lower(): pair[2].strip() for pair in pairs if pair}


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    """All nodes of the packages' syntax trees, each with its file."""
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_every_import_is_declared() -> None:
    setup = read("setup.cfg")
    declared = set(requirements(setup["options"]["install_requires"]))
    extras = setup["options.extras_require"]
    imported = {}
    for path, node in nodes():
        if isinstance(node, ast.Import):
            imported.update({alias.name.split(".")[0]: path for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imported[node.module.split(".")[0]] = path
    undeclared = {}
    for module in imported.keys() - {*sys.stdlib_module_names, "fedsub"}:
        if module in OPTIONAL_IMPORTS:
            assert DISTRIBUTION_OF.get(module, module) in requirements(extras[OPTIONAL_IMPORTS[module]])
        elif DISTRIBUTION_OF.get(module, module) not in declared:
            undeclared[module] = imported[module]
    assert not undeclared, f"imported but not in setup.cfg's install_requires: {undeclared}"


def test_the_extra_that_is_advised_installs_what_is_missing() -> None:
    extras = read("setup.cfg")["options.extras_require"]
    advised: dict[str, str] = {}
    for _, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "needed":
            given = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
            if len(given) == len(node.args):
                advised[given[0]] = given[1]
    assert {"opacus", "ray"} <= advised.keys()
    for module, extra in advised.items():
        assert DISTRIBUTION_OF.get(module, module) in requirements(extras[extra])


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("dev", ("test", "lint")),
        ("run", ()),
        ("ci", ("test", "flower", "mlflow", "privacy", "ray", "tensorboard")),
        ("dgl2", ("test",)),
    ],
)
def test_locked_versions_have_hashes_and_lie_in_the_ranges(name: str, extras: tuple[str, ...]) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))
    assert len(re.findall(r"^[a-z0-9.-]+==\S+ \\\n    --hash=sha256:", text, re.MULTILINE)) == len(locked)
    setup = read("setup.cfg")
    wanted = requirements(setup["options"]["install_requires"])
    for extra in extras:
        wanted |= requirements(setup["options.extras_require"][extra])
    # Names in place of the ranges above.
    others = ROOT / "requirements" / f"{name}.in"
    wanted |= requirements(others.read_text(encoding="utf-8") if others.exists() else "")
    # The package index decides which build of torch is installed.
    del wanted["torch"]
    for distribution, specifier in wanted.items():
        assert locked[distribution.replace("_", "-")] in SpecifierSet(specifier), distribution


def test_every_action_is_named_by_its_commit() -> None:
    used = [
        line.strip()
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+$", line)] == []


def test_the_readme_has_the_figures_of_the_findings() -> None:
    first, records = (
        {
            line.split("**")[1]: sorted(re.findall(r"\d[\d,.]*\d|\d", line.split("**", 2)[2]))
            for line in path.read_text("utf-8").splitlines()
            if line.startswith("- **") and line.split("**")[1].endswith(".")
        }
        for path in (ROOT / "README.md", ROOT / "results" / "README.md")
    )
    assert records
    assert {title: first[title] for title in records} == records
