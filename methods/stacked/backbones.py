"""Every backbone by name: the files of `methods.stacked.networks`, plug-ins, and paths to files."""

from functools import partial

import dgl
import torch

from fedsub.datasets.plugins import Kind
from fedsub.methods.stacked.architecture import Architecture
from fedsub.methods.stacked.inputs import Convolution
from fedsub.methods.stacked.networks.base import Backbone as Backbone
from fedsub.methods.stacked.networks.graphsage import GraphSAGE as GraphSAGE
from fedsub.methods.stacked.networks.own import Own
from fedsub.methods.stacked.propagation import normalised_edges, propagate

BACKBONES = Kind(
    noun="backbone",
    function="network",
    group="fedsub.backbones",
    package="fedsub.methods.stacked.networks",
    shared=("base", "layered", "own"),
    given=2,
)


def normalised_adjacency(graph: dgl.DGLGraph, device: torch.device | str) -> Convolution:
    """h → Â h with Â = D̃^−½ (A + I) D̃^−½, Kipf & Welling, ICLR 2017, eq. (2)."""
    looped, weight = normalised_edges(graph)
    return partial(propagate, looped, weight=weight.to(device))


def make_backbone(architecture: Architecture) -> Backbone:
    """Make the backbone of an architecture; a function that returns a torch module is run for every client.

    Raises UserError for an unknown name.
    """
    found = BACKBONES.find(architecture.backbone)
    stacked = isinstance(found, type) and issubclass(found, Backbone)
    return found(architecture) if stacked else Own(architecture, found)
