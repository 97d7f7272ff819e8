"""MUSAE's Twitch graphs: users of seven language communities, in three files each.

Rozemberczki, Allen and Sarkar, Multi-scale Attributed Node Embedding, Journal of Complex Networks 2021.
`edges.csv` (`from,to`), `features.json` (node → list of features), `target.csv` (`mature`, `new_id`, …). The
label is mature content. A node that is twice in `target.csv` counts once. No edge joins two languages.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedsub.datasets.graph import ones_at
from fedsub.datasets.loaders.raw import DAMAGE, RawGraph, checked, malformed

WIDTH = 3170
"""Number of features, which all languages number alike; the highest is 3,169."""


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read `LANGUAGE/…_edges.csv`, `…_features.json` and `…_target.csv` of every language, in their order.

    Raises MalformedFileError if a file is damaged or the files do not fit together."""
    languages = sorted({part.partition("/")[0] for part in files})
    graphs = [_language(language, files) for language in languages]
    sizes = [len(labels) for *_, labels in graphs]
    starts = np.cumsum([0, *sizes[:-1]])
    ends = np.concatenate([pairs + start for (pairs, *_), start in zip(graphs, starts, strict=True)])
    features = sp.vstack([each[1] for each in graphs], format="csr")
    labels = np.concatenate([each[2] for each in graphs])
    owner = np.repeat(np.array(languages), sizes)
    raw = RawGraph(ends[:, 0], ends[:, 1], features, labels, attributes={"language": owner})
    return checked(raw, next(iter(files.values())))


def _language(language: str, files: Mapping[str, Path]) -> tuple[np.ndarray, sp.csr_matrix, np.ndarray]:
    """Read edges (m, 2), features (n, WIDTH) and labels (n,) of one language."""
    target, edges, words = (
        files[f"{language}/musae_{language}_{ending}"]
        for ending in ("target.csv", "edges.csv", "features.json")
    )
    with _reading(target):
        names, *people = (line.split(",") for line in target.read_text(encoding="utf-8").split())
        place, label = names.index("new_id"), names.index("mature")
        ids = np.array([int(person[place]) for person in people], dtype=np.int64)
        mature = np.array([person[label] == "True" for person in people])
    with _reading(edges):
        pairs = np.loadtxt(edges, delimiter=",", skiprows=1, usecols=(0, 1), dtype=np.int64, ndmin=2)
    with _reading(words):
        listed = {int(node): held for node, held in json.loads(words.read_bytes()).items()}
        rows = np.repeat(np.array([*listed], dtype=np.int64), [len(held) for held in listed.values()])
        columns = np.array([*chain.from_iterable(listed.values())], dtype=np.int64)
    nodes = len(np.unique(ids))
    for path, found, limit in (
        (target, ids, nodes), (edges, pairs, nodes), (words, rows, nodes), (words, columns, WIDTH),
    ):  # fmt: skip
        if found.size and not 0 <= int(found.min()) <= int(found.max()) < limit:
            raise malformed(path, f"it has a number outside 0…{limit - 1}")
    labels = np.zeros(nodes, dtype=np.int64)
    labels[ids] = mature
    # A feature that is listed twice counts once.
    features = ones_at(rows, columns, (nodes, WIDTH))
    features.data[:] = 1
    return pairs, features, labels


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise malformed(path, f"not MUSAE's, or truncated ({' '.join(str(error).split())})") from error
