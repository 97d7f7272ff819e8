from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report import pages as report
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_record

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "results"


def test_a_folder_without_records_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no records"):
        report.write_report(tmp_path)


def test_tables_of_ones_own_share_a_record_and_git_keeps_nothing_but_markdown(tmp_path: Path) -> None:
    own = [tmp_path / f"{name}.toml" for name in ("first", "second")]
    for path in own:
        path.write_text(f'extends = "quick"\ntitle = "Mine, {path.stem}"\n[grid]\nmethod = "fedavg"\n')
    tables = [*map(str, own)]
    Records(tmp_path).append(make_record(grid_cells(load_protocol(tables[0]))[0]))
    written = {*tmp_path.rglob("*")}
    report.write_report(tmp_path, tables)
    site = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Mine, second" in site
    assert " 1 record." in site
    assert "# Mine, second" in (tmp_path / "leaderboards" / "second.md").read_text(encoding="utf-8")
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split("\n")
    kept = {tmp_path / "reproduction.json", tmp_path / "claims.json"}
    made = {path for path in {*tmp_path.rglob("*")} - written if path.is_file() and path.suffix != ".md"}
    assert made > kept
    for path in made - kept:
        name = f"results/{path.relative_to(tmp_path)}"
        assert any(
            name.startswith(line) if line.endswith("/") else fnmatch(name, line) for line in ignored if line
        )
