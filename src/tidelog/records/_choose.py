"""Which kernel serves: the compiled one if it was built, or the interpreted one, as `TIDELOG_PURE=1` demands.

The only module below `io` that looks at the environment, once, at import; the import contract names it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.records import kernel, kernel_encode
else:
    try:
        if os.environ.get("TIDELOG_PURE"):
            raise ImportError
        from tidelog.records import _kernel_c as kernel
        from tidelog.records import _kernel_encode_c as kernel_encode
    except ImportError:  # also without a compiler, or Cython, when this was installed
        from tidelog.records import kernel, kernel_encode

__all__ = ["KERNEL_IS_COMPILED", "kernel", "kernel_encode"]

KERNEL_IS_COMPILED: bool = kernel.KERNEL_IS_COMPILED and kernel_encode.KERNEL_IS_COMPILED
"""False means that touching each record costs twenty times as much."""
