from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report import pages as report
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "results"


def test_what_is_no_markdown_is_kept_out_of_git(tmp_path: Path) -> None:
    Records(tmp_path).append(make_record(make_cell(protocol="quick")))
    report.write_report(tmp_path)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split("\n")
    made = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".md", ".jsonl")]
    for name in ("reproduction.json", "claims.json"):
        made.remove(tmp_path / name)
    assert {path.name for path in made} >= {"index.html"}
    for path in made:
        name = f"results/{path.relative_to(tmp_path)}"
        assert any(
            name.startswith(line) if line.endswith("/") else fnmatch(name, line) for line in ignored if line
        )


def test_a_folder_without_records_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no records"):
        report.write_report(tmp_path)


def test_a_table_of_ones_own_is_part_of_the_page(tmp_path: Path) -> None:
    table = tmp_path / "my_table.toml"
    table.write_text('extends = "quick"\ntitle = "Mine alone"\n')
    Records(tmp_path).append(make_record(make_cell(protocol="my_table")))
    report.write_report(tmp_path, [str(table)])
    assert "Mine alone" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "# Mine alone" in (tmp_path / "leaderboards" / "my_table.md").read_text(encoding="utf-8")


def test_a_record_that_answers_two_tables_is_counted_once(tmp_path: Path) -> None:
    own = []
    for name in ("first", "second"):
        own.append(str(tmp_path / f"{name}.toml"))
        Path(own[-1]).write_text('extends = "quick"\n[grid]\nmethod = "fedavg"\n')
    cell = grid_cells(load_protocol(own[0]))[0]
    Records(tmp_path).append(make_record(cell))
    report.write_report(tmp_path, own)
    assert (tmp_path / "leaderboards" / "second.md").is_file()
    assert " 1 record." in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
