"""Which kernel serves: the compiled one if it was built, or the interpreted one, as `TIDELOG_PURE=1` demands.

The only module below `io` that looks at the environment, once, at import; the import contract names it.
"""

from __future__ import annotations

import os

from tidelog.records import kernel, kernel_encode

if not os.environ.get("TIDELOG_PURE"):
    try:
        from tidelog.records import _kernel_c, _kernel_encode_c  # type: ignore[attr-defined]
    except ImportError:
        pass  # no compiler, or no Cython, when this was installed
    else:
        kernel, kernel_encode = _kernel_c, _kernel_encode_c

KERNEL_IS_COMPILED: bool = kernel.KERNEL_IS_COMPILED and kernel_encode.KERNEL_IS_COMPILED
"""False means that touching each record costs twenty times as much."""
