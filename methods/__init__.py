"""Methods of subgraph federated learning, a file or a folder each, and what they share."""

SHARED = ("checks", "compiled", "core", "stacked", "structure", "tasks")
"""The packages here that hold no method."""
