"""Specification of runs: cells, protocols, plans, and users' own parts."""
