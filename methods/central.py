"""Central: one model on the whole graph, evaluated per client (the Oracle of FED-PUB's Table 12)."""

from fedsub.methods.core.base import BOTH_TASKS, register
from fedsub.methods.local import Local


@register(
    "central",
    title="Central",
    paper="no federation",
    tasks=BOTH_TASKS,
    exchanges="all data, once (not counted)",
    breaks_privacy="all nodes, edges and labels are gathered in one place",
    merged=True,
    simulation_only="all data are in one place",
)
class Central(Local):
    """Local training of the single client that holds every node and every edge once.

    The data are gathered before the first round, so no client is ever absent.
    """
