"""How the process's allocator deals with large blocks of memory."""

from __future__ import annotations

import sys

LARGE_BYTES = 2 << 20
"""Above what is read or sent at a time (1 MiB): to map and unmap a block costs as much as to fill it."""
TRIMMED_BYTES = 2 * LARGE_BYTES

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def return_large_blocks() -> None:
    """Have large blocks given back to the system as soon as they are free, however many came and went before.

    glibc maps a large block by itself at first. Once one was freed it takes the next ones of that size from the heap,
    which it can only give back from its end: a burst of requests of some megabytes stays resident until whatever was
    allocated behind them is free. A threshold that was set stays (mallopt(3)). Other allocators are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # not for clients

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIMMED_BYTES)
