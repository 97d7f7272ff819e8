"""Minority accuracy: accuracy on the nodes outside the commonest class of their client's training nodes.

Fu et al., Federated Graph Learning with Structure Proxy Alignment, KDD 2024, Table 3.
"""

from __future__ import annotations

from torch import Tensor

from fedsub.methods.core.metrics.base import Items, Score, metric


@metric(averaging="pooled")
def minority_accuracy(output: Tensor, items: Items) -> Score:
    """Right nodes over nodes, of those nodes alone."""
    few = items.minority
    return Score(few.right(output) / few.count, few.count)
