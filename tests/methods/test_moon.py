"""Options of MOON that cannot act."""

from __future__ import annotations

from fedsub.methods.core import registry


def test_options_that_cannot_act():
    assert set(registry.make_options("moon", {"mu": 0.0}).unused("gcn")) == {"temperature"}
