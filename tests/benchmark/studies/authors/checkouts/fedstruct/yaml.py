"""Plays PyYAML; the configuration here is JSON, which is YAML too."""

from json import dumps as safe_dump  # noqa: F401
from json import loads as safe_load  # noqa: F401
