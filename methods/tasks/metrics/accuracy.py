"""Accuracy: the share of a client's nodes whose highest output is at their class."""

from torch import Tensor

from fedsub.methods.tasks.metrics import Items, Score, metric


@metric()
def accuracy(output: Tensor, items: Items) -> Score:
    """Share of correctly predicted nodes; if pooled, over all clients' nodes."""
    return Score(items.right(output) / items.count, items.count)
