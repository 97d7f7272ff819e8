"""Keep freed memory in the process, because every round allocates the same tensors again."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make glibc neither map large tensors one by one nor return their pages to the system.

    By default each large tensor gets fresh pages from the kernel, zeroed one page fault at a time,
    and loses them when it is freed; on PubMed that doubles the time of a round (results/performance.md).
    Applies to the whole process; returns False if the C library is not glibc and nothing was changed.
    """
    # None: what this process has loaded, the C library among it.
    library = ctypes.CDLL(None)
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER))
    return hasattr(library, "mallopt") and all(library.mallopt(*each) for each in settings)


def return_freed_memory() -> bool:
    """Return the pages of all freed memory to the system; to be called between two cells.

    The fragments that one cell leaves free seldom fit the tensors of the next: a worker would grow to many
    times its largest cell. Returns False if the C library is not glibc or had nothing to return.
    """
    library = ctypes.CDLL(None)
    return hasattr(library, "malloc_trim") and bool(library.malloc_trim(0))
