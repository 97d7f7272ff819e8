"""ROC-AUC: how likely a joined pair of a client scores higher than one that is not, or a node of class 1
than one of class 0.

Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023, score Minesweeper and
Tolokers by it: their larger class is four fifths of the nodes.
"""

from __future__ import annotations

import torch
from scipy.stats import rankdata
from torch import Tensor

from fedsub.methods.tasks.metrics import Items, Score, metric


@metric(task=("node-classification", "link-prediction"))
def roc_auc(output: Tensor, items: Items) -> Score:
    """Area under the ROC curve; NaN without both labels. Pooled, clients weigh by their items.

    A node's score is its logit of class 1 less that of class 0, which ranks as the probability of class 1
    does; a graph with another number of classes has nothing to score.
    By ranks inside the client, equal scores sharing their mean rank: (R⁺ − P (P + 1)/2) / (P N), R⁺
    the ranks' sum over the P positives of P + N pairs (Mann & Whitney 1947).
    """
    client, clients, every = items.client.cpu(), items.clients, items.count
    if output.dim() == 2:
        if output.shape[1] != 2:
            nothing = torch.full((clients,), torch.nan, dtype=torch.float64)
            return Score(nothing, torch.zeros(clients, dtype=torch.int64))
        output = (output[:, 1] - output[:, 0])[items.rows]
    # Ranks of ranks, of which one client's lie behind those of the clients before.
    among_all = rankdata(output.detach().cpu().numpy()) + 2 * len(output) * client.numpy()
    rank = torch.from_numpy(rankdata(among_all)) - (every.cumsum(0) - every)[client]
    hit = items.labels.cpu().double()
    positives = torch.bincount(client, weights=hit, minlength=clients)
    total = torch.bincount(client, weights=hit * rank, minlength=clients)
    negatives = every - positives
    area = (total - positives * (positives + 1) / 2) / (positives * negatives)
    scored = (positives > 0) & (negatives > 0)
    return Score(torch.where(scored, area, torch.nan), torch.where(scored, every, 0))
