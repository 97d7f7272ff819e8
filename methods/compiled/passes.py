"""How a pass is compiled."""

from __future__ import annotations

import numba

FREE = {"nnan", "ninf", "nsz", "contract", "reassoc"}
"""What the compiler may do to sums. It may not divide by an estimate, as it does where it vectorises a loop:
that hangs on where in memory the arrays lie, so that of equal runs some would round otherwise."""

compile_pass = numba.njit(cache=True, fastmath=FREE, nogil=True, error_model="numpy")
"""How every pass is compiled: those in `methods.stacked.kernels`, and what a single module needs beside it.

What numba compiled is kept for as long as the pass's own file stays: who changes `rows.py` touches the files
of the passes that call it.
"""
