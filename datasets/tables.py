"""Reading of CSV tables with a row of names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsub.datasets.errors import UserError
from fedsub.datasets.loaders.raw import DAMAGE

if TYPE_CHECKING:
    import pandas


def read_table(path: Path, as_written: bool = False) -> pandas.DataFrame:
    """A table of numbers and text, or, once it has been read so, `as_written`: all of it as text.

    Raises UserError if it cannot be read, where pandas would take its first column for numbers of rows or
    leave out its last, and where its first has no name."""
    import pandas

    kind: dict[str, Any] = {"dtype": str, "keep_default_na": False} if as_written else {}
    try:
        with warnings.catch_warnings():
            # As text, the empty field after a last comma would count as one too many.
            warnings.simplefilter("ignore" if as_written else "error", pandas.errors.ParserWarning)
            table = pandas.read_csv(path, index_col=False, low_memory=False, **kind)
    except pandas.errors.ParserWarning as error:
        raise UserError(f"a row of {path} has more fields than its first: name every column") from error
    except (*DAMAGE, pandas.errors.ParserError) as error:
        raise UserError(f"cannot read {path} ({' '.join(str(error).split())}): write it anew") from error
    if str(table.columns[0]).startswith("Unnamed: "):
        raise UserError(
            f"the first column of {path} has no name: name it, or leave it out (in pandas,"
            " to_csv(index=False))"
        )
    return table
