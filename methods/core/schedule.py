"""Settings of training, averaging and selection for every method; defaults and limits are set only here.

Like `Architecture`, a `Schedule` checks itself when it is made and need not be checked again.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

from fedsub.datasets.errors import UserError, check_choice
from fedsub.datasets.limits import Count, Limit, NonNegative, PositiveShare, Share, check_limits, tunable

OPTIMISERS = ("adam", "sgd")
WEIGHTINGS = ("training-nodes", "uniform", "nodes")
MOMENTS = ("local", "received", "neighbour", "whole-graph")
LAST = "last"
"""The selection rule that needs no validation items."""
RULES = (
    "mean-validation",
    "per-client",
    "pooled-validation",
    "node-weighted-validation",
    "pooled-validation-loss",
    LAST,
)
SELECTED_BESIDES = ("mean-validation", "per-client", LAST)
"""The selection rules whose test scores a record holds besides the reported one."""
AVERAGINGS = ("client-mean", "pooled", "node-weighted")


@dataclass(frozen=True)
class Schedule:
    """Settings by which a protocol trains, evaluates and selects."""

    rounds: Count = 100
    """Rounds of local training and exchange."""
    local_epochs: Count = tunable(1, choices=(1, 3, 5))
    """Full-batch steps of a client in a round."""
    learning_rate: NonNegative = tunable(0.01, log=(1e-3, 0.1))
    """Step size of the clients' optimiser."""
    weight_decay: NonNegative = tunable(1e-6, log=(1e-6, 0.01))
    """Coefficient of the optimiser's L2 term, which is added to the gradient."""
    optimiser: str = "adam"
    """The clients' optimiser: `adam`, with state kept across rounds, or `sgd`, plain gradient descent."""
    weighting: str = "training-nodes"
    """Clients' weights in averages: `training-nodes` (McMahan), `uniform`, or `nodes`."""
    evaluate_every: Count = 1
    """Rounds between evaluations; the last round is always evaluated."""
    evaluate: str = "local"
    """When and how clients are evaluated. `local`: after local training; `received`: after the exchange, with
    the received parameters; `neighbour`: after local training, but with the model of the client to which most
    edges are missing (FED-PUB, Figure 9); `whole-graph`: after the exchange, each client's model on all nodes
    and edges of all clients (FederatedScope's `make_global_eval`)."""
    evaluate_dropout: bool = False
    """Whether dropout stays on in evaluation, as in public code that leaves its models in training mode
    (FedTAD's)."""
    selection: str = "mean-validation"
    """Rule for the reported round. `mean-validation`: highest unweighted mean over clients; `per-client`:
    each client's own best; `pooled-validation`: highest score of all validation items together;
    `node-weighted-validation`: highest mean weighted by all nodes of a client (OpenFGL);
    `pooled-validation-loss`: lowest mean loss; `last`: the last round. The first of equal rounds wins."""
    selection_metric: str = ""
    """Metric that selects the round and is recorded in the curve; empty: the task's first metric."""
    averaging: str = field(default="client-mean", metadata={"stored_as": "accuracy"})
    """How the clients' scores are averaged. `client-mean`: unweighted mean over clients; `pooled`: over all
    test items; `node-weighted`: mean weighted by all nodes of a client (OpenFGL)."""
    participation: PositiveShare = 1.0
    """Share of the clients drawn anew for every round, at least one client (FED-PUB's `--frac`)."""
    stragglers: Share = 0.0
    """Share of a round's clients that do fewer local epochs, drawn uniformly from 1 to `local_epochs` − 1."""
    leavers: str = ""
    """Clients that leave for good, each with the first round that it misses: `3@50+0@1` is client 3 from
    round 50 on, and client 0 from the start."""
    privacy_noise: NonNegative = 0.0
    """σ of the Gaussian mechanism (`methods.core.uplink`), in units of the clipping norm; 0: no noise."""
    privacy_clip: NonNegative = 0.0
    """L2 norm to which a client's whole update is clipped; 0: no clipping."""
    privacy_delta: Annotated[float, Limit("be in (0, 1)", lambda value: 0 < value < 1)] = 1e-5
    """δ for which ε is reported, in (0, 1)."""
    quantise: Annotated[int, Limit("be 2 to 16 bits, or 0", lambda value: value in (0, *range(2, 17)))] = 0
    """Bits of each value that a client sends (`methods.core.uplink`), 2 to 16; 0: no quantisation."""
    top_k: PositiveShare = 1.0
    """Share of its update's values that a client sends, the largest in absolute value."""
    error_feedback: bool = False
    """Whether the part of an update that compression left out is added to the client's next update."""

    def __post_init__(self) -> None:
        """Raise UserError for unknown choices, numbers out of range, and settings that do not go together."""
        check_limits("", self)
        check_choice("optimiser", self.optimiser, OPTIMISERS)
        check_choice("weighting", self.weighting, WEIGHTINGS)
        check_choice("evaluation moment", self.evaluate, MOMENTS)
        check_choice("selection rule", self.selection, RULES)
        check_choice("averaging", self.averaging, AVERAGINGS)
        _ = self.departures
        if self.stragglers and self.local_epochs == 1:
            raise UserError("stragglers do fewer local epochs than others: set local_epochs to 2 or more")
        if self.privacy_noise and not self.privacy_clip:
            raise UserError("privacy_noise is measured in clipping norms: set privacy_clip as well")
        if self.error_feedback and not self.compresses:
            raise UserError("error_feedback does nothing without compression: set top_k or quantise")

    @property
    def departures(self) -> dict[int, int]:
        """Client → first round that it misses. Raises UserError if `leavers` cannot be read."""
        found: dict[int, int] = {}
        for part in self.leavers.split("+") if self.leavers else ():
            client, _, number = part.partition("@")
            if not (client.isdecimal() and number.isdecimal() and int(number) > 0) or int(client) in found:
                raise UserError(
                    f"cannot read leavers={self.leavers}: write each client once with the first round that "
                    "it misses, joined by +, such as 3@50+0@1"
                )
            found[int(client)] = int(number)
        return found

    def check_clients(self, clients: int) -> None:
        """Raise UserError if `leavers` names a client that is not among `clients` clients."""
        for client in self.departures:
            if client >= clients:
                raise UserError(
                    f"leavers names client {client}: clients are numbered from 0 to {clients - 1}"
                )

    @property
    def partial(self) -> bool:
        """Whether some client may be absent or do fewer local epochs in some round."""
        return self.participation < 1 or self.stragglers > 0 or bool(self.leavers)

    def attended_by_all(self) -> "Schedule":
        """The same schedule, but every client does every epoch of every round."""
        return replace(self, participation=1.0, stragglers=0.0, leavers="")

    def evaluates(self, number: int) -> bool:
        """Whether round `number` (from 1) is evaluated."""
        return number % self.evaluate_every == 0 or number == self.rounds

    @property
    def compresses(self) -> bool:
        """Whether updates are compressed."""
        return self.quantise > 0 or self.top_k < 1
