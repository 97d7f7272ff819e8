"""Minority accuracy: accuracy on the nodes outside the commonest class of their client's training nodes.

Fu et al., Federated Graph Learning with Structure Proxy Alignment, KDD 2024, Table 3.
"""

from dataclasses import replace

from torch import Tensor

from fedsub.methods.tasks.metrics import Items, Score, metric


@metric(averaging="pooled")
def minority_accuracy(output: Tensor, items: Items) -> Score:
    """Share of correctly predicted nodes among those outside the client's majority class."""
    assert items.majority is not None
    kept = items.labels != items.majority[items.client]
    few = replace(items, labels=items.labels[kept], client=items.client[kept], rows=items.rows[kept])
    return Score(few.right(output) / few.count, few.count)
