"""FedAvg: the server averages the clients' models.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS
2017, algorithm 1: w ← Σ_k p_k w_k, p_k client k's share of the training nodes (the schedule's
`weighting` can make the shares equal, as FED-PUB's public code does).
"""

from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, register


@register("fedavg", title="FedAvg", paper="McMahan et al. 2017", tasks=BOTH_TASKS)
class FedAvg(FederatedMethod):
    """Every hook keeps its default. Means weigh the clients present in a round by their p_k, scaled to sum 1.
    A client that comes back starts from the newest mean."""

    labelled_outputs_only = True
