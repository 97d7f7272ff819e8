"""Downloads, against a server on this machine: kept, verified, and one sentence when they fail."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedsub.datasets import registry
from fedsub.datasets.errors import UserError
from fedsub.datasets.fetch import Source, fetch
from fedsub.datasets.files import user_cache
from fedsub.datasets.lock import locked
from tests.datasets import formats
from tests.datasets.test_registry import tiny_info


class Server:
    """Serves a folder and remembers what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, name: str, content: bytes) -> str:
        (self.folder / name).write_bytes(content)
        return f"{self.url}/{name}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("FEDSUB_DATA", raising=False)
    (tmp_path / "upstream").mkdir()
    server = Server(tmp_path / "upstream")
    yield server
    server.stop()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def get(source: Source, folder: Path) -> Path:
    return fetch([source], folder, "do something else", progress=False)[""]


def test_downloads_once(server: Server, tmp_path: Path):
    source = Source(server.put("file.bin", b"content"), sha256(b"content"))
    assert get(source, tmp_path / "raw").read_bytes() == b"content"
    assert get(source, tmp_path / "raw").read_bytes() == b"content"
    assert len(server.asked) == 1
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["file.bin"]


def test_wrong_hash_leaves_no_file(server: Server, tmp_path: Path):
    source = Source(server.put("file.bin", b"tampered"), sha256(b"content"))
    with pytest.raises(UserError, match=r"sha256 does not match.*: do something else"):
        get(source, tmp_path / "raw")
    assert list((tmp_path / "raw").iterdir()) == []


def test_first_hash_seen_holds_from_then_on(server: Server, tmp_path: Path):
    source = Source(server.put("file.bin", b"content"))
    path = get(source, tmp_path / "raw")
    assert path.with_name("file.bin.sha256").read_text() == sha256(b"content")
    assert get(source, tmp_path / "raw") == path
    assert len(server.asked) == 1
    # damaged here: fetched again
    path.write_bytes(b"damaged")
    assert get(source, tmp_path / "raw").read_bytes() == b"content"
    # changed upstream and lost here: refused
    path.unlink()
    server.put("file.bin", b"tampered")
    with pytest.raises(UserError, match=r"sha256 does not match.*: delete .*file\.bin\.sha256 to accept"):
        get(source, tmp_path / "raw")
    assert not path.exists()


def test_missing_upstream(server: Server, tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot download http://.*/gone\.bin \(the server answered 404"):
        get(Source(f"{server.url}/gone.bin"), tmp_path / "raw")


def register(server: Server, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    formats.write_heterophilous(server.folder / "tiny_upstream.npz")
    info = tiny_info(loader="heterophilous", sources=(Source(f"{server.url}/tiny_upstream.npz"),), **changes)
    monkeypatch.setitem(registry.REGISTRY, "tiny", info)


def test_from_upstream_to_dataset_and_then_from_the_cache(server: Server, monkeypatch: pytest.MonkeyPatch):
    register(server, monkeypatch)
    first = registry.load("tiny")
    archive = user_cache() / "tiny.npz"
    assert registry.locate("tiny") == archive
    server.stop()
    second = registry.load("tiny")
    assert (first.nodes, first.undirected_edges) == (second.nodes, second.undirected_edges) == (12, 12)
    assert len(server.asked) == 1


def test_several_parts_are_fetched_each(server: Server, monkeypatch: pytest.MonkeyPatch):
    files = formats.write_planetoid(server.folder, test=[10, 8, 11, 9], start=8)
    sources = tuple(Source(f"{server.url}/{path.name}", part=part) for part, path in files.items())
    monkeypatch.setitem(registry.REGISTRY, "tiny", tiny_info(sources=sources))
    assert registry.load("tiny").undirected_edges == formats.UNDIRECTED_EDGES
    assert len(server.asked) == len(files)


def test_wrong_counts_upstream_leave_no_archive(server: Server, monkeypatch: pytest.MonkeyPatch):
    register(server, monkeypatch, nodes=13)
    with pytest.raises(UserError, match="has 12 nodes, but tiny has 13"):
        registry.load("tiny")
    assert registry.locate("tiny") is None


def test_what_a_sign_in_page_sent_is_not_what_upstream_is_held_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    register(server, monkeypatch)
    good = (server.folder / "tiny_upstream.npz").read_bytes()
    server.put("tiny_upstream.npz", b"<html>Welcome to the hotel</html>")
    with pytest.raises(UserError, match="not an npz file"):
        registry.load("tiny")
    server.put("tiny_upstream.npz", good)
    assert registry.load("tiny").nodes == 12


def test_processes_that_load_at_once_download_once(server: Server, monkeypatch: pytest.MonkeyPatch):
    register(server, monkeypatch)
    loaded = []
    threads = [threading.Thread(target=lambda: loaded.append(registry.load("tiny"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [dataset.nodes for dataset in loaded] == [12, 12, 12]
    assert len(server.asked) == 1


def test_waiting_for_another_download_ends_in_a_sentence(server: Server, monkeypatch: pytest.MonkeyPatch):
    register(server, monkeypatch)
    monkeypatch.setattr(registry, "DOWNLOAD", 0.1)
    with (
        locked(user_cache() / "tiny.lock"),
        pytest.raises(UserError, match=r"another process has locked .*tiny\.lock for 0\.1 s"),
    ):
        registry.load("tiny")
    assert server.asked == []
