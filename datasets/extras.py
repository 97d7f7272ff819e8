"""Import of optional libraries, which the package's extras install."""

import importlib
from typing import Any

from fedsub.datasets.errors import UserError


def needed(module: str, extra: str, by: str, otherwise: str = "") -> Any:
    """Import an optional library. `by` begins the error's sentence on a missing one, `otherwise` ends it.

    Raises UserError if the library is not installed or cannot import something itself, which is then named.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == module):
            raise UserError(f"{module}, which {by} needs, cannot be imported: {error}") from error
        advice = f"install the extra with pip install -e '.[{extra}]'"
        raise UserError(f"{by} needs {module}: {', or '.join(filter(None, (advice, otherwise)))}") from error
