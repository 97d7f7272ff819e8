"""ROC-AUC: probability that a positive item of a client scores higher than a negative one.

Positive items are joined pairs or nodes of class 1. Platonov et al., A critical look at the evaluation of
GNNs under heterophily, ICLR 2023, use it for Minesweeper and Tolokers, whose larger class has four fifths of
the nodes.
"""

import torch
from scipy.stats import rankdata
from torch import Tensor

from fedsub.methods.tasks.metrics import Items, Score, metric


@metric(task=("node-classification", "link-prediction"))
def roc_auc(output: Tensor, items: Items) -> Score:
    """Area under the ROC curve; NaN for a client without both labels. Pooling weighs clients by items.

    A node's score is its logit of class 1 minus its logit of class 0, which ranks like the probability of
    class 1; a graph with another number of classes has nothing to score.
    The area is (R⁺ − P (P + 1)/2) / (P N) for P positives and N negatives. R⁺ is the sum of the positives'
    ranks within the client, where equal scores share their mean rank (Mann & Whitney 1947).
    """
    client, clients, every = items.client.cpu(), items.clients, items.count
    if output.dim() == 2:
        if output.shape[1] != 2:
            nothing = torch.full((clients,), torch.nan, dtype=torch.float64)
            return Score(nothing, torch.zeros(clients, dtype=torch.int64))
        output = (output[:, 1] - output[:, 0])[items.rows]
    # The offset puts each client's ranks behind those of the clients before, so that one call ranks all.
    among_all = rankdata(output.detach().cpu().numpy()) + 2 * len(output) * client.numpy()
    rank = torch.from_numpy(rankdata(among_all)) - (every.cumsum(0) - every)[client]
    hit = items.labels.cpu().double()
    positives = torch.bincount(client, weights=hit, minlength=clients)
    total = torch.bincount(client, weights=hit * rank, minlength=clients)
    negatives = every - positives
    area = (total - positives * (positives + 1) / 2) / (positives * negatives)
    scored = (positives > 0) & (negatives > 0)
    return Score(torch.where(scored, area, torch.nan), torch.where(scored, every, 0))
