"""A cell as a federation: each client a Flower SuperNode with its own data alone, the server a SuperLink."""

OWN, OWN_PARTS = "own", ("method", "backbone")
"""Folder of the app, and parts of the cell whose files lie there where they are a user's own."""
