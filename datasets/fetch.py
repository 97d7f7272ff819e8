"""Download of upstream files, with progress bar, SHA-256 check and atomic rename."""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from fedsub.datasets.errors import UserError
from fedsub.datasets.files import write_atomically

SECONDS_TO_ANSWER = 30


@dataclass(frozen=True)
class Source:
    """One upstream file."""

    url: str
    sha256: str | None = None
    """Expected hash. None: the hash of the first download is stored beside the file and expected
    afterwards."""
    part: str = ""
    """The parser's name for the file, if a graph has several."""

    @property
    def file_name(self) -> str:
        """The file's name in the folder: the last part of its address."""
        return self.url.rsplit("/", 1)[1]


def fetch(sources: Sequence[Source], folder: Path, remedy: str, progress: bool = True) -> dict[str, Path]:
    """Download the sources that are missing in `folder`; returns `Source.part` → path.

    `remedy` ends the error's sentence: what to do instead of downloading. Raises UserError if a file
    cannot be obtained, its sha256 is not the stated or first one, or the folder cannot be written.
    """
    return {source.part: _fetch_one(source, folder, remedy, progress) for source in sources}


def _fetch_one(source: Source, folder: Path, remedy: str, progress: bool) -> Path:
    path = folder / source.file_name
    seen = folder / f"{source.file_name}.sha256"
    try:
        expected = source.sha256 or (seen.read_text(encoding="ascii").strip() if seen.exists() else None)
        if path.exists() and expected is None:
            # Without a hash beside it, the process that wrote the file may not have finished.
            path.unlink()
        # The progress bar is enough output.
        pooch.get_logger().setLevel("ERROR")
        pooch.retrieve(
            source.url,
            known_hash=f"sha256:{expected}" if expected else None,
            fname=source.file_name,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=progress, timeout=SECONDS_TO_ANSWER),
        )
        if expected is None:
            write_atomically(seen, pooch.file_hash(str(path)).encode())
    except (requests.RequestException, OSError, ValueError) as error:
        if isinstance(error, ValueError) and source.sha256 is None and seen.exists():
            remedy = f"delete {seen} to accept the present file, or {remedy}"
        raise UserError(f"cannot download {source.url} ({_cause(error)}): {remedy}") from error
    return path


def forget(paths: Iterable[Path]) -> None:
    """Delete the stored hashes of files with unexpected content, so that they are downloaded again. A sign-in
    page or a broken proxy may have sent something else once."""
    for path in paths:
        path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)


def _cause(error: BaseException) -> str:
    """Return the root of a chain of exceptions in a few words."""
    chain = [error]
    while link := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(link)
    for link in chain:
        if isinstance(link, ConnectionRefusedError):
            return "connection refused"
        if isinstance(link, socket.gaierror):
            return "the host cannot be found; check the network"
        if isinstance(link, requests.HTTPError) and link.response is not None:
            return f"the server answered {link.response.status_code} {link.response.reason}"
    if any(isinstance(link, requests.Timeout) for link in chain):
        return f"no answer within {SECONDS_TO_ANSWER} seconds"
    if isinstance(error, ValueError) and "hash" in str(error):
        return "its sha256 does not match: the file upstream changed, or the download was tampered with"
    if isinstance(error, requests.ConnectionError):
        return "the connection failed; check the network"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())
