"""Plays torch_geometric."""
