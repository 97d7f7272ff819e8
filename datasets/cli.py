"""`python -m datasets`: list, show, fetch, export and partition graphs."""

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from fedsub.datasets import own, registry
from fedsub.datasets.archive import as_raw, write_archive
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import explained, user_cache, written_atomically
from fedsub.datasets.graph import BETA_NOTICE, Dataset, largest_component, valued
from fedsub.datasets.options import Spec, defaults_in_words, defaults_of
from fedsub.datasets.streams import close_output
from fedsub.datasets.summary import class_sizes, summarise
from fedsub.datasets.synthetic import GENERATORS

_FIGURES = (
    "title", "nodes", "undirected_edges", "features", "classes", "homophily", "largest_component", "metric",
)  # fmt: skip
"""Fields of `DatasetInfo` that are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code: 0, or 2 after one sentence on standard error."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=BETA_NOTICE)
        try:
            options.run(options)
            sys.stdout.flush()
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except BrokenPipeError:
            close_output()
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Make the command line's parser; every subcommand stores its function in `run`."""
    parser = argparse.ArgumentParser(
        prog="fedsub data", description="The graphs of FedSub Bench: list, inspect, fetch, divide."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="list all graphs, and which of them are here")
    listing.set_defaults(run=_list)

    showing = commands.add_parser("info", help="describe one graph, with statistics if it is here")
    showing.set_defaults(run=_info)
    fetching = commands.add_parser("fetch", help="download graphs into the user cache")
    fetching.add_argument("names", nargs="+", metavar="NAME", help="graphs, or all")
    fetching.set_defaults(run=_fetch)

    exporting = commands.add_parser("export", help="write a graph to an npz archive")
    exporting.add_argument(
        "--output", type=Path, metavar="FILE.npz", help="default: NAME.npz in this folder, unless it exists"
    )
    exporting.set_defaults(run=_export)

    dividing = commands.add_parser("partition", help="divide a graph among clients and print statistics")
    dividing.add_argument(
        "--scheme", default="metis", help="such as metis or metis[recursive=true] (default: metis)"
    )
    dividing.add_argument("--clients", type=int, default=10, help="number of clients (default: 10)")
    dividing.add_argument("--seed", type=int, default=0, help="seed of the scheme (default: 0)")
    dividing.add_argument("--largest-component", action="store_true", help="keep only this, as FED-PUB does")
    dividing.add_argument(
        "--output", type=Path, metavar="FILE.npy", help="write the client of every node, -1 for none"
    )
    dividing.set_defaults(run=_partition)

    for command in (showing, exporting, dividing):
        command.add_argument(
            "name", metavar="NAME", help="a graph, such as cora or community[nodes=500], or your own file"
        )
    for command in (listing, showing, dividing):
        command.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    for command in (listing, showing, exporting, dividing):
        command.add_argument(
            "--data", type=Path, metavar="FOLDER", help="folder of archives (default: FEDSUB_DATA)"
        )
    return parser


def _list(options: argparse.Namespace) -> None:
    rows = []
    for name in registry.names():
        row: dict[str, Any] = {"name": name}
        if name in registry.REGISTRY:
            path = registry.locate(name, options.data)
            row |= {_words(key): getattr(registry.REGISTRY[name], key) for key in _FIGURES}
            row |= {"edges": row.pop("undirected edges"), "path": path and str(path)}
            row["here"] = "yes" if path else "no"
        elif name in GENERATORS:
            row |= {key: getattr(GENERATORS[name], key) for key in ("title", "nodes", "features", "classes")}
            row["here"] = "generated"
        else:
            row |= {"title": "(plug-in)", "here": "yes"}
        rows.append(row)
    if options.format == "json":
        print(json.dumps(rows, indent=2))
        return
    columns = ["name", "title", "nodes", "edges", *map(_words, _FIGURES[3:]), "here"]
    print(_table(([row.get(column) for column in columns] for row in rows), headers=columns))
    missing = [row["name"] for row in rows if row["here"] == "no"]
    if missing:
        print(
            f"\nNot here: {', '.join(missing)}. Put NAME.npz into the folder that FEDSUB_DATA names, or run\n"
            "`fedsub data fetch NAME` where there is a network; it writes NAME.npz to\n"
            f"{user_cache()}."
        )


