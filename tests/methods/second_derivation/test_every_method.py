"""No method without a second derivation."""

from __future__ import annotations

from pathlib import Path

from fedsub.methods.core import registry

ELSEWHERE = {"central", "local"}
"""No server, no round: `tests/methods/core/test_oracle.py` trains these."""


def test_every_method_is_derived_a_second_time() -> None:
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    text = "".join(path.read_text() for path in files)
    assert {name for name in registry.names() if f'"{name}"' not in text} <= ELSEWHERE
