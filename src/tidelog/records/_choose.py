"""Which kernel serves: the compiled one if it was built, or the interpreted one, as `TIDELOG_PURE=1` demands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.compiled import compiled_twins

if TYPE_CHECKING:
    from tidelog.records import kernel, kernel_clean, kernel_encode, kernel_keys
else:
    compiled = compiled_twins(
        "tidelog.records",
        __file__.removesuffix("_choose.py"),
        ("kernel", "kernel_clean", "kernel_encode", "kernel_keys"),
        "kernel",
        "each record costs twenty times as much",
    )
    if compiled:
        kernel, kernel_clean, kernel_encode, kernel_keys = compiled
    else:
        from tidelog.records import kernel, kernel_clean, kernel_encode, kernel_keys

__all__ = ["KERNEL_IS_COMPILED", "kernel", "kernel_clean", "kernel_encode", "kernel_keys"]

KERNEL_IS_COMPILED: bool = all(each.KERNEL_IS_COMPILED for each in (kernel, kernel_clean, kernel_encode, kernel_keys))
"""False means that touching each record costs twenty times as much."""
