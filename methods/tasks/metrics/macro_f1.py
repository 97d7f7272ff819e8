"""Macro-F1: the mean over classes of 2 TP / (2 TP + FP + FN), at each client.

Opitz & Burst, Macro F1 and Macro F1, 2019: the mean of the classes' F1. As in scikit-learn, the classes
are those that occur among a client's labels or predictions.
"""

from torch import Tensor

from fedsub.methods.tasks.metrics import Items, Score, metric


@metric()
def macro_f1(output: Tensor, items: Items) -> Score:
    """Mean F1 over classes; pooling weighs clients by nodes, as classes are averaged within clients first."""
    right, either = items.counts(output)
    # 2 TP + FP + FN is how often a class is true plus how often it is predicted.
    f1 = 2 * right.double() / either.clamp(min=1)
    return Score(f1.sum(dim=1) / (either > 0).sum(dim=1), items.count)
