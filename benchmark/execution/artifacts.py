"""Optional files of a cell after its last round: predictions, model, embeddings."""

import io
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsub.benchmark.execution.checkpoints import forget as forget_checkpoint
from fedsub.benchmark.execution.logs import log_path
from fedsub.benchmark.records.record import Record
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained, write_atomically
from fedsub.methods.core.base import FederatedMethod
from fedsub.methods.stacked.inputs import Inputs
from fedsub.methods.stacked.parameters import Weights


def folder_of(results: str | Path, key: str) -> Path:
    """Folder of a cell's saved files in the results folder."""
    return Path(results) / "saved" / key


def remove(results: Path, key: str) -> None:
    """Remove a cell's saved files, log and checkpoint."""
    forget_checkpoint(results, key)
    saved = folder_of(results, key)
    with explained("remove", saved):
        if saved.exists():
            shutil.rmtree(saved)
        log_path(results, key).unlink(missing_ok=True)


@dataclass(frozen=True)
class Saving:
    """Kinds of files to save in the folder `saved/KEY` of the results folder.

    `predictions.npz`: `output` (n, C) of all clients' nodes, with their `label`, `client`, `origin` (the
    id in the graph as loaded, even if only its largest component is used) and `role` (0 train, 1
    validation, 2 test, 3 none). `embeddings.npz`: `embedding` (n, h), the input of the predicting model's
    last linear layer, with `client` and `origin`. `model.pt`: name → (K, …), one slice per client, read by
    `torch.load(path, weights_only=True)`.
    """

    results: Path
    """The results folder; absolute, since a worker may start elsewhere."""
    kinds: tuple[str, ...]

    def __call__(self, key: str, method: FederatedMethod) -> dict[str, str]:
        """Write the files of a trained method; returns kind → reason for those that the method lacks.

        A file that cannot be written is only a warning: the run's figures do not depend on it, and a later
        run with `rerun` writes it.
        """
        missing = {}
        for kind in self.kinds:
            content = io.BytesIO()
            if kind == "model":
                state = {name: value.detach().cpu() for name, value in method.parameters.items()}
                torch.save(state, content)
            elif kind == "predictions":
                _write(content, method, output=method.predict(), label=True)
            else:
                try:
                    embedding = _embedding(method)
                except Exception as error:
                    # A plug-in's method may fail in any way; its record must not be lost.
                    missing[kind] = f"{method.info.name} has no {kind} ({error})"
                    continue
                _write(content, method, embedding=embedding)
            path = self._path(key, kind)
            try:
                with explained("write", path):
                    write_atomically(path, content.getbuffer())
            except UserError as error:
                warnings.warn(f"{error}; the record is kept without its {kind}", stacklevel=2)
        return missing

    def lacks(self, record: Record) -> bool:
        """Whether a requested file is missing that the record's method can provide."""
        impossible = record.extras.get("not_saved", {})
        return any(
            kind not in impossible and not self._path(record.key, kind).is_file() for kind in self.kinds
        )

    def _path(self, key: str, kind: str) -> Path:
        return folder_of(self.results, key) / f"{kind}{'.pt' if kind == 'model' else '.npz'}"


def _embedding(method: FederatedMethod) -> Tensor:
    """Return the classifier's input when the method predicts, (n, h) of all clients' nodes.

    Raises UserError if the method's outputs are not those of one call of its backbone's classifier.
    """
    backbone, read = method.backbone, []

    def classify(inputs: Inputs, embedding: Tensor, parameters: Weights) -> Tensor:
        logits = type(backbone).classify(backbone, inputs, embedding, parameters)
        read.append((inputs, embedding, parameters, logits))
        return logits

    # Hook the last linear layer during one prediction.
    vars(backbone)["classify"] = classify
    try:
        output = method.predict()
    finally:
        del vars(backbone)["classify"]
    outputs = "its outputs do not come from one call of its network's classifier"
    if len(read) != 1:
        raise UserError(outputs)
    inputs, embedding, parameters, logits = read[0]
    with torch.no_grad():
        if inputs.levels:
            embedding = backbone.embed(method.inputs, parameters, None)
            inputs, logits = method.inputs, backbone.classify(method.inputs, embedding, parameters)
        for rows in (inputs.position, method.setting.rows):
            if rows is not None:
                embedding, logits = embedding[rows], logits[rows]
        if not torch.allclose(method.setting.architecture.outputs_of(logits), output, atol=1e-5):
            raise UserError(outputs)
    return embedding


def _write(content: io.BytesIO, method: FederatedMethod, label: bool = False, **arrays: Tensor) -> None:
    """Write arrays of the clients' nodes, with each node's client and origin."""
    clients = method.setting.scoring.federation
    origin, component = clients.origin, clients.source.component
    if component is not None:
        origin = torch.from_numpy(np.flatnonzero(component))[origin]
    arrays |= {"client": clients.client, "origin": origin}
    if label:
        role = torch.full((clients.nodes,), 3)
        for number, mask in enumerate((clients.train, clients.validation, clients.test)):
            role[mask] = number
        arrays |= {"label": clients.labels, "role": role}
    plain = {name: value.detach().cpu().numpy() for name, value in arrays.items()}
    np.savez_compressed(content, **plain)  # type: ignore[arg-type]
