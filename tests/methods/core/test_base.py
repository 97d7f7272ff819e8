"""Behaviour that all methods inherit from `FederatedMethod`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.methods.core.base import Architecture, FederatedMethod, Schedule
from fedsub.methods.core.channel import Message
from fedsub.methods.core.training import DivergedError, end_round, train
from fedsub.methods.fedavg import FedAvg
from fedsub.methods.fedsgd import FedSGD
from tests.methods.federations import make_method, small_federation

FEDERATION = small_federation(clients=4, nodes=80, scheme="louvain")
NETWORK = Architecture(hidden=(4,))


def built(seed: int = 0) -> FederatedMethod:
    method: FederatedMethod = make_method("fedavg", {}, FEDERATION, NETWORK, seed=seed)
    method.build()
    return method


def test_ten_seeds_make_ten_starts_and_ten_dropouts() -> None:
    methods = [built(seed) for seed in range(10)]
    assert len({method.parameters["layers.0.weight"][0].sum().item() for method in methods}) == 10
    assert len({method.dropout.mask((8, 8)).numpy().tobytes() for method in methods}) == 10


def test_figures_of_a_round_may_be_tensors_and_are_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the selected round's figure would be another round's."""
    objective = FedAvg.objective

    def noted(self: FederatedMethod, logits: Tensor) -> Tensor:
        loss = objective(self, logits)
        self.by_round.setdefault("seen", []).append(loss.detach())  # type: ignore[arg-type]
        return loss

    monkeypatch.setattr(FedAvg, "objective", noted)
    one, two = (Schedule(rounds=2, local_epochs=epochs) for epochs in (1, 2))
    outcome = train(make_method("fedavg", {}, FEDERATION, NETWORK, one))
    seen = [loss / FEDERATION.clients for loss in outcome.extras["by_round"]["seen"]]
    assert seen == pytest.approx(outcome.curve["loss"], abs=1e-4)
    with pytest.raises(UserError, match=r"by_round\['seen'\] has 4 entries after 2 rounds"):
        train(make_method("fedavg", {}, FEDERATION, NETWORK, two))


def test_an_average_without_a_shared_parameter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameter would be counted as sent but never averaged."""

    def shortened(self: FederatedMethod, sent: Message) -> Message:
        return dict([*FederatedMethod.aggregate(self, sent).items()][1:])

    method = built()
    monkeypatch.setattr(FedAvg, "aggregate", shortened)
    with pytest.raises(UserError, match=r"fedavg's aggregate\(\) leaves out layers\.0\.weight"):
        end_round(method)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda server: {n: v[0] for n, v in server.items()},
            r"aggregate\(\) returns layers\.0\.weight with shape",
        ),
        (lambda server: {n: torch.cat([v, v]) for n, v in server.items()}, "one slice for all clients, or"),
        (lambda server: {n: v.detach().numpy() for n, v in server.items()}, "as ndarray, not a tensor"),
    ],
)
def test_an_average_of_another_shape_or_of_nothing_is_refused(
    change: Callable[[Message], Message], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be broadcast to another shape, or fail with an error of torch."""
    method = built()
    aggregate = FederatedMethod.aggregate
    monkeypatch.setattr(FedAvg, "aggregate", lambda self, sent: change(aggregate(self, sent)))
    with pytest.raises(UserError, match=words):
        end_round(method)


def test_one_parameter_set_with_inputs_for_each_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled passes would read beyond it."""
    monkeypatch.setattr(FedAvg, "initial_parameters", FedSGD.initial_parameters)
    monkeypatch.setattr(FedAvg, "one_model", True, raising=False)
    with pytest.raises(UserError, match="a parameter for 1 clients, and inputs for 4"):
        built().predict()


def test_unshared_takes_whole_parts_of_names_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAvg, "unshared", ("layers.0", "head.bias"))
    assert {*built().shared()} & {"layers.0.weight", "layers.0.bias", "head.bias"} == set()
    assert "head.weight" in built().shared()
    monkeypatch.setattr(FedAvg, "unshared", ("lay",))
    with pytest.raises(UserError, match="unknown parameter 'lay' in unshared of fedavg"):
        built()
    monkeypatch.setattr(FedAvg, "unshared", "head")
    with pytest.raises(UserError, match=r"unshared must be a tuple of names: write \('head',\)"):
        built()


def test_predictions_that_are_no_numbers_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the round may be finite although the last average is not."""
    honest = FedAvg.predict

    def broken(self: FedAvg) -> Tensor:
        return honest(self) * torch.nan

    monkeypatch.setattr(FedAvg, "predict", broken)
    with pytest.raises(DivergedError, match="predictions contain NaN in round 1"):
        train(make_method("fedavg", {}, FEDERATION, NETWORK, Schedule(rounds=1)))
