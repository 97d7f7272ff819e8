"""Reads the configuration on import, as the real one does."""

import os
from pathlib import Path

import yaml

config = yaml.safe_load(Path(os.environ["CONFIGPATH"]).read_text())
assert config["model"]["kept"] == 7
seed = int(os.environ["seed"])  # noqa: SIM112
