"""Programs in Java, compiled against Apache Kafka once for all runs. A JVM that is given a source compiles it anew."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from support.clients.kafka_peer import KAFKA_JARS

__all__ = ["compiled"]

COMPILED = KAFKA_JARS / "compiled"
"""Goes with the jars when `make peers` fetches others."""
COMPILE_SECONDS_MAX = 120.0
COMMAND = [
    "javac",
    "-J-XX:+UseSerialGC",
    "-J-XX:TieredStopAtLevel=1",
    "-Xlint:all,-path,-classfile",
    "-Werror",
    "-cp",
    f"{KAFKA_JARS}/*",
]


def compiled(*sources: Path) -> Path:
    """The directory with the classes of these sources. Compiles them unless some run did so already.

    Raises:
        AssertionError: the compiler refuses or warns; carries what it says.
    """
    digest = sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = COMPILED / f"{sources[0].stem}-{digest}"
    if not classes.exists():
        COMPILED.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=COMPILED, ignore_cleanup_errors=True) as fresh:
            command = [*COMMAND, "-d", fresh, *map(str, sources)]
            ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX)
            assert ran.returncode == 0, ran.stderr
            with suppress(OSError):  # another process of this run was first
                os.rename(fresh, classes)
    return classes
