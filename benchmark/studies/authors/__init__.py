"""Runs of the authors' code on the clients of our cells (`docs/authors.md`)."""
