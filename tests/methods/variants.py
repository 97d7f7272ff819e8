"""Methods with the options to test: every branch that keeps state or exchanges something."""

import typing
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from fedsub.methods.core import registry

SMALL_STRUCTURE = {"structure_width": 8, "structure_hidden": "16", "feature_hidden": "8"}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adafgl": [{"width": 8, "epochs": 2}, {"width": 8, "epochs": 2, "federated": 0.4}],
    "fedaux": [{}, {"masks": False}],
    "fedcog": [
        {},
        {"convolution": "sgc", "server": "feddyn"},
        {"convolution": "gcn", "server": "feddyn"},
        {"convolution": "gprgnn", "server": "fedadam"},
    ],
    "feddc": [{}, {"variant": "openfgl"}],
    "fediih": [{}, {"variational": 1.0}],
    "fedlap": [SMALL_STRUCTURE],
    "fedproto": [{}, {"distance": "nodes"}],
    "fedpub": [{}, {"lambda1": 0.97}, {"similarity": "gradient", "keep_similarity": "2+4"}],
    "fedsage+": [{"wide": 16, "narrow": 8, "latent": 8, "generator_epochs": 2}],
    "fedsage-true": [{}, {"average": "gradients"}],
    "fedspray": [{}, {"targets": "aligned", "projector": "classifier"}],
    "fedstruct": [SMALL_STRUCTURE, SMALL_STRUCTURE | {"version": "b", "transform": "none"}],
    "fedtad": [{"server_rounds": 1, "nodes": 20}],
    "gcfl": [{}, {"first_round": 1, "epsilon1": 1e6, "epsilon2": 0.0}],
    "gcfl+": [{}, {"first_round": 0, "epsilon1": 1e6, "epsilon2": 0.0, "sequence": 2}],
    "moon": [{}, {"projection": True}],
    "scaffold": [{}, {"control": "gradient"}],
}
CASES = [(name, options) for name in registry.names() for options in VARIANTS.get(name, [{}])]
SHORT = {name: VARIANTS[name][0] for name in ("adafgl", "fedsage+", "fedtad")}
"""Options that make a run short."""
APART = [name for name in registry.names() if not registry.describe(name).simulation_only]
"""Methods whose clients can run apart."""
APART_OPTIONS: dict[str, dict[str, float]] = {"fedala": {"share": 1.0}}
"""A client draws the nodes of FedALA's W itself; with all of them nothing is drawn."""


def choices(name: str) -> Iterator[tuple[str, Any]]:
    """A method's options that list their values, with each value except the default."""
    kind: Any = registry.describe(name).options
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        for value in (True, False) if hint is bool else typing.get_args(hint):
            if value != field.default:
                yield field.name, value
