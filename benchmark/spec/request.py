"""The class `Request`, made by the command line and by `fedsub.run`."""

import os
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.paths import PLUGIN

ENGINES = ("process", "ray", "slurm", "in-process", "flower")
KINDS = ("predictions", "model", "embeddings")
"""Kinds of files that a cell can save."""
MOST_SEEDS, LARGEST_SEED = 10_000, 999_999_999
"""Maximum number of seeds, and largest seed; more seeds are a mistake and would take minutes to plan."""
SEARCH_SEEDS = (1000, 1001)
"""Seeds of the data for searches only; the first rung uses the first. Their records keep few fields, so no
other table shows them."""


@dataclass(frozen=True)
class Request:
    """Which cells to run and how; an empty tuple filters nothing."""

    table: tuple[str, ...] = ()
    """Names of protocols, or paths of .toml files."""
    dataset: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    backbone: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    """Settings that replace the table's, each `name=value`."""
    all: bool = False
    """Whether to run every table on all available data."""
    shard: tuple[int, int] | None = None
    """Shard of the plan to run, counted from 1, and number of shards."""
    results: Path = Path("results")
    """The folder that keeps the records."""
    engine: str = "process"
    workers: int = 1
    threads: int = 1
    """Threads per worker."""
    slurm_config: Path | None = None
    rerun: bool = False
    """Whether finished cells run again."""
    timeout: float | None = None
    """Seconds after which a cell is stopped."""
    checkpoint: float = 600.0
    """Seconds between two checkpoints of a cell; 0 for none."""
    save: tuple[str, ...] = ()
    """Files to save for each cell (`benchmark.execution.artifacts`)."""
    pdb: bool = False
    """Whether the debugger opens when a cell raises."""
    trials: int = 20
    """Number of trials of a search, the defaults included."""
    cap: float = 30.0
    """Core-seconds of a method's search on a block, in units of a FedAvg run with its defaults there; 0: no
    cap. With 30 the whole arena takes some 60 core-hours. FedAvg's own search on Chameleon-filtered takes 23
    in the first rung and about 50 in the second: its trials are deeper and have more epochs."""

    def __post_init__(self) -> None:
        """Raises UserError for impossible values and contradicting fields."""
        counts = [("workers", self.workers), ("threads", self.threads), ("trials", self.trials)]
        for name, count in (*counts, *(("clients", each) for each in self.clients)):
            if not isinstance(count, Integral) or count < 1:
                raise UserError(f"{name} must be a whole number of at least 1, not {count!r}")
        if len(self.seeds) > MOST_SEEDS or not all(0 <= seed <= LARGEST_SEED for seed in self.seeds):
            raise UserError(f"seeds must be at most {MOST_SEEDS} numbers from 0 to {LARGEST_SEED}")
        if not isinstance(self.checkpoint, Real) or not self.checkpoint >= 0:
            raise UserError(f"checkpoint must be seconds, or 0 for no checkpoint, not {self.checkpoint!r}")
        if not isinstance(self.cap, Real) or not self.cap >= 0:
            raise UserError(f"cap must be a number of FedAvg's default runs, or 0, not {self.cap!r}")
        check_choice("engine", self.engine, ENGINES)
        for kind in self.save:
            check_choice("thing to save", kind, KINDS)
        if self.all and self.table:
            raise UserError("--all already runs every table: leave out --all or --table")
        if self.timeout is not None and self.engine in ("in-process", "flower"):
            raise UserError(
                f"the {self.engine} engine cannot stop a cell: use --timeout with another --engine"
            )
        if self.save and self.engine == "flower":
            raise UserError("the server of --engine flower has no client's model: leave out --save")
        if self.slurm_config is not None and self.engine != "slurm":
            raise UserError("--slurm-config needs --engine slurm")

    @property
    def is_elsewhere(self) -> bool:
        """Whether other machines run the cells: this one need not have their device."""
        return self.engine == "slurm" or (self.engine == "ray" and "RAY_ADDRESS" in os.environ)

    @property
    def files(self) -> list[str]:
        """The .py files that the request itself names, without those that its tables name."""
        texts = [*self.dataset, *self.method, *self.partition, *self.backbone]
        texts += [text.partition("=")[2] for text in self.settings]
        return [path for path in (text.partition("[")[0] for text in texts) if path.endswith(PLUGIN)]
