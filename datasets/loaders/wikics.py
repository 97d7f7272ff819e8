"""Wiki-CS, one JSON file: `features` (n × 300), `labels` (n), `links` (n lists of neighbours).

Mernyei and Cangea, Wiki-CS: A Wikipedia-Based Benchmark for Graph Neural Networks, 2020.
"""

import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np

from fedsub.datasets.loaders.raw import RawGraph, checked, malformed


def parse(files: Mapping[str, Path]) -> RawGraph:
    """Read the one file given. Raises MalformedFileError if it is no such JSON or its parts do not fit."""
    (path,) = files.values()
    try:
        content = json.loads(path.read_bytes())
        features = np.array(content["features"], dtype=np.float32)
        labels = np.array(content["labels"], dtype=np.int64)
        links = content["links"]
        degrees = [len(near) for near in links]
        target = np.fromiter(chain.from_iterable(links), dtype=np.int64, count=sum(degrees))
    except KeyError as error:
        raise malformed(path, f"the field {error} is missing") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise malformed(path, "not the JSON of Wiki-CS, or truncated") from error
    return checked(RawGraph(np.repeat(np.arange(len(links)), degrees), target, features, labels), path)
