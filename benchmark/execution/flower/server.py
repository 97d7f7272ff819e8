"""The server's process, which knows the clients' sizes and messages and writes the outcome of the run."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedsub.benchmark.execution.flower.app import cell_of, scores_received
from fedsub.benchmark.execution.flower.wire import Masks, masks_of, pack, size_of, unpack
from fedsub.benchmark.execution.setting import setting_of
from fedsub.benchmark.spec.cell import Cell
from fedsub.datasets.errors import UserError
from fedsub.methods.core import registry
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.core.channel import KEPT
from fedsub.methods.core.channel import Message as Payload
from fedsub.methods.core.halves import ServerHalf, placeholders
from fedsub.methods.core.training import Progress, check_finite, outcome_of
from fedsub.methods.tasks import Evaluation, Task
from fedsub.methods.tasks.metrics import Score

Read = tuple[Payload, float, dict[str, Any]]
"""A client's message, loss and scores, which are empty if it was not scored."""
LOOK = 0.3
"""Seconds between two checks for clients that joined, or for messages."""


def server_app(folder: Path) -> ServerApp:
    """Make the app of the server; `folder` holds the app's files."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        target = Path(str(context.run_config["outcome"]))
        try:
            cell = cell_of(context.run_config, folder)
            found = _Run(grid, cell, float(context.run_config["patience"])).run()
        except UserError as error:
            found = {"error": str(error)}
        # A method's figures may be tensors or arrays.
        target.write_text(json.dumps(found, default=lambda value: value.tolist()), encoding="utf-8")

    return app


class _Run:
    """One run of a cell over Flower."""

    def __init__(self, grid: Grid, cell: Cell, patience: float) -> None:
        self.grid, self.cell, self.patience = grid, cell, patience
        self.node: dict[int, int] = {}
        """Client → its Flower node; a client that reconnects may be another node."""
        self.troubles: dict[int, str] = {}
        """Node → why it could not report its client."""
        self.trouble = ""
        """Why the last message was not answered."""
        self.heard: dict[int, tuple[int, Masks]] = {}
        """Client → the round of its last message, and its masks."""
        self.sizes: dict[int, Mapping[str, int]] = {}
        self.scores: dict[int, Mapping[str, Any]] = {}
        """Client → its last scores."""

    def run(self) -> dict[str, Any]:
        """Return the outcome, JSON-ready. Raises UserError if clients do not join or all of them fail."""
        started = time.perf_counter()
        cell, schedule = self.cell, self.cell.schedule
        sizes = self._wait()
        weights = torch.tensor([{**each, "uniform": 1}[schedule.weighting] for each in sizes]).float()
        held = placeholders(cell.clients, sizes[0]["width"], sizes[0]["classes"])
        method = registry.create(cell.method, dict(cell.options), setting_of(cell, held))
        server, progress = ServerHalf(method, weights / weights.sum()), Progress(method)
        method.seconds["setup"] = time.perf_counter() - started
        answers: dict[int, Payload] = {}
        received, task = scores_received(method), method.setting.scoring
        # Whether clients are asked for scores at once. Else these come with their messages: a round late if
        # they are of received models.
        asks, late = received and schedule.partial, int(received)
        for number in range(1, schedule.rounds + 1):
            begun, epochs = time.perf_counter(), server.begin(number).tolist()
            spent = method.channel.total
            if number == 1 and not received:
                # Evaluations also cover clients that have not trained yet.
                self._ask_scores(task, {client: None for client, count in enumerate(epochs) if not count})
            told = {k: {"round": number, "epochs": count} for k, count in enumerate(epochs) if count}
            used = self._take(number, method, self._send("train", told, answers))
            if not asks and number > late:
                self._evaluated(number - late, progress)
            messages = [used[k][0] if k in used else None for k in range(cell.clients)]
            answers = dict(enumerate(server.answer(number, messages)))
            last, evaluated = number == schedule.rounds, schedule.evaluates(number)
            if last or (asks and evaluated):
                receiving = method.receiving | method.every_epoch
                self._ask_scores(task, {k: answers[k] if receiving[k] else None for k in answers}, last)
                if received:
                    self._evaluated(number, progress)
            method.seconds["train"] += time.perf_counter() - begun
            if evaluated:
                # Σ p_k L_k if all clients share one model, else the clients' mean.
                shares = [float(method.shares[client]) if method.every_epoch else 1.0 for client in used]
                losses = [loss for _, loss, _ in used.values()]
                progress.losses.append(float(np.average(losses, weights=shares)))
                # Clients that are scored after local training have not sent its result yet.
                progress.spent["bytes"].append(method.channel.total if received else spent)
                progress.spent["seconds"].append(sum(method.seconds.values()))
            print(f"round {number} of {schedule.rounds}: {len(used)} of {cell.clients} clients", flush=True)
        nodes = np.array([each["nodes"] for each in sizes])
        return asdict(outcome_of(task, progress, nodes))

    def _wait(self) -> list[Mapping[str, int]]:
        """Wait until every client has joined; return the sizes that they report."""
        until = time.monotonic() + self.patience
        while missing := sorted(set(range(self.cell.clients)) - self.node.keys()):
            self._meet()
            if time.monotonic() > until:
                found = "".join(f"; a SuperNode reports {each}" for each in self.troubles.values())
                raise UserError(
                    f"clients {missing} did not join within {self.patience:g} s: start their SuperNodes, "
                    f"or raise patience{found}"
                )
            time.sleep(LOOK)
        sizes = [self.sizes[client] for client in range(self.cell.clients)]
        for what, named in (("width", "features"), ("classes", "classes")):
            if len({each[what] for each in sizes}) > 1:
                found = ", ".join(f"client {k}: {each[what]}" for k, each in enumerate(sizes))
                raise UserError(f"the clients' files differ in their number of {named} ({found})")
        return sizes

    def _meet(self) -> None:
        """Ask new nodes which client they are."""
        new = {*self.grid.get_node_ids()} - {*self.node.values()}
        asked = dict.fromkeys(new, RecordDict({"asked": ConfigRecord({})}))
        for node, reply in self._exchange("query", asked):
            known = dict(reply["known"])
            client = int(known["client"])
            if self.node.get(client) in self.grid.get_node_ids():
                # Asked again later: Flower notices only after a minute that the other is gone.
                print(f"client {client} is connected already", flush=True)
            else:
                self.node[client], self.sizes[client] = node, known
                if client not in range(self.cell.clients):
                    self.troubles[node] = f"its partition-id is {client}, of {self.cell.clients} from 0"

    def _exchange(self, kind: str, asked: Mapping[int, RecordDict]) -> Iterator[tuple[int, RecordDict]]:
        """Send to nodes; yield the nodes and replies that come in time. Flower's own loop looks every 3 s."""
        messages = [Message(each, dst_node_id=node, message_type=kind) for node, each in asked.items()]
        until, waiting = time.monotonic() + self.patience, {*self.grid.push_messages(messages)}
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                node = reply.metadata.src_node_id
                if reply.has_content():
                    yield node, reply.content
                elif kind != "query" or self.troubles.get(node) != reply.error.reason:
                    self.troubles[node] = self.trouble = reply.error.reason
                    print(f"no answer to {kind}: {reply.error.reason}", flush=True)
            time.sleep(LOOK if waiting else 0)

    def _send(
        self, kind: str, told: Mapping[int, Mapping[str, Any]], answers: Mapping[int, Payload | None]
    ) -> dict[int, RecordDict]:
        """Tell clients what to do, with the answers to their last messages, and wait; returns client → its
        reply, for those that replied. Raises UserError if none replied in training."""
        self._meet()
        connected, asked = self.grid.get_node_ids(), dict[int, RecordDict]()
        client = {self.node[k]: k for k in told if self.node[k] in connected}
        for node, k in client.items():
            heard, masks = self.heard.get(k, (0, None))
            asked[node] = RecordDict({"told": ConfigRecord({})})
            if (answer := answers.get(k)) is not None:
                asked[node] = pack(answer, answer, masks)
            asked[node]["told"].update(told[k], heard=heard)
        self.trouble = f"none within {self.patience:g} s" if asked else "none is connected"
        found = {client[node]: reply for node, reply in self._exchange(kind, asked)}
        if kind == "train" and not found:
            raise UserError(f"no client answered: {self.trouble}")
        return found

    def _take(self, number: int, method: FederatedMethod, replies: dict[int, RecordDict]) -> dict[int, Read]:
        """Take in the replies of a round; return what can be used. Raises UserError if nothing can."""
        read = defaultdict[Any, dict[int, Read]](dict)
        reasons = dict.fromkeys(replies, "most messages have other names, shapes or types")
        for client, content in replies.items():
            try:
                form, found = _read(content, method, number)
                read[form][client] = found
            except Exception as error:
                # Whatever is wrong with one client's message, it must not end the run of all.
                reasons[client] = str(error)
        used = max(read.values(), key=len, default={})
        for client in replies.keys() - used:
            print(f"client {client} counts as absent in round {number}: {reasons[client]}", flush=True)
        if not used:
            raise UserError(f"no message of round {number} could be used: {reasons[min(reasons)]}")
        self.scores |= {client: scores for client, (*_, scores) in used.items() if scores}
        for client, (message, *_) in used.items():
            self.heard[client] = number, masks_of(message)
            method.channel.bytes_up += size_of(replies[client])
        return used

    def _ask_scores(self, task: Task, answers: Mapping[int, Payload | None], last: bool = False) -> None:
        """Ask clients for their scores, with the answers that they receive before; `last`: for good."""
        told = {client: {"last": last} for client in answers}
        for client, content in self._send("evaluate", told, answers).items():
            try:
                self.scores[client] = _scores(content, task)
            except Exception as error:
                print(f"the scores of client {client} cannot be read: {error}", flush=True)

    def _evaluated(self, number: int, progress: Progress) -> None:
        """Store the clients' last scores as those of a round, if it is evaluated. Raises DivergedError."""
        if self.cell.schedule.evaluates(number):
            check_finite(progress.method, number, is_nan=any(each["is_nan"] for each in self.scores.values()))
            progress.evaluations.append(_evaluation([self.scores.get(k) for k in range(self.cell.clients)]))


