import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedsub.benchmark import machine as environment
from fedsub.benchmark.machine import check_device, commit, describe_device, git, same_code
from fedsub.datasets.errors import UserError


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of one commit with the folders `methods` and `datasets`."""
    for name in ("methods", "datasets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text("one = 1\n")
    author = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    for command in (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "-m", "One")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    same_code.cache_clear()
    yield tmp_path
    same_code.cache_clear()


def test_code_is_that_of_a_commit_until_a_line_of_it_changes(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert head is not None
    (repository / "datasets" / "code.py").write_text("one = 2\n")
    assert same_code(head, "methods")
    assert not same_code(head, "methods", "datasets")


def test_a_commit_is_clean_only_where_git_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(repository, "rev-parse", "HEAD")
    commit.cache_clear()
    assert commit() == head
    ask = environment.git
    monkeypatch.setattr(
        environment, "git", lambda folder, *asked: ask(folder, *asked) if asked[0] == "rev-parse" else None
    )
    commit.cache_clear()
    assert commit() == f"{head}-dirty"
    commit.cache_clear()


def test_a_gpu_that_is_not_there_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="leave out --device"):
        check_device("cuda", "auto")
    check_device("cuda", "auto", elsewhere=True)
    with pytest.raises(UserError, match="unknown device 'gpu'"):
        check_device("gpu", "auto", elsewhere=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Played GPU")
    check_device("cuda:0", "torch")
    assert "Played GPU" in describe_device("cuda", "auto")
    with pytest.raises(UserError, match="there is no cuda:1: this machine has 1"):
        check_device("cuda:1", "auto")
