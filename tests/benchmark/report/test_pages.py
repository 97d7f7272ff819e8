from pathlib import Path

import pytest

from fedsub.benchmark.records.folder import Records
from fedsub.benchmark.report.pages import write_report
from fedsub.benchmark.spec.plan import grid_cells
from fedsub.benchmark.spec.protocol import load_protocol
from fedsub.datasets.errors import UserError
from tests.benchmark.fakes import make_record


def test_a_folder_without_records_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no records"):
        write_report(tmp_path)


def test_tables_of_ones_own_share_a_record(tmp_path: Path) -> None:
    own = [tmp_path / f"{name}.toml" for name in ("first", "second")]
    for path in own:
        path.write_text(f'extends = "quick"\ntitle = "Mine, {path.stem}"\n[grid]\nmethod = "fedavg"\n')
    Records(tmp_path).append(make_record(grid_cells(load_protocol(str(own[0])))[0]))
    write_report(tmp_path, [*map(str, own)])
    site = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Mine, second" in site
    assert " 1 record." in site
    assert "# Mine, second" in (tmp_path / "leaderboards" / "second.md").read_text(encoding="utf-8")
