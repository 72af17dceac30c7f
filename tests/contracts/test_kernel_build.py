"""Where there is a C compiler, the compiled kernel must be the one that serves, built from the source that is here."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from binascii import crc32
from pathlib import Path

import pytest

from tidelog import records
from tidelog.wire._choose import CompiledCodec

SOURCES = Path(__file__).parents[2] / "src" / "tidelog" / "records"
CODEC = SOURCES.parent / "wire" / "kernel_codec.pyx"

with_a_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None,
    reason="no C compiler here: interpreted is right",
)


@with_a_compiler
@pytest.mark.skipif("TIDELOG_PURE" in os.environ, reason="TIDELOG_PURE asks for the interpreted kernel")
def test_the_compiled_kernel_serves() -> None:
    assert records.KERNEL_IS_COMPILED, "not built here: remove .venv/.ready and run make test"
    assert CompiledCodec is not None, "not built here: remove .venv/.ready and run make test"


@with_a_compiler
@pytest.mark.parametrize("name", sorted(path.stem for path in SOURCES.glob("kernel*.pxd")))
def test_it_was_built_from_this_source(name: str) -> None:
    built = importlib.import_module(f"tidelog.records._{name}_c")
    sources = [SOURCES / f"{name}.py", SOURCES / f"{name}.pxd"]
    checksum = crc32(b"".join(path.read_bytes() for path in sources))
    assert f"{checksum:08x}" == built.KERNEL_SOURCE_HASH, "from another source: remove .venv/.ready and run make test"


@with_a_compiler
def test_so_was_the_codec() -> None:
    built = importlib.import_module("tidelog.wire._kernel_codec_c")
    assert f"{crc32(CODEC.read_bytes()):08x}" == built.KERNEL_SOURCE_HASH, "remove .venv/.ready and run make test"


@with_a_compiler
@pytest.mark.parametrize("package", ["records", "wire"])
def test_one_that_cannot_be_loaded_is_told_of(tmp_path: Path, package: str) -> None:
    """As one that needs a newer C library, or a name that is gone: what serves instead is many times as slow."""
    shutil.copytree(SOURCES.parent, tmp_path / "tidelog", ignore=shutil.ignore_patterns("__pycache__"))
    for twin in (tmp_path / "tidelog" / package).glob("*.so"):
        twin.write_bytes(b"no library")
    environment = {key: value for key, value in os.environ.items() if key != "TIDELOG_PURE"}
    environment["PYTHONPATH"] = str(tmp_path)
    program = "from tidelog import records, wire; from tidelog.wire._choose import CompiledCodec; "
    program += "print(records.KERNEL_IS_COMPILED, CompiledCodec is not None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [str(package != "records"), str(package != "wire")]
    what = {"records": "kernel", "wire": "codec"}[package]
    assert f"RuntimeWarning: the compiled {what} cannot be loaded (" in done.stderr


@with_a_compiler
@pytest.mark.parametrize("name", ["kernel.py", "kernel_keys.pxd"])
def test_one_that_was_built_from_another_source_does_not_serve(tmp_path: Path, name: str) -> None:
    package = tmp_path / "tidelog"
    shutil.copytree(SOURCES.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    program = "from tidelog import records, wire; print(records.KERNEL_IS_COMPILED)"
    environment = {key: value for key, value in os.environ.items() if key != "TIDELOG_PURE"}
    environment["PYTHONPATH"] = str(tmp_path)

    def run() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout.strip(), done.stderr

    assert run() == ("True", "")
    with (package / "records" / name).open("a") as source:
        source.write("# another version\n")
    is_compiled, told = run()
    assert is_compiled == "False"
    assert "RuntimeWarning: the compiled kernel was built from another source than the one beside it" in told
    with (package / "wire" / CODEC.name).open("a") as source:
        source.write("# another version\n")
    assert "RuntimeWarning: the compiled codec was built from another source than the one beside it" in run()[1]
    (package / "wire" / CODEC.name).unlink()
    (package / "records" / name).unlink()  # an installation without sources has nothing to compare with
    assert name.endswith(".py") or run() == ("True", "")
