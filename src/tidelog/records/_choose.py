"""Which kernel serves: the compiled one if it was built, or the interpreted one, as `TIDELOG_PURE=1` demands.

The only module below `io` that looks at the environment, once, at import; the import contract names it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.records import kernel, kernel_clean, kernel_encode, kernel_keys
else:
    try:
        if os.environ.get("TIDELOG_PURE"):
            raise ImportError
        from tidelog.records import _kernel_c as kernel
        from tidelog.records import _kernel_clean_c as kernel_clean
        from tidelog.records import _kernel_encode_c as kernel_encode
        from tidelog.records import _kernel_keys_c as kernel_keys
    except ImportError:  # also without a compiler, or Cython, when this was installed
        from tidelog.records import kernel, kernel_clean, kernel_encode, kernel_keys

__all__ = ["KERNEL_IS_COMPILED", "kernel", "kernel_clean", "kernel_encode", "kernel_keys"]

KERNEL_IS_COMPILED: bool = all(each.KERNEL_IS_COMPILED for each in (kernel, kernel_clean, kernel_encode, kernel_keys))
"""False means that touching each record costs twenty times as much."""
