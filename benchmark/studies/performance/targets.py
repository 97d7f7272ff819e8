"""What is aimed at beside the peers and the machine's limit."""

from __future__ import annotations

from collections.abc import Sequence

from fedsub.benchmark.studies.peers.grid import FEDGB, OPENFGL, Peer, plan

ROUND = "round"
"""The phase of a comparison that most have alone."""
EVERY = "every shared method, graph and number of clients: ≥ 3× openfgl-lib"
CHEAP = ("scaffold", "moon", "feddc", "fedproto", "fedgta")
"""Methods that train as FedAvg does and whose server does little."""


def _keys(
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    clients: Sequence[int] = (),
    peer: Peer = OPENFGL,
) -> frozenset[str]:
    return frozenset(cell.key for cell in plan(datasets, methods, clients, [peer]))


TARGETS: tuple[tuple[str, str, frozenset[str], float], ...] = (
    ("FedAvg, Cora, 10 clients: ≥ 4× openfgl-lib", ROUND, _keys(["cora"], ["fedavg"], [10]), 4.0),
    ("FedAvg, Cora, 100 clients: ≥ 6× openfgl-lib", ROUND, _keys(["cora"], ["fedavg"], [100]), 6.0),
    ("FED-PUB, Cora, 10 clients: ≥ 3.5× openfgl-lib", ROUND, _keys(["cora"], ["fedpub"], [10]), 3.5),
    (
        "FedSage+, Cora, 10 clients, a generator round: ≥ 15× openfgl-lib",
        "generator",
        _keys(["cora"], ["fedsage+"], [10]),
        15.0,
    ),
    (
        "FedSage+, Cora, 10 clients, a round after: ≥ 3× openfgl-lib",
        ROUND,
        _keys(["cora"], ["fedsage+"], [10]),
        3.0,
    ),
    (
        "SCAFFOLD, MOON, FedDC, FedProto, FedGTA, Cora, 5 and 10 clients: ≥ 8× openfgl-lib",
        ROUND,
        _keys(["cora"], CHEAP, [5, 10]),
        8.0,
    ),
    (
        "the same and FedAvg, FedProx and FedALA, Cora, 5 and 10 clients: ≥ 8× FedGB",
        ROUND,
        _keys(["cora"], ("fedavg", "fedprox", *CHEAP, "fedala"), [5, 10], FEDGB),
        8.0,
    ),
    (
        "FedTAD, Cora, 5 and 10 clients: ≥ 4× openfgl-lib",
        ROUND,
        _keys(["cora"], ["fedtad"], [5, 10]),
        4.0,
    ),
    (
        "AdaFGL, Cora, 5 and 10 clients, its second step: ≥ 4× openfgl-lib",
        "personal",
        _keys(["cora"], ["adafgl"], [5, 10]),
        4.0,
    ),
    (EVERY, ROUND, _keys(), 3.0),
    (
        "every method shared with FedGB, Cora, 5 and 10 clients: ≥ 4× FedGB",
        ROUND,
        _keys(["cora"], clients=[5, 10], peer=FEDGB),
        4.0,
    ),
    (
        "a round of FedAvg, every graph and number of clients: ≥ 0.5× the speed of its limit",
        "limit",
        frozenset(),
        0.5,
    ),
)
"""What is aimed at; phase or `limit`; the keys of the records that tell of it; times as fast."""
