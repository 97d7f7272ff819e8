"""A cell as a federation: clients are Flower SuperNodes with only their own data, the server a SuperLink."""

OWN, OWN_PARTS = "own", {"method", "backbone"}
"""Folder in the app for user-supplied parts, and the parts of a cell whose files are copied there."""
