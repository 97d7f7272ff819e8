"""The round loop: local epochs, evaluation, messages; then the protocol's selection rule."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsub.datasets.errors import UserError
from fedsub.datasets.graph import Dataset
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.channel import Message
from fedsub.methods.core.draws import GlobalDraws, seed_draws
from fedsub.methods.core.evaluation import scoring_of
from fedsub.methods.core.rounds import RoundDone
from fedsub.methods.core.schedule import LAST, SELECTED_BESIDES, Schedule
from fedsub.methods.core.selection import Curve, median, select
from fedsub.methods.core.state import Checkpoint
from fedsub.methods.core.steps import begin_round
from fedsub.methods.core.uplink import epsilon
from fedsub.methods.stacked.parameters import check_answer
from fedsub.methods.tasks import Evaluation, Task


class DivergedError(UserError):
    """Raised if a loss is not finite or an output is NaN."""


class CheckpointError(UserError):
    """Raised for a checkpoint from which a method cannot resume."""


@dataclass(frozen=True)
class Outcome:
    """Results of one run."""

    metrics: dict[str, float]
    """Scores in [0, 1]: the protocol's own first, then those of other metrics and rules for the same run."""
    curve: dict[str, list[float]]
    """`round`, `validation`, `test`, `loss`: one entry per evaluation."""
    selected_round: int
    """The reported round; for `per-client` selection the median over clients with a validation score."""
    seconds: dict[str, float]
    """Seconds of `setup` (the method's build), `train` (local epochs and exchanges) and `evaluate`."""
    processor_seconds: float
    """Processor time of this process in these phases, in seconds."""
    bytes: dict[str, float]
    """Bytes summed over clients: `up` and `down` as mean per round, `once` in total."""
    extras: dict[str, Any]
    """The method's own figures; those of `by_round` for the selected round, and in full under `by_round`."""
    test_by_client: list[float]
    """Each client's test score in [0, 1] at its reported round."""
    spent: dict[str, list[float]]
    """Totals up to each evaluation: `bytes`, both ways and one-off, and `seconds`, including set-up."""


@dataclass
class Progress:
    """Progress of a run, which its checkpoints hold."""

    state: ClassVar = ("method", "draws", "done", "processor_seconds", "evaluations", "losses", "spent")
    method: FederatedMethod
    draws: GlobalDraws = field(default_factory=GlobalDraws)
    done: int = 0
    """Number of finished rounds."""
    processor_seconds: float = 0.0
    """Processor time of all phases of `FederatedMethod.seconds`."""
    evaluations: list[Evaluation] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """(R,) mean over clients of the local loss in the round's last epoch."""
    spent: dict[str, list[float]] = field(default_factory=lambda: {"bytes": [], "seconds": []})


@contextmanager
def _watch(phase: str, progress: Progress) -> Iterator[None]:
    """Add the block's wall-clock time to its phase, and its processor time to the total."""
    method, start, worked = progress.method, time.perf_counter(), time.process_time()
    yield
    if method.device.type == "cuda":
        # CUDA runs asynchronously: work that a phase started belongs to that phase.
        torch.cuda.synchronize(method.device)
    method.seconds[phase] += time.perf_counter() - start
    progress.processor_seconds += time.process_time() - worked


