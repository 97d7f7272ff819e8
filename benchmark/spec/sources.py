"""Methods of this copy whose code differs from that of the committed records.

For each file of a method, `methods/sources.json` lists a digest of its text, which is quick to compare, and
one of its code, which comments and docstrings do not change. Run `make sources` to update it after raising a
method's `version`, or after `python -m benchmark verify 20 --method …` found no difference.
"""

import json
import re
from pathlib import Path

from fedsub import methods
from fedsub.benchmark.spec.digests import code_in, digest
from fedsub.datasets.paths import PLUGIN

FOLDER = Path(methods.__path__[0])
LIST = "sources.json"
_IMPORT = re.compile(r"^\s*(?:from|import) fedsub\.methods\.(\w+)", re.MULTILINE)


def edited(folder: Path = FOLDER) -> dict[str, bytes]:
    """Path in the folder → code of each file whose code differs from the list."""
    listed, found = json.loads((folder / LIST).read_text("utf-8")), {}
    for name, text in _texts(folder).items():
        of_text, of_code = listed.get(name, ("", ""))
        if digest([text.encode()]) != of_text and digest([code := code_in(text)]) != of_code:
            found[name] = code
    return found


def imports() -> dict[str, set[str]]:
    """Name of a method's file or folder → names of those in `methods` that it imports."""
    found: dict[str, set[str]] = {}
    for name, text in _texts(FOLDER).items():
        found.setdefault(module_of(name), set()).update(_IMPORT.findall(text))
    return found


def module_of(name: str) -> str:
    """Name of the file or folder, without ending, that holds a file of a method."""
    return Path(name).parts[0].removesuffix(PLUGIN)


def write(folder: Path = FOLDER) -> None:
    """Write the list for the present files."""
    lines = (
        json.dumps(name) + ": " + json.dumps([digest([text.encode()]), digest([code_in(text)])])
        for name, text in _texts(folder).items()
    )
    (folder / LIST).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _texts(folder: Path) -> dict[str, str]:
    names = sorted(each.relative_to(folder) for each in folder.rglob("*.py"))
    own = [each for each in names if each.parts[0] not in (*methods.SHARED, "__init__.py")]
    return {str(each): (folder / each).read_text("utf-8") for each in own}
