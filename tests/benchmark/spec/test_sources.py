from pathlib import Path

import pytest

from fedsub.benchmark.spec import sources


def test_the_list_holds_the_methods_as_they_are() -> None:
    assert not sources.edited(), (
        "records of these methods no longer answer: raise its version where figures move, or see "
        "`python -m benchmark verify --method …` find no difference; then `make sources`"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "base.py").write_text("one = 1\n")
    (tmp_path / "local.py").write_text('"""A method."""\none = 1\n')
    sources.write(tmp_path)
    return tmp_path


def test_comments_docstrings_and_shared_modules_change_no_method(folder: Path) -> None:
    assert sources.edited(folder) == {}
    (folder / "local.py").write_text('"""Another."""\none = 1  # A comment.\n')
    (folder / "core" / "base.py").write_text("one = 2\n")
    assert sources.edited(folder) == {}


def test_other_code_and_new_files_are_told(folder: Path) -> None:
    (folder / "local.py").write_text("one = 2\n")
    (folder / "new.py").write_text("one = 1\n")
    assert [*sources.edited(folder)] == ["local.py", "new.py"]
