"""Macro-F1: the mean over classes of 2 TP / (2 TP + FP + FN), at each client.

Opitz & Burst, Macro F1 and Macro F1, 2019: the mean of the classes' F1. As in scikit-learn, the classes
are those that occur among a client's labels or predictions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods.core.metrics.base import Items, Score, metric


@metric()
def macro_f1(output: Tensor, items: Items) -> Score:
    """Pooled, clients weigh by their nodes: classes are averaged inside clients first."""
    classes = output.shape[1]
    predicted = output[items.rows].argmax(dim=1)
    pair = (items.client * classes + items.labels) * classes + predicted
    counts = torch.bincount(pair, minlength=items.clients * classes**2).view(-1, classes, classes)
    right = counts.diagonal(dim1=1, dim2=2)
    # 2 TP + FP + FN: how often a class is true plus how often it is predicted.
    either = counts.sum(dim=2) + counts.sum(dim=1)
    f1 = 2 * right.double() / either.clamp(min=1)
    total, present = f1.sum(dim=1), (either > 0).sum(dim=1)
    return Score((total / present).cpu(), items.count)
