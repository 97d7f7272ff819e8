"""A client's process, which reads only its own data and the server's messages.

Flower starts a process for each message. Between messages a client keeps two states in a file beside its
data: the one after its last message that the server received, and the one after its last message. A client
that was killed continues from the former, as if it had been absent.
"""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedsub.benchmark.execution.flower.app import cell_of, scores_received
from fedsub.benchmark.execution.flower.wire import Masks, masks_of, pack, unpack
from fedsub.benchmark.execution.setting import setting_of
from fedsub.datasets.archive import as_dataset, read_archive
from fedsub.datasets.federation import Federation, alone
from fedsub.datasets.files import written_atomically
from fedsub.methods.core import registry
from fedsub.methods.core.halves import ClientHalf, of_client
from fedsub.methods.core.state import restored, saved
from fedsub.methods.core.uplink import Draws


def client_app(folder: Path) -> ClientApp:
    """Make the app of every client; `folder` holds the app's files."""
    app = ClientApp()
    app.query()(_sizes)
    app.train()(lambda message, context: _Turn(folder, message, context).train())
    app.evaluate()(lambda message, context: _Turn(folder, message, context).evaluate())
    return app


def _sizes(message: Message, context: Context) -> Message:
    """Reply with the client's number and sizes, which the server needs."""
    held = _held(context)
    known = {
        "client": int(context.node_config["partition-id"]),
        "nodes": held.nodes,
        "training-nodes": int(held.train.sum()),
        "width": held.width,
        "classes": held.classes,
    }
    return Message(RecordDict({"known": ConfigRecord(known)}), reply_to=message)


class _Turn:
    """A client's processing of one message."""

    def __init__(self, folder: Path, message: Message, context: Context) -> None:
        self.message, self.asked = message, message.content["told"]
        cell = cell_of(context.run_config, folder)
        setting = of_client(setting_of(cell, held := _held(context)), held)
        # The noise of real clients must be secret, so it is not drawn from a known seed.
        known = bool(context.node_config.get("repeatable"))
        draws = Draws(cell.seed, int(context.node_config["partition-id"])) if known else None
        self.client = ClientHalf(registry.create(cell.method, dict(cell.options), setting), draws)
        self.file = Path(str(context.node_config["data"])).with_suffix(f".{context.run_id}.state")
        masks: Masks | None = None
        self.kept: dict[int, dict[str, Any]] = {}
        """Last round whose message the server received → the state after it."""
        if heard := int(self.asked["heard"]):
            self.kept = {heard: torch.load(self.file, weights_only=True)[heard]}
            restored(self.client, deepcopy(self.kept[heard]["state"]))
            masks = self.kept[heard]["masks"] or None
        if "form" in self.asked:
            self.client.receive(unpack(message.content, masks))

    def train(self) -> Message:
        """Train one round and return the client's message."""
        method, number = self.client.method, int(self.asked["round"])
        received = scores_received(method)
        scores = self._scores() if received and "form" in self.asked else ""
        loss = self.client.train(number, int(self.asked["epochs"]))
        if not received:
            scores = self._scores()
        message = self.client.send()
        with written_atomically(self.file) as stream:
            now = {"state": saved(self.client), "masks": masks_of(message)}
            torch.save({**self.kept, number: now}, stream)
        content = pack(message, method.received, bits=method.schedule.quantise)
        content["told"].update(loss=float(loss), scores=scores)
        return Message(content, reply_to=self.message)

    def evaluate(self) -> Message:
        """Return the scores of the client's model; after the last round, remove its state file."""
        if self.asked["last"]:
            self.file.unlink(missing_ok=True)
        told = ConfigRecord({"scores": self._scores()})
        return Message(RecordDict({"told": told}), reply_to=self.message)

    def _scores(self) -> str:
        method = self.client.method
        output = method.predict()
        found = method.setting.scoring.evaluate(output)
        values = {name: [*map(float, each)] for name, each in {"": found.validation, **found.test}.items()}
        is_nan = bool(output.isnan().any())
        return json.dumps({"scores": values, "validation_loss": found.validation_loss, "is_nan": is_nan})


def _held(context: Context) -> Federation:
    """Return the client's data. Raises UserError for a file that is no archive with one split."""
    path = Path(str(context.node_config["data"]))
    raw, meta = read_archive(path)
    return alone(as_dataset(path.stem, raw, meta.get("classes")))
