"""Lists of methods, graphs, partition schemes, splits and tables."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsub.benchmark.spec import catalog
from fedsub.benchmark.spec import protocol as protocols
from fedsub.datasets.catalogue import REGISTRY
from fedsub.datasets.errors import UserError
from fedsub.datasets.files import locate
from fedsub.datasets.limits import Range
from fedsub.datasets.options import OptionValue, defaults_in_words, format_value


def print_listing(console: Console) -> None:
    """Print every method, graph, backbone, partition scheme, split and table with its options; for a plug-in
    that cannot be used, the reason."""
    head = ("name", "paper", "tasks", "backbones", "what leaves a client", "breaks privacy")
    _table(console, "Methods", head, map(_method_row, catalog.methods()))
    of_methods = []
    for name in catalog.methods():
        # The list of methods says why one cannot be used.
        with suppress(UserError):
            of_methods.append((name, catalog.describe(name).options))
    _table(console, "Options of methods", ("name", "options"), _options_rows(of_methods))
    graphs = catalog.parts("dataset")
    head = ("name", "nodes", "edges", "features", "classes", "on this machine")
    _table(console, "Graphs", head, map(_graph_row, graphs))
    generated = [(name, each.options) for name, each in graphs.items()]
    _table(console, "Options of generated graphs", ("name", "options"), _options_rows(generated))
    for title, kind in (("Backbones", "backbone"), ("Partition schemes", "partition"), ("Splits", "split")):
        parts = catalog.parts(kind).items()
        rows = [(name, defaults_in_words(each.options), each.summary) for name, each in parts]
        _table(console, title, ("name", "options", "what it does"), rows)
    loaded = map(protocols.load_protocol, protocols.names())
    tables = [(item.name, item.title, ", ".join(item.grid["dataset"]), str(item.seeds)) for item in loaded]
    _table(console, "Tables", ("name", "title", "graphs", "seeds"), tables)


def print_method(name: str, console: Console) -> None:
    """Print a method's description, its options and its search space. Raises UserError for an unknown
    method."""
    from fedsub.benchmark.spec.space import own_dimensions, shared_dimensions

    info = catalog.describe(name)
    console.print(f"{info.title} ({info.name}), {info.paper}", markup=False, highlight=False)
    module, text = info.docs
    console.print(f"\n{module}\n\n{text}\n", markup=False, highlight=False)
    tuned = {each.name: _in_words(each.range) for each in own_dimensions(name)}
    options = [
        (option, default, tuned.get(option, ""), what) for option, default, what in info.explained_options
    ]
    _table(console, "Options", ("name", "default", "tuned over", "what it is"), options)
    shared = [(each.name, _in_words(each.range)) for each in shared_dimensions()]
    _table(console, "Tuned with every method (fedsub tune)", ("setting", "over"), shared)


def _in_words(range: Range) -> str:
    if range.choices:
        lists = (each if isinstance(each, tuple) else (each,) for each in range.choices)
        return ", ".join("+".join(map(format_value, each)) for each in lists)
    return f"{range.low:g} to {range.high:g}" + (", log-uniform" if range.log else "")


def _method_row(name: str) -> tuple[str, ...]:
    try:
        info = catalog.describe(name)
    except UserError as error:
        return (name, str(error), "", "", "", "")
    return (
        info.name,
        info.title if info.title == info.paper else f"{info.title}, {info.paper}",
        ", ".join(info.tasks),
        _backbones(name, info.backbones),
        info.leaves,
        info.breaks_privacy or "no",
    )


def _backbones(method: str, able: Sequence[str]) -> str:
    """Return a method's backbones as text, or that it has a network of its own."""
    listed = ", ".join(able)
    needed = catalog.unused_options(method, {}, able[0]).get("backbone", "")
    if not needed:
        return listed
    return f"its own network; {listed} with {needed}" if "=" in needed else "its own network"


def _options_rows(found: Iterable[tuple[str, Mapping[str, OptionValue]]]) -> list[tuple[str, str]]:
    return [(name, defaults_in_words(options)) for name, options in found if options]


def _graph_row(name: str) -> tuple[str, ...]:
    if name not in REGISTRY:
        return (name, "generated", "", "", "", "yes")
    info = REGISTRY[name]
    counts = (info.nodes, info.undirected_edges, info.features, info.classes)
    at_hand = "yes" if locate(name) else f"no: fedsub data fetch {name}"
    return (name, *(f"{count:,}" for count in counts), at_hand)


def _table(console: Console, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*header, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
