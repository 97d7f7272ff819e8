"""FedPer: the server averages the body of the network; every client keeps its own classifier.

Arivazhagan et al., Federated Learning with Personalization Layers, 2019, algorithms 1 and 2.
SGC's only layer is its classifier: with it nothing is shared, and FedPer equals Local.
"""

from fedsub.methods.core.base import BOTH_TASKS, register
from fedsub.methods.fedavg import FedAvg


@register("fedper", title="FedPer", paper="Arivazhagan et al. 2019", tasks=BOTH_TASKS)
class FedPer(FedAvg):
    """FedAvg on all parameters except the head. A client coming back has the newest body and its own head."""

    def shared(self) -> list[str]:
        return [name for name in self.parameters if name not in self.backbone.head]
