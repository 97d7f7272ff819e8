# mypy: ignore-errors
"""Plays torch_geometric."""
