"""Description of machine and software for records: processor, versions, threads, devices."""

import hashlib
import os
import platform
import re
import resource
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedsub.datasets.errors import UserError

PACKAGES = ("dgl", "torch", "numpy", "scipy")
SOURCES = ("datasets", "methods", "benchmark")
ROOT = Path(__file__).resolve().parent.parent
"""Root folder of the sources: a checkout, or the package in site-packages."""
IMPORTED_FROM = Path(__file__).absolute().parents[2]
"""Folder from which `fedsub` is imported, for processes of other interpreters."""


def environment(kernel: str, device: str) -> dict[str, Any]:
    """Return versions, processor, threads and machine of this process, JSON-ready."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    described: dict[str, Any] = {
        "python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES},
        "cpu": processor(),
        "threads": torch.get_num_threads(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB",
        "kernel": kernel,
        "device": device,
    }
    # A cell without its device fails, but its record has an environment too.
    if device != "cpu" and torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name(torch.device(device))
    return described


def version_of(package: str, otherwise: str = "not installed") -> str:
    """Return the version of an installed package, else `otherwise`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


@cache
def processor() -> str:
    """Return the name of this machine's processor."""
    # Only Linux has this file.
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def commit() -> str:
    """Return the hash of the checked-out commit, with `-dirty` if a source file differs; without a checkout,
    the installed version."""
    # A foreign repository may contain site-packages.
    is_checkout = git(ROOT, "rev-parse", "--show-toplevel") == str(ROOT)
    head = git(ROOT, "rev-parse", "HEAD") if is_checkout else None
    if head is None:
        found = version_of("fedsub-bench", "")
        return f"v{found}" if found else "unknown"
    # If git fails here, the sources count as changed.
    return head if git(ROOT, "status", "--porcelain", "--", *SOURCES) == "" else f"{head}-dirty"


@cache
def same_code(recorded: str, *folders: str) -> bool:
    """Whether these folders are unchanged since the commit `recorded`; False if git cannot tell."""
    if re.fullmatch("[0-9a-f]{40}", recorded) is None:
        return False
    return git(ROOT, "diff", "--quiet", recorded, "--", *folders) is not None


@cache
def digest_of_sources(*suffixes: str) -> str:
    """Return SHA-256 over names and contents of the benchmark's files with these suffixes, at this process's
    first call."""
    digest = hashlib.sha256()
    for path in sorted(path for name in SOURCES for path in (ROOT / name).rglob("*")):
        if path.suffix in suffixes:
            digest.update(f"{path.relative_to(ROOT)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git in a folder; None if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def reset_peak_memory() -> None:
    """Make `peak_memory_mb` count from now, if the system allows it (Linux)."""
    # A container may forbid it; the peak then covers the whole life of the process.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb() -> float:
    """Return the peak resident memory, MiB, since `reset_peak_memory`, else since the process started."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check_device(device: str, kernel: str, elsewhere: bool = False) -> None:
    """Raises UserError for an unavailable device, and for a kernel that cannot run on it; `elsewhere`: only
    for a device that no machine has."""
    if device == "cpu":
        return
    import torch

    from fedsub.methods.stacked.propagation import check_kernel

    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = device
    if kind != "cuda":
        raise UserError(f"unknown device {device!r}: use cpu or cuda")
    if elsewhere:
        return
    if not torch.cuda.is_available():
        raise UserError("no CUDA device can be used on this machine: leave out --device to run on the CPU")
    if (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise UserError(f"there is no {device}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    check_kernel(kernel, device)


def describe_device(device: str, kernel: str) -> str:
    """Return one line on a device other than the CPU and its message-passing kernels."""
    import torch

    from fedsub.methods.stacked.propagation import check_kernel

    kernels = {"dgl": "DGL's kernels", "torch": "torch's CSR kernels"}[check_kernel(kernel, device)]
    return f"{device}: {torch.cuda.get_device_name(torch.device(device))}; messages pass through {kernels}"


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit every numerical library to `threads` threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(threads))
