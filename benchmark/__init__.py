"""Runs every method on every graph under one protocol, keeps the records and writes the leaderboards."""