def train(
    method: FederatedMethod,
    on_round: Callable[[RoundDone], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Build the method and run its schedule. `on_round` is called after every round; its time is not counted.

    A run with a saved `checkpoint` resumes after the saved round. Its seconds cover all rounds, and the first
    set-up only.

    Raises DivergedError, naming the round, when the loss is not finite or an output is NaN, and
    CheckpointError for a checkpoint from which this method cannot resume; the method is then unusable.
    """
    schedule = method.schedule
    progress = Progress(method)
    watch = partial(_watch, progress=progress)
    seed_draws(method.setting.seed)
    # An earlier run of this method must not count.
    method.seconds = dict.fromkeys(method.seconds, 0.0)
    with watch("setup"):
        method.build()
    task, predicted = scoring_of(method)
    exchanged = schedule.evaluate in ("received", "whole-graph")
    if checkpoint is not None:
        if why := checkpoint.restore(progress):
            raise CheckpointError(why)
        progress.evaluations = [Evaluation.of(each) for each in progress.evaluations]
    for number in range(progress.done + 1, schedule.rounds + 1):
        with watch("train"):
            loss = start_round(method, number)
            if exchanged:
                end_round(method)
        if evaluated := schedule.evaluates(number):
            value = float(loss) / method.federation.clients
            check_finite(method, number, value)
            progress.losses.append(value)
            with watch("evaluate"):
                output = predicted()
                check_finite(method, number, is_nan=bool(output.isnan().any()))
                progress.evaluations.append(task.evaluate(output))
            now = progress.evaluations[-1]
            if not now.validation.weight.any():
                items, tested = len(task.validation.labels), bool(now.test[task.metrics[0].name].weight.any())
                check_selects(schedule, method.federation.source, items, tested)
            progress.spent["bytes"].append(method.channel.total)
            progress.spent["seconds"].append(sum(method.seconds.values()))
        if not exchanged:
            with watch("train"):
                end_round(method)
        if on_round is not None:
            last = progress.evaluations[-1] if evaluated else None
            on_round(_round(method, task, number, loss, last))
        progress.done = number
        if checkpoint is not None and number < schedule.rounds:
            checkpoint.after_round(progress)
    method.finish()
    return outcome_of(task, progress, task.federation.sizes.numpy())


def start_round(method: FederatedMethod, number: int) -> Tensor:
    """Begin a round (from 1) and train locally; return the last epoch's loss, ()."""
    begin_round(method, number)
    return method.train_round()


def end_round(method: FederatedMethod) -> None:
    """Exchange messages, unless this was done in every epoch. Raises what `communicate` raises, and UserError
    if there is an uplink and no message held models for it."""
    if not method.every_epoch:
        communicate(method)
    method.channel.refuse(not method.channel.encoded.any())


def communicate(method: FederatedMethod, who: Tensor | None = None) -> None:
    """Clients send, the server answers, clients receive; all through the channel.

    `who`, (K,) bool, are the clients that send and receive (None: those of this round's end); a method that
    passes it also reads `working` in its `aggregate` and `receive`. Raises UserError for a message that the
    channel refuses, and for an answer that does not fit.
    """
    with torch.no_grad():
        answer = serve(method, method.channel.up(method.send(), method.received, who))
        method.receive(method.channel.down(answer, who))


def serve(method: FederatedMethod, sent: Message) -> Message:
    """Return the server's answer to the message `sent`; both sides remember the shared parameters in it. To
    be called without gradients. Raises UserError for an answer that does not fit."""
    answer = method.aggregate(sent)
    shared = {name: method.parameters[name] for name in method.received}
    check_answer(method.info.name, answer, sent, shared)
    remember(method, answer)
    return answer


def remember(method: FederatedMethod, answer: Message) -> None:
    """Store the shared parameters of an answer as the last received ones."""
    method.received = {name: answer.get(name, value) for name, value in method.received.items()}


def check_selects(schedule: Schedule, dataset: Dataset, items: int = 0, tested: bool = True) -> None:
    """Raise UserError if none of the `items` validation items can be scored, by which the schedule selects a
    round, or if the metric that it names scores no test item (`tested`)."""
    name, role = dataset.name, "test" if schedule.selection == LAST else "validation"
    if role == "test" and tested:
        return
    if schedule.selection_metric and (items or role == "test"):
        present = set(dataset.labels.tolist())
        empty = ", ".join(str(each) for each in range(dataset.classes) if each not in present)
        without = f" (class {empty} has no node: number labels from 0)" if empty else ""
        raise UserError(
            f"{schedule.selection_metric} scores no {role} item of {name}, which has {dataset.classes} "
            f"classes{without}; select by another metric"
        )
    if schedule.selection != LAST:
        raise UserError(
            f"{name} has no validation items, and {schedule.selection} selects a round by them: set "
            f"selection={LAST}, or a split (of links: link-prediction[validation=…]) with validation items"
        )


def _round(
    method: FederatedMethod, scoring: Task, number: int, loss: Tensor, last: Evaluation | None
) -> RoundDone:
    channel = method.channel
    main = scoring.metrics[0]
    kind = main.averaging or method.schedule.averaging
    sizes = scoring.federation.sizes.numpy()
    losses, scores = {"train": float(loss) / method.federation.clients}, {}
    if last is not None:
        losses["validation"] = last.validation_loss
        roles = {"validation": last.validation, "test": last.test[main.name]}
        scores = {
            role: 100 * float(Curve.of([score], sizes).averaged(kind)[0]) for role, score in roles.items()
        }
    return RoundDone(
        round=number,
        rounds=method.schedule.rounds,
        losses=losses,
        scores=scores,
        bytes={"up": channel.bytes_up, "down": channel.bytes_down, "once": channel.bytes_once},
        seconds=dict(method.seconds),
    )


def check_finite(method: FederatedMethod, number: int, loss: float = 0.0, is_nan: bool = False) -> None:
    """Raise DivergedError for a loss of round `number` that is not finite, and where an output is NaN."""
    if math.isfinite(loss) and not is_nan:
        return
    what = "its predictions contain NaN" if is_nan else f"its loss is {loss}"
    fix = f"lower the learning rate (now {method.schedule.learning_rate})"
    # A loss that multiplies outputs left out as NaN can be finite while its gradient is not.
    if number <= 2 and method.inputs.receptive_field is not None:
        fix += ", or set labelled_outputs_only to False if it trains on outputs of unlabelled nodes"
    raise DivergedError(f"{method.info.name} diverged: {what} in round {number}; {fix}")


def outcome_of(task: Task, progress: Progress, nodes: np.ndarray) -> Outcome:
    """The outcome of a finished run; `nodes`, (K,), counts each client's nodes. Raises UserError for
    figures in `by_round` that are not one a round."""
    method, schedule = progress.method, progress.method.schedule
    rounds = [number for number in range(1, schedule.rounds + 1) if schedule.evaluates(number)]
    validation = Curve.of((each.validation for each in progress.evaluations), nodes)
    losses = np.array([each.validation_loss for each in progress.evaluations])
    chosen = select(validation, losses, schedule.selection)
    metrics, tests = {}, {}
    for each in task.metrics:
        tests[each.name] = Curve.of((found.test[each.name] for found in progress.evaluations), nodes)
        metrics[each.name] = tests[each.name].score(chosen, each.averaging or schedule.averaging)
    main = task.metrics[0]
    kind, name, test = main.averaging or schedule.averaging, main.name, tests[main.name]
    for rule in SELECTED_BESIDES if validation.weight.any() else (LAST,):
        metrics[f"{name}_{rule.replace('-', '_')}"] = test.score(select(validation, losses, rule), kind)
    metrics[f"{name}_pooled"] = test.score(chosen, "pooled")
    metrics[f"{name}_client_mean"] = test.score(chosen, "client-mean")
    curve: dict[str, Any] = {
        "round": rounds,
        "validation": validation.averaged(kind).tolist(),
        "test": test.averaged(kind).tolist(),
        "loss": progress.losses,
    }
    channel = method.channel
    selected = rounds[median(validation, chosen)]
    extras = dict(method.extras)
    if schedule.privacy_noise:
        most = int(channel.encoded.max())
        extras["epsilon"] = epsilon(schedule.privacy_noise, most, schedule.privacy_delta)
    for name, values in method.by_round.items():
        if len(values) != schedule.rounds:
            raise UserError(
                f"{method.info.name}'s by_round[{name!r}] has {len(values)} entries after {schedule.rounds} "
                "rounds: append one number in every round"
            )
    if method.by_round:
        extras |= {name: float(values[selected - 1]) for name, values in method.by_round.items()}
        extras["by_round"] = {n: [round(float(value), 4) for value in v] for n, v in method.by_round.items()}
    return Outcome(
        metrics=metrics,
        curve=curve,
        selected_round=selected,
        seconds=method.seconds,
        processor_seconds=progress.processor_seconds,
        bytes={
            "up": channel.bytes_up / schedule.rounds,
            "down": channel.bytes_down / schedule.rounds,
            "once": float(channel.bytes_once),
        },
        extras=extras,
        test_by_client=test.at(chosen).value[0].tolist(),
        spent=progress.spent,
    )
