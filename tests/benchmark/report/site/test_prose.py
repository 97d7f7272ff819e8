"""Markdown as HTML inside the page."""

from __future__ import annotations

import pytest

from fedsub.benchmark.report.site.prose import render


@pytest.mark.parametrize(
    ("link", "seen"),
    [
        ("../authors.md", "authors.md"),
        ("fedpub-1.md", "leaderboards/fedpub-1.md"),
        ("#seeds", "#seeds"),
        ("https://example.org/a/../b", "https://example.org/a/../b"),
    ],
)
def test_links_of_a_text_from_another_folder_lead_where_they_led(link: str, seen: str) -> None:
    assert f'href="{seen}"' in render(f"[there]({link})", folder="leaderboards")
    assert f'href="{link}"' in render(f"[there]({link})")
