"""Finding files, writing them atomically, and reporting errors of the operating system."""

import os
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pooch

from fedsub.datasets.errors import UserError


def expanded(path: str | Path) -> Path:
    """Return a path with `~` replaced, except `~name` of an unknown user, which `Path.expanduser` refuses."""
    return Path(os.path.expanduser(path))


def find_data(noun: str, path: str) -> Path:
    """Find a file that a user names: in the working folder, else in FEDSUB_DATA.

    Raises UserError if it is in neither; `noun` names its kind in the message.
    """
    tried = [expanded(folder) / expanded(path) for folder in ("", os.environ.get("FEDSUB_DATA", ""))]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    places = " or ".join(map(str, dict.fromkeys(tried)))
    raise UserError(f"no {noun} at {places}: check the path")


def user_cache() -> Path:
    """Return the cache folder: FEDSUB_CACHE, else the operating system's cache folder for fedsub-bench."""
    folder = os.environ.get("FEDSUB_CACHE")
    return expanded(folder) if folder else Path(pooch.os_cache("fedsub-bench"))


def locate(name: str, data_directory: Path | None = None) -> Path | None:
    """Find a graph's archive in `data_directory` (else FEDSUB_DATA), then in the user cache; None if missing.

    Raises UserError if that folder does not exist or is a file."""
    paths = (folder / f"{name}.npz" for folder in _folders(data_directory))
    return next(filter(Path.is_file, paths), None)


def _folders(data_directory: Path | None) -> list[Path]:
    given = data_directory or os.environ.get("FEDSUB_DATA")
    if not given:
        return [user_cache()]
    folder = expanded(given)
    with explained("read", folder, "check the path and its permissions"):
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            fix = "give the folder of archives with --data or FEDSUB_DATA"
            raise UserError(f"the data folder {folder} {what}: {fix}")
    return [folder, user_cache()]


@contextmanager
def explained(
    action: str,
    path: str | Path,
    fix: str = "choose another file or folder",
    error: type[UserError] = UserError,
) -> Iterator[None]:
    """Turn an OSError raised inside the block into `error`: 'cannot ACTION PATH: reason; FIX'."""
    try:
        yield
    except OSError as cause:
        reason = cause.strerror or str(cause) or type(cause).__name__
        if action == "read" and isinstance(cause, FileNotFoundError):
            fix = "check the path"
        raise error(f"cannot {action} {path}: {reason}; {fix}") from cause


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises UserError if it cannot be read or is not TOML."""
    with explained("read", path, "check the path"):
        content = path.read_bytes()
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise UserError(f"{path} is not valid TOML: {cause}") from cause


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file, creating its folder, so that readers see the old file or the whole new one.

    Raises OSError if it cannot be written (see `explained`), and then leaves no partial file.
    """
    with written_atomically(path) as stream:
        stream.write(content)


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yield a stream whose content is written as by `write_atomically` at the end of the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
