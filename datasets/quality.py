"""How good the data is: settings of a cell, without torch. What they do is in `datasets.damage`."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsub.datasets.limits import NonNegative, PositiveShare, Share, check_limits

_UNSET = {"omit_default": True}


@dataclass(frozen=True)
class Quality:
    """What is wrong with the data; by default nothing. Features are damaged as the model reads them: after
    normalisation, which is not done again."""

    features_removed: Share = field(default=0.0, metadata=_UNSET)
    """Share of each node's non-zero features that are set to 0."""
    feature_flips: Share = field(default=0.0, metadata=_UNSET)
    """Share of all entries of binary features that become 0 where they are not, and else the node's value."""
    feature_noise: NonNegative = field(default=0.0, metadata=_UNSET)
    """Standard deviation of the Gaussian noise on every entry of the features, which become dense."""
    edges_removed: Share = field(default=0.0, metadata=_UNSET)
    """Share of the graph's edges that are missing, inside clients and between them."""
    class_edges_removed: Share = field(default=0.0, metadata=_UNSET)
    """Share of the edges inside classes that are missing before the graph is divided (TopFGL, Table VI)."""
    labels_kept: PositiveShare = field(default=1.0, metadata=_UNSET)
    """Share of the training labels that are known, at least one; the other nodes play no role."""
    labels_stratified: bool = field(default=False, metadata=_UNSET)
    """Whether that share is kept of every class, and at least one label of each."""
    label_noise: Share = field(default=0.0, metadata=_UNSET)
    """Share of the training labels that are replaced by another class, drawn uniformly; of nodes that are
    scored nowhere: where clients overlap, many a training node is another client's test node, and keeps its
    label."""

    def __post_init__(self) -> None:
        """Raises UserError for a number outside its limit."""
        check_limits("", self)
