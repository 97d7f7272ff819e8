import pytest

from fedsub.benchmark.analysis.metrics import more_is_better, unit_of
from fedsub.benchmark.report.wording import heading_of


@pytest.mark.parametrize(
    ("metric", "unit", "heading", "contested"),
    [
        ("accuracy", "%", "accuracy %", True),
        ("accuracy@round20", "%", "accuracy % in round 20", True),
        ("gain_over_fedavg", "%", "gain over FedAvg", True),
        ("communication_pct_of_fedavg", "%", "communication in % of FedAvg", False),
        ("propagation_mb_nonzero", "MB", "propagation nonzero MB", False),
        ("similarity_label_correlation@round5", "", "similarity label correlation in round 5", False),
        ("accuracy@clients0-4", "%", "accuracy % of clients 0-4", True),
    ],
)
def test_a_score_is_known_by_its_name(metric: str, unit: str, heading: str, contested: bool) -> None:
    assert (unit_of(metric), heading_of(metric), more_is_better(metric)) == (unit, heading, contested)
