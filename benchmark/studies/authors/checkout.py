"""Checks of a public code's checkout and its version."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from fedsub.benchmark.analysis.codes import CODES, PublicCode
from fedsub.benchmark.machine import ROOT, git
from fedsub.benchmark.studies.worker import lacks
from fedsub.datasets.errors import UserError, unknown

FOLDER = ROOT / ".venv-authors"
"""Default folder of the interpreter."""
VARIABLE = "FEDSUB_AUTHORS_PYTHON"


def chosen(given: Sequence[str]) -> dict[PublicCode, Path]:
    """Public codes and their folders, from `NAME=PATH` arguments.

    Raises UserError for an unknown name and for a path that holds another code.
    """
    found: dict[PublicCode, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if name not in CODES:
            raise unknown("public code", name, CODES)
        code = CODES[name]
        if not equals or not (Path(path) / code.entry).is_file():
            raise UserError(
                f"{text} names no checkout of {code.title}'s code: write {name}=PATH, the path of a clone of "
                f"https://github.com/{code.repository}, which has {code.entry}"
            )
        found[code] = Path(path).resolve()
    return found


def check_python(python: Path) -> None:
    """Raises UserError if the interpreter cannot run a worker."""
    if reason := lacks(python, "import torch, numpy, scipy"):
        raise UserError(
            f"{python} cannot run the authors' code ({reason}): {INSTALL}, or name an interpreter with "
            f"--python or {VARIABLE}"
        )


INSTALL = (
    "make an environment with python3 -m venv .venv-authors and "
    ".venv-authors/bin/pip install -r benchmark/studies/authors/requirements.txt"
)


def version_of(checkout: Path) -> str:
    """The commit, with `-dirty` if a file of it was changed; of a folder without git a digest of its code."""
    if git(checkout, "rev-parse", "--show-toplevel") == str(checkout):
        changed = git(checkout, "status", "--porcelain", "--untracked-files=no")
        return f"{git(checkout, 'rev-parse', 'HEAD')}{'' if changed == '' else '-dirty'}"
    digest = hashlib.sha256()
    for path in sorted(checkout.rglob("*.py")):
        digest.update(f"{path.relative_to(checkout)}\0".encode() + path.read_bytes())
    return f"sha256:{digest.hexdigest()[:40]}"
