"""FedStruct's public code: `python -m fedsub.benchmark.studies.authors.fedstruct_worker FD`.

Its graph is built from ours and divided into our clients. Its configuration is the checkout's, with the
cell's settings. Servers, clients and training are called as in its `main` and `simulations`.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsub.benchmark.studies.authors.training import Timer, run
from fedsub.benchmark.studies.clients import WrittenClients
from fedsub.benchmark.studies.handover import stand_in_for_missing_extensions

FILES = {"cora": "Cora", "citeseer": "CiteSeer", "chameleon": "chameleon"}
"""Our graph → the code's configuration file and name."""
FEATURES = {"deg": "degree", "gdv": "GDV", "h2v": "hop2vec"}
"""Our name of structure features → the code's name."""


def train(clients: WrittenClients, task: dict[str, Any], timer: Timer) -> dict[str, float]:
    """Return the accuracy (%) over all test nodes after the last epoch, computed from the clients' own."""
    cell = task["cell"]
    stand_in_for_missing_extensions()
    _configure(cell, Path(task["checkout"]))
    graph, subgraphs = _load_clients(clients)
    method, options = cell["method"], cell["options"]
    quiet = {"log": False, "plot": False}
    network = {"data_type": "feature", "fmodel_type": "GNN"}
    if method == "fedsage+":
        server = import_module("src.fedsage.fedsage_server").FedSAGEServer(graph)
    else:
        server = import_module("src.GNN.GNN_server").GNNServer(graph)
    mend = import_module("src.utils.graph_partitioning").create_mend_graph
    for subgraph in subgraphs:
        server.add_client(mend(subgraph, graph, 1) if method == "fedsage-true" else subgraph)
    _time_after(server, "initialize" if method == "central" else "initialize_FL", timer)
    if method == "central":
        found = {"Client0": server.train_local_model(**network, **quiet)}
        tested = [int(clients.masks["test"].sum())]
    else:
        if method == "fedsage+":
            found = server.train_fedSage_plus(model="GA", **quiet)["GA"]
        elif method == "fedstruct":
            if options["features"] not in FEATURES:
                raise ValueError("node2vec is not run: its walks need pyg-lib")
            kind = FEATURES[options["features"]]
            saved = Path("models", FILES[cell["dataset"]], kind, f"{kind}_model.pkl")
            _lay_out(saved, Path(task["graphlets"]), clients.origin)
            found = server.joint_train_g(
                data_type="f+s", smodel_type="DGCN", fmodel_type="DGCN", structure_type=kind, **quiet
            )
        else:
            found = server.joint_train_g(FL=method != "local", **network, **quiet)
        tested = [int(clients.masks["test"][rows].sum()) for rows in clients.rows]
    timer.stop()
    # The code weighs clients by their nodes; weighed by test nodes the mean is the accuracy over all of them.
    right = sum(count * found[f"Client{number}"]["Test Acc"] for number, count in enumerate(tested) if count)
    return {"accuracy": 100 * float(right) / sum(tested)}


def _lay_out(saved: Path, graphlets: Path, origin: torch.Tensor) -> None:
    """Put our graphlet counts, if the cell needs them, where the code looks for its own saved ones. They come
    in the graph's order of nodes; `origin`, (n,), are the nodes' numbers in the graph."""
    if graphlets.exists():
        saved.parent.mkdir(parents=True)
        with np.load(graphlets, allow_pickle=False) as file:
            torch.save(torch.from_numpy(file["values"])[origin], saved)


def _time_after(server: Any, step: str, timer: Timer) -> None:
    """Start the timer at the end of `step`, with which the server's training begins.

    In this step the code computes matrix powers and structure features; before it, FedSage+ trains its
    generators. This is set-up, which our seconds per round do not include.
    """
    taken = getattr(server, step)

    def watched(*given: Any, **named: Any) -> Any:
        found = taken(*given, **named)
        timer.start()
        return found

    setattr(server, step, watched)


def _configure(cell: dict[str, Any], checkout: Path) -> None:
    """Write the code's configuration with the cell's settings; the code reads it on import."""
    yaml = import_module("yaml")
    name = FILES[cell["dataset"]]
    values = yaml.safe_load((checkout / "config" / f"config_{name}.yml").read_text(encoding="utf-8"))
    options = cell["options"]
    values["subgraph"] |= {"num_subgraphs": cell["clients"], "prune": False}
    values["model"] |= {
        "lr": cell["learning_rate"],
        "weight_decay": cell["weight_decay"],
        "dropout": cell["dropout"] if options.get("dropout", -1.0) < 0 else options["dropout"],
        "iterations": cell["rounds"],
        "local_epochs": cell["local_epochs"],
        "gnn_layer_type": "sage",
        "smodel_type": "DGCN",
        "fmodel_type": "DGCN",
        "batch": False,
        "metric": "acc",
    }
    values["feature_model"]["gnn_layer_sizes"] = cell["hidden"]
    if cell["method"] == "fedstruct":
        values["feature_model"] |= {
            "DGCN_layer_sizes": _widths(options["feature_hidden"]),
            "DGCN_layers": options["hops"],
        }
        values["structure_model"] |= {
            "DGCN_structure_layers_size": _widths(options["structure_hidden"]),
            "DGCN_layers": options["structure_hops"],
            "structure_type": FEATURES[options["features"]],
            "num_structural_features": options["structure_width"],
        }
    if cell["method"] == "fedsage+":
        values["fedsage"] |= {
            "neighgen_epochs": options["generator_epochs"],
            "neighgen_lr": options["generator_learning_rate"],
        }
    path = Path("config.yml").resolve()
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    os.environ |= {
        "CONFIGPATH": str(path),
        "RESULTPATH": "./results/",
        "seed": str(cell["seed"]),
        "MPLBACKEND": "Agg",
    }


def _widths(text: str) -> list[int]:
    return [int(width) for width in text.split("+")]


def _load_clients(clients: WrittenClients) -> tuple[Any, list[Any]]:
    """Return the code's graph, with the edges between clients, and its subgraphs, one per client of ours."""
    edges = np.concatenate([clients.edges, clients.edges_between], axis=1)
    nodes = torch.arange(len(clients.labels))
    graph = import_module("src.utils.graph").Graph(
        x=clients.features,
        y=clients.labels,
        edge_index=torch.from_numpy(edges),
        node_ids=nodes,
        keep_sfvs=True,
        train_mask=clients.masks["train"],
        val_mask=clients.masks["validation"],
        test_mask=clients.masks["test"],
        num_classes=clients.classes,
    )
    owned = {number: nodes[rows] for number, rows in enumerate(clients.rows)}
    return graph, import_module("src.utils.graph_partitioning").create_subgraps(graph, owned)


if __name__ == "__main__":
    run(train)
