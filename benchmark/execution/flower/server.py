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
        """`patience`: seconds that the server waits for clients to join, and for the messages of a round."""
        self.grid, self.cell, self.patience = grid, cell, patience
        self.node: dict[int, int] = {}
        """Client → its Flower node."""
        self.troubles: dict[int, str] = {}
        """Node → why it could not report its client."""
        self.met: set[int] = set()
        """Every node that reported its client; a client that reconnects may be another node."""
        self.heard: dict[int, tuple[int, Masks]] = {}
        """Client → the round of its last message, and its masks."""
        self.sizes: dict[int, Mapping[str, int]] = {}
        self.scores: dict[int, Mapping[str, Any]] = {}
        """Client → its last scores."""

    def run(self) -> dict[str, Any]:
        """Return the outcome, JSON-ready. Raises UserError if clients do not join or all of them fail."""
        started, progress = time.perf_counter(), Progress()
        cell, schedule = self.cell, self.cell.schedule
        self._wait()
        sizes = [self.sizes[client] for client in range(cell.clients)]
        weights = torch.tensor([{**each, "uniform": 1}[schedule.weighting] for each in sizes]).float()
        held = placeholders(cell.clients, sizes[0]["width"], sizes[0]["classes"])
        method = registry.create(cell.method, dict(cell.options), setting_of(cell, held))
        server = ServerHalf(method, weights / weights.sum())
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
            asked = {k: self._asked(each, answers.get(k), k) for k, each in told.items()}
            used = self._take(number, method, self._send("train", asked))
            if not asks and number > late:
                self._evaluated(number - late, method, progress)
            messages = [used[k][0] if k in used else None for k in range(cell.clients)]
            answers = dict(enumerate(server.answer(number, messages)))
            last, evaluated = number == schedule.rounds, schedule.evaluates(number)
            if last or (asks and evaluated):
                receiving = method.receiving | method.every_epoch
                self._ask_scores(task, {k: answers[k] if receiving[k] else None for k in answers}, last)
                if received:
                    self._evaluated(number, method, progress)
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
        return asdict(outcome_of(method, task, progress, nodes))

    def _wait(self) -> None:
        """Wait until every client has joined and reported its sizes."""
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
        for what, named in (("width", "features"), ("classes", "classes")):
            if len({each[what] for each in self.sizes.values()}) > 1:
                found = ", ".join(f"client {k}: {each[what]}" for k, each in sorted(self.sizes.items()))
                raise UserError(f"the clients' files differ in their number of {named} ({found})")

    def _meet(self) -> None:
        """Ask new nodes which client they are."""
        new, content = set(self.grid.get_node_ids()) - self.met, RecordDict({"asked": ConfigRecord({})})
        asked = [Message(content, dst_node_id=node, message_type="query") for node in new]
        for reply in self._exchange(asked):
            if reply.has_content():
                known, node = dict(reply.content["known"]), reply.metadata.src_node_id
                client = int(known["client"])
                if client not in range(self.cell.clients):
                    self.troubles[node] = f"its partition-id is {client}, of {self.cell.clients} from 0"
                elif self.node.get(client) in self.grid.get_node_ids():
                    # Asked again later: Flower notices only after a minute that the other is gone.
                    print(f"client {client} is connected already", flush=True)
                    continue
                else:
                    self.node[client], self.sizes[client] = node, known
                self.met.add(node)
            elif self.troubles.get(node := reply.metadata.src_node_id) != reply.error.reason:
                self.troubles[node] = reply.error.reason
                print(f"no answer to query: {reply.error.reason}", flush=True)

    def _exchange(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Send messages and yield the replies that come in time. Flower's own loop looks every 3 s."""
        until, waiting = time.monotonic() + self.patience, {*self.grid.push_messages(messages)}
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                yield reply
            time.sleep(LOOK if waiting else 0)

    def _asked(self, what: dict[str, Any], answer: Payload | None, client: int) -> RecordDict:
        """Return a message to a client: what to do, and the answer to its last message."""
        content = RecordDict({"told": ConfigRecord({})})
        heard, masks = self.heard.get(client, (0, None))
        if answer is not None:
            content = pack(answer, answer, masks)
        content["told"].update(what, heard=heard)
        return content

    def _send(self, kind: str, asked: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
        """Send to clients and wait; returns client → its reply, for those that replied."""
        self._meet()
        connected = self.grid.get_node_ids()
        client = {self.node[k]: k for k in asked if self.node[k] in connected}
        messages = [Message(asked[k], dst_node_id=node, message_type=kind) for node, k in client.items()]
        found: dict[int, RecordDict] = {}
        trouble = f"none within {self.patience:g} s" if messages else "none is connected"
        for reply in self._exchange(messages):
            if reply.has_content():
                found[client[reply.metadata.src_node_id]] = reply.content
            else:
                trouble = reply.error.reason
                print(f"no answer to {kind}: {trouble}", flush=True)
        if kind == "train" and not found:
            raise UserError(f"no client answered: {trouble}")
        return found

    def _take(self, number: int, method: FederatedMethod, replies: dict[int, RecordDict]) -> dict[int, Read]:
        """Take in the replies of a round; return what can be used. Raises UserError if nothing can."""
        read, refused = defaultdict[Any, dict[int, Read]](dict), dict[int, object]()
        for client, content in replies.items():
            try:
                form, found = _read(content, method, number)
                read[form][client] = found
            except Exception as error:
                # Whatever is wrong with one client's message, it must not end the run of all.
                refused[client] = error
        used = max(read.values(), key=len, default={})
        for client in replies.keys() - used:
            refused.setdefault(client, "most messages have other names, shapes or types")
            print(f"client {client} counts as absent in round {number}: {refused[client]}", flush=True)
        if not used:
            raise UserError(f"no message of round {number} could be used: {min(refused.items())[1]}")
        self.scores |= {client: scores for client, (*_, scores) in used.items() if scores}
        for client, (message, *_) in used.items():
            self.heard[client] = number, masks_of(message)
            method.channel.bytes_up += size_of(replies[client])
        return used

    def _ask_scores(self, task: Task, answers: Mapping[int, Payload | None], last: bool = False) -> None:
        """Ask clients for their scores, with the answers that they receive before; `last`: for good."""
        asked = {k: self._asked({"last": last}, each, k) for k, each in answers.items()}
        for client, content in self._send("evaluate", asked).items():
            try:
                self.scores[client] = _scores(content, task)
            except Exception as error:
                print(f"the scores of client {client} cannot be read: {error}", flush=True)

    def _evaluated(self, number: int, method: FederatedMethod, progress: Progress) -> None:
        """Store the clients' last scores as those of a round, if it is evaluated. Raises DivergedError."""
        if not self.cell.schedule.evaluates(number):
            return
        check_finite(method, number, is_nan=any(each["is_nan"] for each in self.scores.values()))
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
