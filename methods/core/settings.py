"""How every method is trained, averaged and selected: the one place of these settings' defaults and limits.

Like `Architecture`, a `Schedule` checks itself when it is made, so whoever holds one need not check it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets.errors import check_choice
from datasets.limits import Count, NonNegative, check_limits

OPTIMISERS = ("adam", "sgd")
WEIGHTINGS = ("training-nodes", "uniform", "nodes")
MOMENTS = ("local", "received", "neighbour")
RULES = (
    "mean-validation",
    "per-client",
    "pooled-validation",
    "node-weighted-validation",
    "pooled-validation-loss",
    "last",
)
AVERAGINGS = ("client-mean", "pooled", "node-weighted")


@dataclass(frozen=True)
class Schedule:
    """How long, how fast and by which rule a protocol trains and selects."""

    rounds: Count = 100
    local_epochs: Count = 1
    learning_rate: NonNegative = 0.01
    weight_decay: NonNegative = 1e-6
    """The optimiser's L2 term, added to the gradient."""
    optimiser: str = field(default="adam", metadata={"omit_default": True})
    """The clients' steps: `adam`, its state kept across rounds, or `sgd`, plain gradient steps."""
    weighting: str = "training-nodes"
    """Clients' weights in averages: `training-nodes` (McMahan), `uniform`, or `nodes`."""
    evaluate_every: Count = 1
    """Rounds between evaluations; the last round is always evaluated."""
    evaluate: str = "local"
    """When clients are evaluated. `local`: after local training; `received`: after the exchange, on what
    they received; `neighbour`: after local training, but by the model of the client to which most edges are
    missing (FED-PUB, Figure 9)."""
    selection: str = "mean-validation"
    """The round reported. `mean-validation`: that of the highest unweighted mean over clients;
    `per-client`: each client its own best; `pooled-validation`: all validation items together;
    `node-weighted-validation`: clients weigh by all their nodes (OpenFGL); `pooled-validation-loss`: their
    lowest mean loss; `last`: no selection. The first of equals wins."""
    selection_metric: str = field(default="", metadata={"omit_default": True})
    """The metric that selects the round and has the curve; empty for the task's first."""
    averaging: str = field(default="client-mean", metadata={"stored_as": "accuracy"})
    """How the clients' scores become one. `client-mean`: unweighted mean over clients; `pooled`: over all
    test items; `node-weighted`: mean weighted by all nodes of a client (OpenFGL)."""

    def __post_init__(self) -> None:
        """Raises UserError for a choice that does not exist and for a number that cannot be."""
        check_limits("", self)
        check_choice("optimiser", self.optimiser, OPTIMISERS)
        check_choice("weighting", self.weighting, WEIGHTINGS)
        check_choice("evaluation moment", self.evaluate, MOMENTS)
        check_choice("selection rule", self.selection, RULES)
        check_choice("averaging", self.averaging, AVERAGINGS)
