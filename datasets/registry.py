"""Registry of graphs: expected content, source and loading by name.

Paths of files are accepted as names too: an `.npz` archive, a `.py` module with `load() -> Dataset`, and the
formats that `datasets.own` reads. So are names that installed packages provide in the entry point group
`fedsub.datasets`.
"""

import importlib
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedsub.datasets import own
from fedsub.datasets.archive import ATTRIBUTE, SPLITS, as_dataset, read_archive, write_archive
from fedsub.datasets.catalogue import REGISTRY, DatasetInfo
from fedsub.datasets.errors import UserError, unknown
from fedsub.datasets.fetch import fetch, forget
from fedsub.datasets.fields import left_out
from fedsub.datasets.files import expanded, explained, locate, user_cache
from fedsub.datasets.graph import Dataset, binarised, check_dataset
from fedsub.datasets.loaders import planetoid
from fedsub.datasets.loaders.npz import open_npz
from fedsub.datasets.loaders.raw import MalformedFileError
from fedsub.datasets.lock import locked
from fedsub.datasets.options import OptionValue, Spec, checked_options, format_name
from fedsub.datasets.paths import ARCHIVE, PLUGIN, is_path
from fedsub.datasets.plugins import Kind, entry_points, user_object
from fedsub.datasets.summary import summarise
from fedsub.datasets.synthetic import GENERATORS

PLUGINS = Kind("dataset", function="load", group="fedsub.datasets")
DOWNLOAD = 3600.0
"""Maximum seconds that another process may need to download and parse a graph."""


def names() -> list[str]:
    """Return all names that `load` knows, except files: published graphs, generated graphs, plug-ins."""
    return [*REGISTRY, *GENERATORS, *PLUGINS.names()]


def info(name: str | Spec) -> DatasetInfo:
    """Return the registry's entry of a published graph. Raises UserError for any other name."""
    base = Spec.of(name).name
    if base not in REGISTRY:
        raise unknown("dataset", base, REGISTRY)
    return REGISTRY[base]


def load(
    name: Any,
    data_directory: Path | None = None,
    download: bool = True,
    **parameters: OptionValue,
) -> Dataset:
    """Load a graph by name, by a name with options (`community[nodes=500]`), or by a file's path; or convert
    an object of PyG, DGL or networkx (`own.as_own`).

    A published graph is read from `NAME.npz` in `data_directory` (else FEDSUB_DATA) or in the user cache. If
    it is in neither and `download` is set, it is downloaded and kept in the user cache. Its counts are
    checked against the registry. `binary=false` keeps the word counts of Coauthor and DBLP, which become 0/1
    by default. Parameters of generated graphs: see `datasets.synthetic`. Raises UserError for an unknown name
    or parameter, counts other than the registry's, files that cannot be obtained or read, and plug-ins that
    raise.
    """
    if not isinstance(name, (str, Spec, Path)):
        return own.as_own(name)
    if isinstance(name, Path):
        # Without a slash, a folder would be read as a name; brackets would be read as options.
        name = expanded(name).absolute()
        if name.suffix != PLUGIN:
            checked_options(str(name), lambda: None, parameters)
            return _load_own(name)
        name = str(name)
    base = Spec.of(name).name
    options = check(name, **parameters)
    given = user_object(PLUGINS.noun, base)
    if isinstance(given, Dataset):
        return given
    path = given or base
    if path in GENERATORS:
        generator = GENERATORS[path]
        return replace(generator.build(generator.options(**options)), name=format_name(path, options))
    if path in REGISTRY:
        return _load_published(REGISTRY[path], data_directory, download, **options)
    if is_path(path) and not path.endswith(PLUGIN):
        return _load_own(Path(path))
    dataset = PLUGINS.call(path, **options)
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"load() of the plug-in {path} returns {type(dataset).__name__}: return a datasets.Dataset"
        )
    check_dataset(dataset)
    return dataset


def check(name: str | Spec, **parameters: OptionValue) -> dict[str, Any]:
    """Return the options of a graph's name and further ones, in their types, without loading the graph.

    Raises UserError for an unknown name or parameter, and for an invalid value.
    """
    spec = Spec.of(name)
    options = {**spec.written, **parameters}
    given = user_object(PLUGINS.noun, spec.name)
    path = given if isinstance(given, str) else spec.name
    if isinstance(given, Dataset) or (is_path(path) and not path.endswith(PLUGIN)):
        return checked_options(path, lambda: None, options)
    if path in GENERATORS:
        kind = GENERATORS[path].options
        typed = checked_options(path, kind, options)
        kind(**typed)
        return typed
    if path in REGISTRY:
        return checked_options(path, _binary, options)
    if not path.endswith(PLUGIN) and path not in entry_points(PLUGINS.group):
        if expanded(path).is_dir():
            raise UserError(f"unknown dataset {path!r}: to read the folder of that name, write ./{path}")
        raise unknown("dataset", path, names())
    return PLUGINS.check(spec, **parameters)


