"""Keep freed memory in the process: a round allocates the same tensors again and again."""

from __future__ import annotations

import ctypes
import ctypes.util

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Have glibc neither map large tensors one by one nor give their pages back.

    By default each large tensor gets fresh pages from the kernel, zeroed one page fault at a time,
    and loses them when it is freed; on PubMed that doubles the time of a round (results/performance.md).
    For the whole process; returns False where the C library is not glibc and nothing was changed.
    """
    library = _c_library()
    if not hasattr(library, "mallopt"):
        return False
    return bool(library.mallopt(_M_MMAP_MAX, 0) and library.mallopt(_M_TRIM_THRESHOLD, _NEVER))


def return_freed_memory() -> bool:
    """Give the pages of all freed memory back to the system, as is due between two cells.

    What one cell leaves free in pieces seldom fits the tensors of the next: a worker would grow to many
    times what its largest cell takes. Returns False where the C library is not glibc or had nothing to give.
    """
    library = _c_library()
    return hasattr(library, "malloc_trim") and bool(library.malloc_trim(0))


def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("c"))
