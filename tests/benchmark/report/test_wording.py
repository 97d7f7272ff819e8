"""What pages call things."""

from __future__ import annotations

import pytest

from fedsub.benchmark.report.wording import milliseconds, partition_title, sentence_list


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


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1.234, "1234"), (0.1, "100"), (0.0994, "99.4"), (0.01, "10.0"), (0.00994, "9.94"), (0.0, "0.00")],
)
def test_milliseconds_have_three_figures(seconds: float, said: str) -> None:
    assert milliseconds(seconds) == said


@pytest.mark.parametrize(
    ("items", "said"),
    [("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b, c and d")],
)
def test_a_list_reads_as_a_sentence_does(items: str, said: str) -> None:
    assert sentence_list([*items]) == said