def _read(content: RecordDict, method: FederatedMethod, number: int) -> tuple[frozenset[Any], Read]:
    """Return what a client sent, and the names, shapes and types in its message.

    Raises DivergedError for a client that diverged, and any exception for what makes no sense.
    """
    told, message, uplink = content["told"], unpack(content), method.channel.uplink
    loss, scores = float(told["loss"]), _scores(content, method.setting.scoring) if told["scores"] else {}
    # Clients that are scored after the server's answer report the round before.
    check_finite(method, number - scores_received(method), is_nan=bool(scores) and scores["is_nan"])
    check_finite(method, number, loss)
    known = {name: value[:1] for name, value in method.received.items()}
    for name, value in (uplink.read(message, known) if uplink else message).items():
        if value.is_floating_point() and not value.isfinite().all():
            raise ValueError(f"{name} is not finite")
        if name in known and value.shape != known[name].shape:
            raise ValueError(f"{name} has the shape {tuple(value.shape)}")
    # A client that sends every entry of a parameter may leave out its mask.
    masks = {KEPT + name for name in masks_of(message)}
    form = frozenset((name, each.shape, each.dtype) for name, each in message.items() if name not in masks)
    return form, (message, loss, scores)


def _scores(content: RecordDict, task: Task) -> dict[str, Any]:
    """Return a client's scores. Raises any exception for what makes no sense."""
    scores: dict[str, Any] = json.loads(str(content["told"]["scores"]))
    asked = {"", *(each.name for each in task.metrics)}
    if (found := {*scores["scores"]}) != asked:
        raise ValueError(f"it has the scores {sorted(found)}, and {sorted(asked)} are asked")
    _evaluation([scores])
    return {**scores, "is_nan": bool(scores["is_nan"])}


def _evaluation(scores: Sequence[Mapping[str, Any] | None]) -> Evaluation:
    """Return the scores of all clients as one evaluation; NaN for a client that has sent none."""
    first = next(each for each in scores if each is not None)["scores"]
    nothing: Mapping[str, Any] = {"scores": {k: [float("nan"), 0.0] for k in first}, "validation_loss": 0.0}
    known = [nothing if each is None else each for each in scores]
    joined = {k: Score(*torch.tensor([each["scores"][k] for each in known]).double().T) for k in first}
    validation = joined.pop("")
    losses, weight = torch.tensor([each["validation_loss"] for each in known]).double(), validation.weight
    loss = float((losses.nan_to_num() * weight).sum() / weight.sum()) if weight.any() else float("nan")
    return Evaluation(validation, joined, loss)
