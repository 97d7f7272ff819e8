"""Methods that correct their clients' drift."""

from typing import Any

import pytest
import torch

from fedsub.methods.core.base import Schedule
from fedsub.methods.core.training import end_round, start_round
from tests.methods.loops import Clients


@pytest.mark.parametrize(
    ("name", "options"), [("feddc", {"alpha": 0.1}), ("feddyn", {"alpha": 0.1}), ("scaffold", {})]
)
def test_many_local_steps_end_at_the_global_optimum(name: str, options: dict[str, float]) -> None:
    """Strongly convex: the weighted gradient of the regularised losses vanishes only at the optimum."""
    schedule = Schedule(
        rounds=16,
        local_epochs=8,
        learning_rate=0.5,
        weight_decay=0.02,
        optimiser="sgd",
        evaluate="received",
        evaluate_every=16,
    )
    clients = Clients(schedule, "sgc")
    corrected, plain = clients.run(name, **options)[0], clients.run("fedavg")[0]
    assert clients.slope(corrected) < 0.2 * clients.slope(plain)


def test_feddyns_client_remembers_what_it_trained_and_not_what_it_sent() -> None:
    method: Any = Clients(Schedule(rounds=2, top_k=0.05)).create("feddyn", {"alpha": 0.1})
    method.build()
    start_round(method, 1)
    drift = {name: (value - method.received[name]).detach() for name, value in method.parameters.items()}
    end_round(method)
    for name, value in drift.items():
        torch.testing.assert_close(method.rule.gradient[name], -0.1 * value)
    sent = torch.cat([value.flatten() for value in method.rule.correction.values()])
    assert 0 < sent.count_nonzero() <= 3 * 0.05 * len(sent) + 3
