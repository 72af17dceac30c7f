"""Compiled twins of modules: those that serve instead, if they were built from the source that is beside them.

One that was built from another source does not serve: after an update without a build, it would lack what its callers
expect, or do it as it was done before.

The only module below `io` that looks at the environment, once, at import; the import contract names it.
"""

from __future__ import annotations

import os
from binascii import crc32
from importlib import import_module
from types import ModuleType
from warnings import warn

REMEDY = "install tidelog again, or run make setup in a checkout"
STALE = (
    "the compiled {} was built from another source than the one beside it, so the interpreted one serves, and {}: "
    + REMEDY
)
BROKEN = "the compiled {} cannot be loaded ({}), so the interpreted one serves, and {}: " + REMEDY


def compiled_twins(package: str, directory: str, names: tuple[str, ...], what: str, loss: str) -> list[ModuleType]:
    """The compiled twins of modules of a package, `_kernel_c` for `kernel`; none if one of them is not to serve.

    There are none without a compiler, or Cython, when this was installed, and none are wanted with `TIDELOG_PURE=1`.

    Args:
        directory: of the package, with a separator at its end.
        what: they are together, for a warning.
        loss: what it costs that they do not serve.
    """
    if os.environ.get("TIDELOG_PURE"):
        return []
    wanted = [f"{package}._{name}_c" for name in names]
    try:
        built = [import_module(one) for one in wanted]
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name not in wanted:
            warn(BROKEN.format(what, error, loss), RuntimeWarning, stacklevel=2)
        return []
    hashes = [getattr(one, "KERNEL_SOURCE_HASH", "") for one in built]
    if not all(_is_current(known, f"{directory}{name}") for known, name in zip(hashes, names, strict=True)):
        warn(STALE.format(what, loss), RuntimeWarning, stacklevel=2)
        return []
    return built


def _is_current(built_from: str, path: str) -> bool:
    """Whether a twin was built from the source beside it, or there is none to compare it with."""
    for suffixes in (("pyx",), ("py", "pxd")):
        checksum = 0
        try:
            for suffix in suffixes:
                with open(f"{path}.{suffix}", "rb") as source:
                    checksum = crc32(source.read(), checksum)
        except OSError:
            continue
        return built_from == f"{checksum:08x}"
    return True
