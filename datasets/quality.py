"""Settings of data quality; `datasets.damage` applies them."""

from __future__ import annotations

from dataclasses import dataclass

from fedsub.datasets.limits import NonNegative, PositiveShare, Share, check_limits


@dataclass(frozen=True)
class Quality:
    """Damage to the data; none by default. Features are damaged as the model reads them: after
    normalisation, which is not done again."""

    features_removed: Share = 0.0
    """Share of each node's non-zero features that are set to 0."""
    feature_flips: Share = 0.0
    """Share of all entries of binary features that are flipped: to 0, or to the node's non-zero value."""
    feature_noise: NonNegative = 0.0
    """Standard deviation of the Gaussian noise on every entry of the features, which become dense."""
    edges_removed: Share = 0.0
    """Share of the graph's edges that are missing, inside clients and between them."""
    class_edges_removed: Share = 0.0
    """Share of the edges inside classes that are missing before the graph is divided (TopFGL, Table VI)."""
    labels_kept: PositiveShare = 1.0
    """Share of the training labels that are kept, at least one; the other training nodes are not used."""
    labels_stratified: bool = False
    """Whether that share is kept of every class, with at least one label of each."""
    label_noise: Share = 0.0
    """Share of the training labels replaced by another class, drawn uniformly. With overlapping clients a
    node that is another client's validation or test node keeps its label."""

    def __post_init__(self) -> None:
        """Raises UserError for a number outside its limit."""
        check_limits("", self)
