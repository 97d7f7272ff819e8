"""FedPer: the body is averaged, every client keeps its own classifier.

Arivazhagan et al., Federated Learning with Personalization Layers, 2019, algorithms 1 and 2.
With SGC, whose only layer is its classifier, nothing is left to share and FedPer is Local.
"""

from __future__ import annotations

from fedsub.methods.core.base import BOTH_TASKS, register
from fedsub.methods.fedavg import FedAvg


@register(
    "fedper",
    title="FedPer",
    paper="Arivazhagan et al. 2019",
    exchanges="parameters below the classifier",
    tasks=BOTH_TASKS,
)
class FedPer(FedAvg):
    """FedAvg on all parameters but the head's; a client that comes back has the newest body, its own head."""

    def shared(self) -> list[str]:
        return [name for name in self.parameters if name not in self.backbone.head]
