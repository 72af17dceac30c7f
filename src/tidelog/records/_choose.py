"""Which kernel serves: the compiled one if it was built, or the interpreted one, as `TIDELOG_PURE=1` demands.

A compiled kernel that was built from another source than the one beside it does not serve: after an update without a
build, it would lack what its callers expect, or do it as it was done before.

The only module below `io` that looks at the environment, once, at import; the import contract names it.
"""

from __future__ import annotations

import os
from binascii import crc32
from typing import TYPE_CHECKING
from warnings import warn

STALE = (
    "the compiled kernel was built from another source than the one beside it, so the interpreted one serves, and each"
    " record costs twenty times as much: install tidelog again, or run make setup in a checkout"
)


def _is_current(built: ModuleType) -> bool:
    """Whether a compiled kernel was built from the source beside it, or there is none to compare it with."""
    name = built.__name__.rpartition(".")[2][1:-2]  # of _kernel_c: kernel
    checksum = 0
    for suffix in ("py", "pxd"):
        try:
            with open(f"{__file__.removesuffix('_choose.py')}{name}.{suffix}", "rb") as source:
                checksum = crc32(source.read(), checksum)
        except OSError:
            return True
    own: str | None = built.KERNEL_SOURCE_HASH
    return own == f"{checksum:08x}"


if TYPE_CHECKING:
    from types import ModuleType

    from tidelog.records import kernel, kernel_clean, kernel_encode, kernel_keys
else:
    try:
        if os.environ.get("TIDELOG_PURE"):
            raise ImportError
        from tidelog.records import _kernel_c as kernel
        from tidelog.records import _kernel_clean_c as kernel_clean
        from tidelog.records import _kernel_encode_c as kernel_encode
        from tidelog.records import _kernel_keys_c as kernel_keys

        if not all(map(_is_current, (kernel, kernel_clean, kernel_encode, kernel_keys))):
            warn(STALE, RuntimeWarning, stacklevel=2)
            raise ImportError
    except ImportError:  # also without a compiler, or Cython, when this was installed
        from tidelog.records import kernel, kernel_clean, kernel_encode, kernel_keys

__all__ = ["KERNEL_IS_COMPILED", "kernel", "kernel_clean", "kernel_encode", "kernel_keys"]

KERNEL_IS_COMPILED: bool = all(each.KERNEL_IS_COMPILED for each in (kernel, kernel_clean, kernel_encode, kernel_keys))
"""False means that touching each record costs twenty times as much."""
