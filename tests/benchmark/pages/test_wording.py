"""What pages call things."""

from __future__ import annotations

import pytest

from benchmark.pages.wording import partition_title


@pytest.mark.parametrize(
    ("scheme", "title"),
    [
        ("metis[recursive=true]", "metis[recursive=true]"),
        ("file[path=partitions/fedspray.npz,key=PubMed]", "fedspray's clients (PubMed)"),
        ("file[path=/home/me/clients.npy]", "clients.npy"),
        ("file[path=mine.npz,key=a]", "mine.npz (a)"),
        ("file", "file"),
    ],
)
def test_clients_read_from_a_file_are_called_by_the_file(scheme: str, title: str) -> None:
    assert partition_title(scheme) == title
