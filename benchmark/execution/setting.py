"""The setting in which a cell's method trains, in one program or as a half of its own."""

from fedsub.benchmark.spec.cell import NODE_CLASSIFICATION, Cell
from fedsub.datasets.federation import Federation
from fedsub.methods.core import registry
from fedsub.methods.core.setting import Setting, make_setting

ALWAYS_SCORED = {NODE_CLASSIFICATION.name: ("macro_f1",)}
"""Task → metrics of every record besides the task's own and the protocol's."""


def setting_of(cell: Cell, federation: Federation) -> Setting:
    """Return the cell's setting on these clients."""
    return make_setting(
        federation,
        cell.architecture,
        cell.schedule,
        cell.seed,
        task=cell.task,
        metrics=(*cell.further_metrics, *ALWAYS_SCORED.get(cell.task.name, ())),
        merged=registry.describe(cell.method).merged,
        data_seed=cell.drawn_with,
        kernel=cell.kernel,
        device=cell.device,
    )
