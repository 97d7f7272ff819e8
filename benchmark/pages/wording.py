"""Figures and lists in words."""

from __future__ import annotations

from collections.abc import Sequence


def milliseconds(seconds: float) -> str:
    """Three significant figures, at least."""
    value = 1000 * seconds
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def sentence_list(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))
