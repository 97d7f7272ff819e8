import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsub.benchmark.cli.commands import main
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.spec import catalog
from fedsub.datasets.errors import UserError
from fedsub.datasets.plugins import user_objects

pytestmark = pytest.mark.usefixtures("own_cache")
LATE = ("torch", "dgl", "scipy", "matplotlib", "pandas")
COMMAND = f"""
import sys
from fedsub.benchmark.cli.parser import parse
from fedsub.benchmark.cli.commands import main
code = max(main(parse(line.split())) for line in sys.argv[1:])
print(code, *(name for name in {LATE} if name in sys.modules), file=sys.stderr)
"""


def test_the_second_time_nothing_heavy_is_imported_and_the_answer_is_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ("--table fedpub-2 --dry-run", "list", "list fedavg")
    assert [main(parse(line.split())) for line in lines] == [0, 0, 0]
    first = capsys.readouterr().out
    done = subprocess.run([sys.executable, "-c", COMMAND, *lines], capture_output=True, text=True)
    assert done.stdout == first
    assert done.stderr.splitlines()[-1] == "0"


def test_a_finished_table_is_shown_without_torch(tmp_path: Path) -> None:
    line = f"--table quick --method local --set rounds=1 --engine in-process --results {tmp_path}"
    # The first asks what is run, the second also what was run.
    assert [main(parse(line.split())) for _ in range(2)] == [0, 0]
    done = subprocess.run([sys.executable, "-c", COMMAND, line], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].split() == ["0", "scipy"]


def remembered_methods(change: str) -> list[str]:
    """Return the listed methods after the cache that a command keeps was replaced by `change`."""
    with catalog.remembering():
        names = catalog.methods()
    (path,) = catalog.user_cache().glob("known-*.json")
    kept = json.loads(path.read_bytes().partition(b"\n")[2])
    assert [*kept["methods"]] == names
    kept["methods"] = {change: kept["methods"]["fedavg"]}
    content = json.dumps(kept).encode()
    path.write_bytes(catalog._seal(content) + b"\n" + content)
    with catalog.remembering():
        return catalog.methods()


def test_a_paragraph_on_departures_is_found_however_it_begins() -> None:
    for told in map(catalog.describe, catalog.methods()):
        assert bool(told.departures) == any(each.startswith("Departure") for each in told.text)


def test_an_answer_holds_until_a_source_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remembered_methods("changed") == ["changed"]
    monkeypatch.setattr(catalog, "digest_of_sources", lambda *_: "another")
    with catalog.remembering():
        assert "fedavg" in catalog.methods()


def test_nothing_is_remembered_beside_a_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remembered_methods("changed") == ["changed"]

    class Installed:
        groups = ("console_scripts", "fedsub.methods")

    monkeypatch.setattr(catalog, "entry_points", Installed)
    with catalog.remembering():
        assert "fedavg" in catalog.methods()


def test_a_file_of_ones_own_is_asked_every_time(tmp_path: Path) -> None:
    path = tmp_path / "scheme.py"
    for version in (2, 3):
        path.write_text(f"VERSION = {version}\ndef partition(dataset, clients, seed):\n    return []\n")
        with catalog.remembering():
            assert catalog.part("partition", str(path)).version == version


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_changes_no_answer(place: float, bit: int) -> None:
    def answers() -> Any:
        with catalog.remembering():
            method, scheme = catalog.describe("fedpub"), catalog.part("partition", "metis")
            return json.loads(json.dumps([catalog.methods(), asdict(method), asdict(scheme)]))

    expected = answers()
    (path,) = catalog.user_cache().glob("known-*.json")
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    assert answers() == expected


def test_a_name_that_only_a_file_has_is_not_remembered() -> None:
    with catalog.remembering(), user_objects({("dataset", "ring"): "ring.npz"}):
        catalog.checked("dataset", "ring")
    with catalog.remembering(), pytest.raises(UserError, match="unknown dataset 'ring'"):
        catalog.checked("dataset", "ring")
