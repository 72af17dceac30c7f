"""Where there is a C compiler, the compiled kernel must be the one that serves, built from the source that is here."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
from pathlib import Path

import pytest

from tidelog import records

SOURCES = Path(__file__).parents[2] / "src" / "tidelog" / "records"

with_a_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None,
    reason="no C compiler here: interpreted is right",
)


@with_a_compiler
@pytest.mark.skipif("TIDELOG_PURE" in os.environ, reason="TIDELOG_PURE asks for the interpreted kernel")
def test_the_compiled_kernel_serves() -> None:
    assert records.KERNEL_IS_COMPILED, "not built here: remove .venv/.ready and run make test"


@with_a_compiler
@pytest.mark.parametrize("name", sorted(path.stem for path in SOURCES.glob("kernel*.pxd")))
def test_it_was_built_from_this_source(name: str) -> None:
    built = importlib.import_module(f"tidelog.records._{name}_c")
    sources = [SOURCES / f"{name}.py", SOURCES / f"{name}.pxd"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    assert digest == built.KERNEL_SOURCE_HASH, "built from another source: remove .venv/.ready and run make test"
