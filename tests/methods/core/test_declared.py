"""A reader finds a method's whole state in its class."""

from __future__ import annotations

from typing import Any

import pytest

from fedsub.methods.core import registry
from fedsub.methods.core.base import Architecture, Schedule
from fedsub.methods.core.setting import make_setting
from fedsub.methods.core.training import train
from tests.methods.federations import small_federation

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "fedcog": [{}, {"convolution": "gcn"}, {"convolution": "gprgnn"}],
    "fedsage+": [{"wide": 16, "narrow": 8, "latent": 8, "generator_epochs": 2}],
    "fedstruct": [{}, {"version": "b"}, {"version": "b", "features": "deg", "private": True}],
}


@pytest.mark.parametrize("name", registry.names())
def test_a_method_sets_no_attribute_that_its_class_does_not_declare(name: str) -> None:
    info = registry.describe(name)
    architecture = Architecture(backbone=info.backbones[0], hidden=(8, 8))
    for options in OPTIONS.get(name, [{}]):
        setting = make_setting(small_federation(), architecture, Schedule(rounds=2), merged=info.merged)
        method = registry.create(name, options, setting)
        train(method)
        declared = {key for kind in type(method).__mro__ for key in getattr(kind, "__annotations__", {})}
        assert set(vars(method)) <= declared
