"""Local: every client trains alone; the baseline that a federation must beat."""

from fedsub.methods.core.base import BOTH_TASKS, FederatedMethod, register


@register("local", title="Local", paper="no communication", tasks=BOTH_TASKS)
class Local(FederatedMethod):
    """The mixing matrix is the identity. A client that is absent in a round does not train in it."""

    labelled_outputs_only = True

    def shared(self) -> list[str]:
        return []
