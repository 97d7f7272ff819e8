"""What is asked for: which cells are run, and how. The command line and `fedsub.run` both make one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """Which cells are run, and how; an empty tuple is a filter left out."""

    table: tuple[str, ...] = ()
    """Names of protocols, or paths of .toml files."""
    dataset: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    backbone: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    """Settings replaced, each `name=value`."""
    all: bool = False
    """Every table on all data at hand."""
    shard: tuple[int, int] | None = None
    """Which of how many parts of the plan to run, counted from 1."""
    results: Path = Path("results")
    """The folder that keeps the records."""
    engine: str = "process"
    workers: int = 1
    threads: int = 1
    """Per worker."""
    slurm_config: Path | None = None
    rerun: bool = False
    """Whether finished cells run again."""
    timeout: float | None = None
    """Seconds after which a cell is stopped."""
    checkpoint: float = 600.0
    """Seconds of a cell between two checkpoints; 0 for none."""
    save: tuple[str, ...] = ()
    """What a cell leaves beside its record (`benchmark.execution.artifacts`)."""
    pdb: bool = False
    """Whether the debugger opens where a cell raises."""
