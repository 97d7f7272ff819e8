"""Settings of data quality; `datasets.damage` applies them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsub.datasets.limits import NonNegative, PositiveShare, Share, check_limits

_UNSET = {"omit_default": True}


@dataclass(frozen=True)
class Quality:
    """Damage to the data; none by default. Features are damaged as the model reads them: after
    normalisation, which is not done again."""

    features_removed: Share = field(default=0.0, metadata=_UNSET)
    """Share of each node's non-zero features that are set to 0."""
    feature_flips: Share = field(default=0.0, metadata=_UNSET)
    """Share of all entries of binary features that are flipped: to 0, or to the node's non-zero value."""
    feature_noise: NonNegative = field(default=0.0, metadata=_UNSET)
    """Standard deviation of the Gaussian noise on every entry of the features, which become dense."""
    edges_removed: Share = field(default=0.0, metadata=_UNSET)
    """Share of the graph's edges that are missing, inside clients and between them."""
    class_edges_removed: Share = field(default=0.0, metadata=_UNSET)
    """Share of the edges inside classes that are missing before the graph is divided (TopFGL, Table VI)."""
    labels_kept: PositiveShare = field(default=1.0, metadata=_UNSET)
    """Share of the training labels that are kept, at least one; the other training nodes are not used."""
    labels_stratified: bool = field(default=False, metadata=_UNSET)
    """Whether that share is kept of every class, with at least one label of each."""
    label_noise: Share = field(default=0.0, metadata=_UNSET)
    """Share of the training labels replaced by another class, drawn uniformly. With overlapping clients a
    node that is another client's validation or test node keeps its label."""

    def __post_init__(self) -> None:
        """Raises UserError for a number outside its limit."""
        check_limits("", self)
