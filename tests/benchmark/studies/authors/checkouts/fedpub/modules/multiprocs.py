# mypy: ignore-errors
"""The real one starts processes, which the worker does not."""