def _binary(binary: bool = True) -> None:
    """Options of a published graph."""


def is_available(name: str | Spec, data_directory: Path | None = None) -> bool:
    """Whether `load` needs no network: the archive exists, or the graph is generated, a file or a plug-in.

    Raises UserError if the folder of archives does not exist or is a file."""
    base = Spec.of(name).name
    return base not in REGISTRY or locate(base, data_directory) is not None


def how_to_get(name: str | Spec) -> str:
    """Return one sentence on how to get a published graph that is not available."""
    base = Spec.of(name).name
    return (
        f"put {base}.npz into the folder that FEDSUB_DATA names, or run `fedsub data fetch {base}` "
        f"on a machine with a network and copy {base}.npz from its cache ({user_cache()} here)"
    )


def obtain(info: DatasetInfo) -> Path:
    """Download a published graph, parse it, and write its archive to the user cache; returns the path.

    Several processes may call it at once: one downloads, the others wait for the archive. Raises UserError if
    a file cannot be obtained or read, the counts are wrong, or the cache cannot be written.
    """
    cache = user_cache()
    archive = cache / f"{info.name}.npz"
    with ExitStack() as held:
        with explained("write to the cache", cache, "set FEDSUB_CACHE to a writable folder"):
            cache.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(cache / f"{info.name}.lock", give_up=DOWNLOAD))
        if not archive.is_file():
            files = fetch(info.sources, cache / "upstream" / info.name, how_to_get(info.name))
            try:
                raw = importlib.import_module(f"fedsub.datasets.loaders.{info.loader}").parse(files)
                dataset = as_dataset(info.name, raw, info.classes)
                _check_counts(info, dataset, next(iter(files.values())))
            except UserError:
                forget(files.values())
                raise
            meta = {
                "name": info.name,
                **asdict(summarise(dataset)),
                "stored_edges": len(raw.source),
                "upstream": list(info.urls),
                "citation": info.citation,
            }
            write_archive(archive, raw, meta)
    return archive


_ARRAYS = (
    "edge_src", "edge_dst", "label", "meta", *SPLITS,
    "feat", "feat_data", "feat_indices", "feat_indptr", "feat_shape",
)  # fmt: skip
"""Arrays of an archive beside attributes."""


def _load_own(path: Path) -> Dataset:
    if not path.name.endswith(ARCHIVE):
        with explained("read", path, "check the path and its permissions"):
            return own.read(path)
    try:
        raw, meta = read_archive(expanded(path))
        with open_npz(expanded(path)) as content:
            unread = [key for key in content.names() if key not in _ARRAYS and not key.startswith(ATTRIBUTE)]
    except MalformedFileError as error:
        fix = "write it again with the arrays edge_src, edge_dst, feat and label"
        raise error.of_own(str(path), fix) from None
    note = "; ".join(filter(None, (str(meta.get("note", "")), left_out(raw, unread))))
    return as_dataset(path.stem, raw, meta.get("classes"), note)


def _load_published(
    info: DatasetInfo, data_directory: Path | None, download: bool, binary: bool | None = None
) -> Dataset:
    binary = info.counts if binary is None else binary
    path = locate(info.name, data_directory)
    if path is None:
        if not download:
            raise UserError(f"{info.name} is not here: {how_to_get(info.name)}")
        path = obtain(info)
    raw, _ = read_archive(path)
    if raw.official is None and info.loader == "planetoid":
        raw = replace(raw, official=planetoid.split_of_archive(raw))
    dataset = as_dataset(info.name, raw, info.classes)
    incomplete = _check_counts(info, dataset, path)
    title = format_name(info.name, {"binary": binary} if binary != info.counts else {})
    dataset = replace(dataset, name=title, note=info.incomplete_note if incomplete else "")
    return binarised(dataset) if binary else dataset


def _check_counts(info: DatasetInfo, dataset: Dataset, path: Path) -> bool:
    """Compare counts with the registry; returns whether this is the archive known to lack some edges. Raises
    UserError for other counts."""
    edges = dataset.undirected_edges
    incomplete = edges == info.incomplete_edges
    for what, found, expected in (
        ("nodes", dataset.nodes, info.nodes),
        ("features", dataset.features.shape[1], info.features),
        ("classes", int(dataset.labels.max()) + 1, info.classes),
        ("undirected edges", edges, edges if incomplete else info.undirected_edges),
    ):
        if found != expected:
            raise UserError(
                f"{path} has {found:,} {what}, but {info.name} has {expected:,}: it is damaged or "
                "another graph; replace the file"
            )
    return incomplete
