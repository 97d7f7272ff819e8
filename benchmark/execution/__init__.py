"""Running cells: engines, queue, scheduler, checkpoints, logs and saved files."""
