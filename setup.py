"""Builds the compiled kernels; everything else about the package is in pyproject.toml.

`tidelog.records` has hot loops in plain Python files (kernel.py, kernel_encode.py, kernel_keys.py, kernel_clean.py),
whose C types stand in a pxd beside each. They run as they are. Where there is Cython and a C compiler, a copy of each
is compiled too, as a module of another name (_kernel_c and so on): a module beside its own shared library could no
longer be chosen. `tidelog.wire` has one in Cython (kernel_codec.pyx), which does what the generated codecs do without
it. The copies are made in build/, and carry the CRC-32 of what they were made of, so that a stale one is found out when
it is imported.

It is optional. Without a compiler or Cython the installation succeeds, and the interpreted kernels serve.

Environment:
    TIDELOG_BUILD_PURE=1            do not compile anything
    TIDELOG_BUILD_BOUNDSCHECK=1     let Cython check every index too: slower, for `tests/fuzz/fuzz_walker.py`
"""

import os
import sys
from binascii import crc32
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
KERNELS = (
    "records/kernel",
    "records/kernel_encode",
    "records/kernel_keys",
    "records/kernel_clean",
    "wire/kernel_codec",
)
SOURCES = Path("src/tidelog")
COPIES_ROOT = Path("build/kernel")
COPIES = COPIES_ROOT / "tidelog"


def copy_kernel(package: str, name: str) -> str:
    """Write the copy that is compiled, and its pxd. Returns its path, relative to this file as setuptools wants it."""
    suffixes = ("pyx",) if (HERE / SOURCES / package / f"{name}.pyx").exists() else ("py", "pxd")
    checksum = 0
    (HERE / COPIES / package).mkdir(parents=True, exist_ok=True)
    for suffix in suffixes:
        source = (HERE / SOURCES / package / f"{name}.{suffix}").read_bytes()
        checksum = crc32(source, checksum)
        (HERE / COPIES / package / f"_{name}_c.{suffix}").write_bytes(source)
    copy = COPIES / package / f"_{name}_c.{suffixes[0]}"
    with (HERE / copy).open("a") as file:
        file.write(f'\n\nKERNEL_SOURCE_HASH = "{checksum:08x}"\n')
    return str(copy)


def extensions() -> list[Extension]:
    if os.environ.get("TIDELOG_BUILD_PURE"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("tidelog: no Cython, so the kernels stay interpreted", file=sys.stderr)
        return []
    directives = {
        "language_level": "3",
        "annotation_typing": False,  # the types for C are in the pxd; the annotations are for mypy
        "boundscheck": bool(os.environ.get("TIDELOG_BUILD_BOUNDSCHECK")),
        "initializedcheck": False,
        "wraparound": False,
    }
    compile_args = [] if os.name == "nt" else ["-O3", "-g0", "-fwrapv"]
    modules = [
        Extension(f"tidelog.{package}._{name}_c", [copy_kernel(package, name)], extra_compile_args=compile_args)
        for package, name in (kernel.split("/") for kernel in KERNELS)
    ]
    modules = cythonize(
        modules,
        include_path=[str(COPIES_ROOT)],  # or it would not find the pxd, and compile without types, silently
        compiler_directives=directives,
        force=True,
        quiet=True,
    )
    for module in modules:
        module.optional = True  # which cythonize does not carry over
    return modules


setup(ext_modules=extensions())
