"""Leases: one holder at a time; those of dead processes expire."""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fedsub.benchmark.execution import leases
from fedsub.benchmark.execution.leases import Leases
from fedsub.benchmark.records.store import StoreError
from fedsub.datasets.lock import open_unlinked
from tests.benchmark.fakes import wait_until


def test_a_lease_has_one_holder_until_it_is_given_back(tmp_path: Path) -> None:
    with Leases(tmp_path) as first, Leases(tmp_path) as second:
        assert first.claim("a")
        assert second.claim("b")
        assert not second.claim("a")
        first.give_back("a")
        assert second.claim("a")
        assert not first.claim("a")
        first.give_back("a")
        assert not first.claim("a")
    with Leases(tmp_path) as third:
        assert third.claim("a")
        assert third.claim("b")


def test_the_lease_of_a_killed_process_of_this_machine_is_free_at_once(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from fedsub.benchmark.execution.leases import Leases\n"
        "leases = Leases(Path(sys.argv[1])).__enter__(); leases.claim('a')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / "leases" / "a.lease").exists()
    with Leases(tmp_path) as mine:
        assert mine.claim("a")


TORN: tuple[object, ...] = ("", [], {"machine": 1})
FOREIGN = {"machine": "elsewhere", "process": 1, "started": 0.0}


@pytest.mark.parametrize(
    ("holder", "age", "is_free"),
    [
        (FOREIGN, 0, False),
        (FOREIGN, 121, True),
        # Dated in the future.
        (FOREIGN, -3600, True),
        # Another process with this one's number.
        ({**leases.holder(), "started": 1.0}, 0, True),
        # A container with the same host name has its own process numbers.
        ({"machine": platform.node(), "process": 2**22 + 1, "started": 1.0}, 0, False),
        *((torn, age, age > 0) for torn in TORN for age in (0, 121)),
    ],
)
def test_a_lease_counts_until_it_runs_out_or_its_holder_is_gone(
    holder: object, age: float, is_free: bool, tmp_path: Path
) -> None:
    with Leases(tmp_path) as mine:
        path = tmp_path / "leases" / "a.lease"
        path.write_text(json.dumps(holder) if holder else "{")
        os.utime(path, (time.time() - age,) * 2)
        assert mine.claim("a") is is_free


def test_what_is_held_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT", 0.01)
    with Leases(tmp_path) as mine:
        mine.claim("a")
        path = tmp_path / "leases" / "a.lease"
        os.utime(path, (0, 0))
        wait_until(lambda: path.stat().st_mtime, 10)


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere setting the clock moves no start of a process")
def test_setting_the_clock_takes_no_lease_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Leases(tmp_path) as first, Leases(tmp_path) as second:
        assert first.claim("a")
        boot = psutil.boot_time() + 5
        monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot)
        assert not second.claim("a")
        first.give_back("a")
        assert second.claim("a")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "leases").touch()
    with pytest.raises(StoreError, match="leases"), Leases(tmp_path):
        pass


def test_a_full_disk_leaves_no_lease(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Leases(tmp_path) as mine:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(StoreError, match=r"cannot write .*a\.lease"):
                mine.claim("a")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert mine.claim("a")


def test_links_in_place_of_leases_and_logs_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("kept")
    with Leases(tmp_path) as mine:
        (tmp_path / "leases" / "a.lease").symlink_to(target)
        os.utime(target, (time.time() - 121,) * 2)
        os.utime(tmp_path / "leases" / "a.lease", (time.time() - 121,) * 2, follow_symlinks=False)
        assert mine.claim("a")
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        open(tmp_path / "log", "w", opener=open_unlinked).close()
    assert target.read_text() == "kept"
