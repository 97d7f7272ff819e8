"""Options of MOON that cannot act."""

from __future__ import annotations

import pytest

from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture
from fedsub.methods.core.setting import make_setting
from tests.methods.federations import small_federation


def test_options_that_cannot_act():
    assert set(registry.make_options("moon", {"mu": 0.0}).unused("gcn")) == {"temperature", "nodes"}
    assert set(registry.make_options("moon", {}).unused("sgc")) == {"projection"}
    setting = make_setting(small_federation(), Architecture(hidden=(8, 8)), task="link-prediction")
    with pytest.raises(UserError, match=r"moon\[nodes=training\] needs nodes to train on"):
        registry.create("moon", {"nodes": "training"}, setting).build()
