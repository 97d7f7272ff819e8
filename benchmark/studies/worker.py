"""A worker process controlled through a pipe; the worker's end is `studies.handover`."""

import os
import subprocess
import tempfile
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import psutil

from fedsub.benchmark.machine import IMPORTED_FROM, thread_variables


def lacks(python: Path, imports: str) -> str:
    """Return in one line why the interpreter cannot run the statement `imports`; empty if it can."""
    try:
        done = subprocess.run([python, "-c", imports], capture_output=True, text=True)
    except OSError as error:
        return error.strerror or str(error)
    return (done.stderr.strip() or "no message").splitlines()[-1] if done.returncode else ""


def available_memory(share: float) -> int:
    """Return a memory limit in bytes: a share of the machine's available memory."""
    return int(share * psutil.virtual_memory().available)


class WorkerError(Exception):
    """A worker failed; the text is the reason in one line, `worker` its name."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(reason)
        self.worker = worker


class Worker:
    """One process with one thread, controlled through a pipe."""

    def __init__(self, name: str, python: Path | str, module: str, seconds: float) -> None:
        self.name = name
        self.seconds = seconds
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        # Temporary files of its packages, such as torch-geometric's generated code, are removed with it.
        # Cleanup errors are ignored: a child process may still write there, and only the folder is lost.
        self.folder = tempfile.TemporaryDirectory(prefix="fedsub-worker-", ignore_cleanup_errors=True)
        # Only `fedsub` is found here: beside it, the peer would import packages of our environment.
        os.symlink(IMPORTED_FROM / "fedsub", os.path.join(self.folder.name, "fedsub"))
        paths = filter(None, (self.folder.name, os.environ.get("PYTHONPATH")))
        self.pipe, theirs = Pipe()
        self.process = subprocess.Popen(
            [str(python), "-m", module, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            env={
                **os.environ,
                **thread_variables(1),
                "CUDA_VISIBLE_DEVICES": "",
                "PYTHONPATH": os.pathsep.join(paths),
                "TMPDIR": self.folder.name,
            },
        )
        # With this copy open, the end of the process would go unnoticed.
        theirs.close()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command and wait for the answer. Raises WorkerError."""
        try:
            self.pipe.send(command)
            late = {"error": f"no answer within {self.seconds:.0f} s"}
            answer: dict[str, Any] = self.pipe.recv() if self.pipe.poll(self.seconds) else late
        except (EOFError, OSError):
            answer = {"error": self._end()}
        if "error" in answer:
            raise WorkerError(self.name, answer["error"])
        return answer

    def _end(self) -> str:
        """Return in one line why the process ended."""
        code = self.process.wait()
        self.errors.seek(0)
        last = (self.errors.read().strip() or "no message").splitlines()[-1]
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}: {last}"

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        """End the process and remove its temporary files."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.errors.close()
        self.folder.cleanup()