def _info(options: argparse.Namespace) -> None:
    base = Spec(options.name).name
    known: dict[str, Any] = {}
    if info := registry.REGISTRY.get(base):
        known = {key: getattr(info, key) for key in (*_FIGURES, "citation", "licence")}
        known["upstream"] = list(info.urls)
    elif base in GENERATORS:
        known = {key: getattr(GENERATORS[base], key) for key in ("title", "citation")}
        known["options"] = defaults_in_words(defaults_of(GENERATORS[base].options))
    here = registry.is_available(options.name, options.data)
    dataset = registry.load(options.name, options.data, download=False) if here else None
    measured: dict[str, Any] = {} if dataset is None else asdict(summarise(dataset))
    note = "" if dataset is None else dataset.note
    if options.format == "json":
        content = {"name": options.name, "known": known, "measured": measured, "note": note}
        print(json.dumps(content, indent=2))
        return
    print(options.name)
    details = ("title", "options", "citation", "licence")
    # The registry knows nothing about a file or a plug-in's graph.
    if described := [[key, known[key]] for key in details if known.get(key)]:
        print(_table(described))
    for url in known.get("upstream", []):
        print(f"  {url}")
    figures = [key for key in {**measured, **known} if key not in (*details, "upstream")]
    rows = ([_words(key), known.get(key), measured.get(key)] for key in figures)
    print(_table(rows, ("", "registry", "here")))
    for line in () if dataset is None else _held(dataset):
        print(line)
    if note:
        print(f"\nNote: {note}.")
    if dataset is None:
        print(f"\nNot here: {registry.how_to_get(options.name)}.")


def _held(dataset: Dataset) -> Iterator[str]:
    """Yield lines on a graph's classes, missing labels, official splits and attributes."""
    yield f"classes: {class_sizes(dataset)}"
    if missing := int((dataset.labels < 0).sum()):
        yield f"without a label: {missing:,} nodes"
    if dataset.official is not None:
        yield f"official splits: {dataset.official.shape[1]}"
    for name, values in dataset.attributes.items():
        yield f"attribute {name}: {len(np.unique(values[valued(values)])):,} values"


def _fetch(options: argparse.Namespace) -> None:
    wanted = list(registry.REGISTRY) if options.names == ["all"] else options.names
    failed = []
    for name in wanted:
        try:
            path = registry.obtain(registry.info(name))
        except UserError as error:
            # Other graphs may still be available: continue, and fail at the end.
            failed.append(error)
        else:
            print(f"{name}: {path}")
    if failed:
        raise UserError("\nerror: ".join(str(error) for error in failed))


def _export(options: argparse.Namespace) -> None:
    base = Spec(options.name).name
    path = options.output or Path(f"{own.name_of(Path(base))}.npz")
    if path.suffix != ".npz":
        raise UserError(f"cannot export to {path}: the file's name must end in .npz")
    if options.output is None and path.exists():
        raise UserError(f"{path} exists: give another file with --output, or this one to replace it")
    dataset = registry.load(options.name, options.data)
    meta: dict[str, Any] = {"name": dataset.name, **asdict(summarise(dataset))}
    if info := registry.REGISTRY.get(base):
        meta |= {"upstream": list(info.urls), "citation": info.citation}
    if dataset.note:
        meta["note"] = dataset.note
    write_archive(path, as_raw(dataset), meta)
    print(path)
    if info and info.counts and "binary" not in Spec(options.name).written:
        print(
            f"its features are 0 and 1: export '{base}[binary=false]' for the published counts",
            file=sys.stderr,
        )


def _partition(options: argparse.Namespace) -> None:
    from fedsub.datasets.partition import SCHEMES
    from fedsub.datasets.partition import partition as divide
    from fedsub.datasets.partition.statistics import describe

    # Check the options before a graph is downloaded in vain.
    SCHEMES.check(options.scheme)
    if options.output and options.output.suffix != ".npy":
        raise UserError(f"cannot write clients to {options.output}: the file's name must end in .npy")
    dataset = registry.load(options.name, options.data)
    if options.largest_component:
        dataset = largest_component(dataset)
    partition = divide(dataset, options.scheme, options.clients, options.seed)
    statistics = describe(dataset, partition).to_dict()
    if options.format == "json":
        head = {"dataset": dataset.name, "scheme": partition.scheme, "seed": options.seed}
        print(json.dumps({**head, "statistics": statistics, "note": dataset.note}, indent=2))
    else:
        print(f"{dataset.name}, {partition.scheme}, seed {options.seed}")
        print(_table([_words(key), value] for key, value in statistics.items()))
        if dataset.note:
            print(f"\nNote: {dataset.note}.")
    if options.output:
        clients = partition.assignment(dataset.nodes)
        with explained("write", options.output), written_atomically(options.output) as stream:
            np.save(stream, clients)
        print(f"written: {options.output}", file=sys.stderr)
        if partition.added.size:
            print(f"{partition.added.shape[1]} added edges are not in the file", file=sys.stderr)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _table(rows: Iterable[Sequence[Any]], headers: Sequence[str] = ()) -> str:
    shown = [[_shown(cell) for cell in row] for row in rows]
    columns = zip(*shown, strict=True)
    alignment = ["right" if any(cell[:1].isdigit() for cell in each) else "left" for each in columns]
    return str(tabulate(shown, headers=headers, tablefmt="simple", disable_numparse=True, colalign=alignment))


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
