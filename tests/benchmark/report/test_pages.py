from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedsub.benchmark.records.store import Store
from fedsub.benchmark.report import pages as report
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_cell, make_record

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "results"


def test_pages_in_git_are_those_that_the_records_give(tmp_path: Path) -> None:
    for folder in ("runs", "authors", "notes"):
        shutil.copytree(RESULTS / folder, tmp_path / folder)
    # As after `make bench`, which runs in the same folder.
    Store(tmp_path, "quick").append(make_record(make_cell(protocol="quick"), seconds={"train": 9000.0}))
    report.write_report(tmp_path)
    pages = ["reproduction.md", "reproduction.json", "claims.md", "authors.md"]
    boards = [path.name for path in RESULTS.glob("leaderboards/*.md") if path.stem != "quick"]
    pages += [f"leaderboards/{name}" for name in boards]
    assert len(pages) > 20
    stale = [page for page in pages if (tmp_path / page).read_bytes() != (RESULTS / page).read_bytes()]
    assert not stale, "run make results"
    assert (tmp_path / "index.html").stat().st_size <= 8e6


def test_what_is_no_markdown_is_kept_out_of_git(tmp_path: Path) -> None:
    Store(tmp_path, "quick").append(make_record(make_cell(protocol="quick")))
    report.write_report(tmp_path)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split("\n")
    made = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".md", ".jsonl")]
    made.remove(tmp_path / "reproduction.json")
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
    Store(tmp_path, "my_table").append(make_record(make_cell(protocol="my_table")))
    report.write_report(tmp_path, [str(table)])
    assert '<section id="my_table"' in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "# Mine alone" in (tmp_path / "leaderboards" / "my_table.md").read_text(encoding="utf-8")


def test_a_record_that_answers_two_tables_is_counted_once(tmp_path: Path) -> None:
    own = []
    for name in ("first", "second"):
        own.append(str(tmp_path / f"{name}.toml"))
        Path(own[-1]).write_text('extends = "quick"\n[grid]\nmethod = "fedavg"\n')
    cell = grid_cells(load_protocol(own[0]))[0]
    Store(tmp_path, "first").append(make_record(cell))
    report.write_report(tmp_path, own)
    assert (tmp_path / "leaderboards" / "second.md").is_file()
    assert "<p>1 records." in (tmp_path / "index.html").read_text(encoding="utf-8")
