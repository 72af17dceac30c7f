"""The files of a checkpoint, wherever it is: on this machine as they are, elsewhere through Arrow, fsspec or Spark."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

from tidelog.base.errors import MissingExtraError
from tidelog.spark.offsets import CheckpointError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

R = TypeVar("R")

TEXT_LENGTH_MAX = 300
"""Of what a library says went wrong: some say all that they tried."""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")
_ALIASES = {"s3a": "s3", "s3n": "s3"}
"""What Hadoop calls them, and what Arrow does."""
_REMEDIES = {
    "s3": (
        "Credentials and region are those of this process (environment, profile or instance), not Spark's; an address "
        "of its own goes into the URI: s3://BUCKET/PATH?endpoint_override=HOST:PORT"
    ),
    "hdfs": ("Arrow needs libhdfs, JAVA_HOME and CLASSPATH for HDFS (`hadoop classpath --glob` prints the last)"),
}
_REMEDY = "Credentials are those of this process, not Spark's"


class CheckpointFiles(Protocol):
    """Reads what is below one directory. Paths are relative to it, parted by slashes."""

    def names(self, path: str) -> list[str]:
        """What a directory holds. Raises FileNotFoundError."""
        ...

    def text(self, path: str) -> str:
        """A file. Raises FileNotFoundError."""
        ...

    def has_nested(self, path: str) -> bool:
        """Whether one of a directory's own directories holds something. One that is not there holds nothing."""
        ...


class WritableFiles(CheckpointFiles, Protocol):
    """Writes as well. Directories come into being with the files in them."""

    def write(self, path: str, text: str) -> None:
        """A file, as a whole or not at all. It is on the disk, or at the service, when this returns."""
        ...

    def remove(self, path: str) -> None:
        """A file. Raises FileNotFoundError."""
        ...


class LocalFiles:
    """Implements `WritableFiles` for a path of this machine."""

    def __init__(self, root: str) -> None:
        self._root = root

    def names(self, path: str) -> list[str]:
        return os.listdir(os.path.join(self._root, path))

    def text(self, path: str) -> str:
        with open(os.path.join(self._root, path), encoding="utf-8") as file:
            return file.read()

    def has_nested(self, path: str) -> bool:
        return any(Path(self._root, path).glob("*/*"))

    def write(self, path: str, text: str) -> None:
        if not os.path.isdir(self._root):
            raise FileNotFoundError(f"there is no directory {self._root}")
        place = os.path.join(self._root, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(f"{place}.tmp", "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{place}.tmp", place)

    def remove(self, path: str) -> None:
        os.remove(os.path.join(self._root, path))


class RemoteFiles:
    """Implements `WritableFiles` for a file system of Arrow's."""

    def __init__(self, filesystem: FileSystem, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def names(self, path: str) -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._filesystem.get_file_info(FileSelector(self._at(path)))
        return [one.base_name for one in found]

    def text(self, path: str) -> str:
        with self._filesystem.open_input_stream(self._at(path)) as file:
            data: bytes = file.read()
        return data.decode()

    def has_nested(self, path: str) -> bool:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._at(path), allow_not_found=True, recursive=True)
        found = self._filesystem.get_file_info(selector)
        return any("/" in one.path.rpartition(f"/{path}/")[2] for one in found)

    def write(self, path: str, text: str) -> None:
        self._filesystem.create_dir(self._at(path.rpartition("/")[0]), recursive=True)
        with self._filesystem.open_output_stream(self._at(f"{path}.tmp")) as file:
            file.write(text.encode())
        self._filesystem.move(self._at(f"{path}.tmp"), self._at(path))

    def remove(self, path: str) -> None:
        self._filesystem.delete_file(self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class SparkFiles:
    """Implements `CheckpointFiles` with Spark's own readers: any file system that Spark knows, with its credentials.

    Each call is a small job. Directories within directories are not seen.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")

    def names(self, path: str) -> list[str]:
        if not path:  # only one file lies there
            self.text("metadata")
            return ["metadata"]
        rows = self._read(lambda: self._spark.read.format("binaryFile").load(f"{self._root}/{path}/*").select("path"))
        return [row.path.rpartition("/")[2] for row in rows]

    def text(self, path: str) -> str:
        rows = self._read(lambda: self._spark.read.text(f"{self._root}/{path}", wholetext=True))
        return "".join(row.value for row in rows)

    def has_nested(self, path: str) -> bool:
        files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            return bool(self._read(lambda: files.load(f"{self._root}/{path}").select("path").limit(1)))
        except FileNotFoundError:
            return False

    def _read(self, plan: Callable[[], Any]) -> list[Any]:
        from pyspark.errors import PySparkException

        # A client of Spark Connect has no gateway to a JVM, and may have no such package.
        gateway = sys.modules.get("py4j.protocol")
        of_gateway: tuple[type[Exception], ...] = () if gateway is None else (gateway.Py4JError,)
        try:
            rows: list[Any] = plan().collect()
        except PySparkException as error:
            if error.getCondition() in _NOT_FOUND:
                raise FileNotFoundError(self._root) from None
            raise OSError(str(error).partition("JVM stacktrace")[0]) from error
        except of_gateway as error:  # of what lies below Spark, such as Hadoop's file systems
            said = str(error).splitlines()
            raise OSError(next((line[2:] for line in said if line.startswith(": ")), said[0])) from error
        return rows


_NOT_FOUND = ("PATH_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST")


class FallbackFiles:
    """Implements `CheckpointFiles` with Spark's readers; where Spark knows no such place, with those of this process.

    Raises CheckpointError where neither reads it. It says what was the matter with each.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._root = root
        self._files: CheckpointFiles = SparkFiles(spark, root)
        self._has_fallen_back = False

    def names(self, path: str) -> list[str]:
        return self._read(lambda files: files.names(path))

    def text(self, path: str) -> str:
        return self._read(lambda files: files.text(path))

    def has_nested(self, path: str) -> bool:
        return self._read(lambda files: files.has_nested(path))

    def _read(self, work: Callable[[CheckpointFiles], R]) -> R:
        try:
            return work(self._files)
        except FileNotFoundError:
            raise
        except _file_errors() as error:
            if self._has_fallen_back:
                raise CheckpointError(f"{without_password(self._root)} cannot be read: {_in_a_line(error)}") from error
            of_spark = error
        refusals: tuple[type[Exception], ...] = (CheckpointError, *_file_errors())
        try:
            own = writable_files(self._root)
            found = work(own)
        except FileNotFoundError:
            raise
        except refusals as error:
            raise CheckpointError(
                f"{without_password(self._root)} can be read neither by Spark ({_in_a_line(of_spark)}) nor by this "
                f"process ({_in_a_line(error)})"
            ) from error
        self._files, self._has_fallen_back = own, True
        return found


def without_password(uri: str) -> str:
    """What may be shown of it: Arrow takes credentials within."""
    return re.sub(r"(://[^/:@]*):[^/@]*@", r"\1:...@", uri)


def _in_a_line(error: Exception) -> str:
    return without_password(" ".join(str(error).split()))[:TEXT_LENGTH_MAX]


def open_files(
    checkpoint: str, filesystem: FileSystem | None = None, spark: SparkSession | None = None
) -> CheckpointFiles:
    """The files of a checkpoint.

    Args:
        checkpoint: what `checkpointLocation` was: a path, or a URI such as file:, s3:, s3a:, hdfs:, gs:, abfss:.
        filesystem: of Arrow's, if the URI alone does not say all; `checkpoint` is a path in it then.
        spark: the session that reads the files.

    Raises:
        CheckpointError: nothing here can read such a URI. Names what could.
    """
    if filesystem is not None:
        return RemoteFiles(filesystem, checkpoint)
    if spark is not None:
        return SparkFiles(spark, checkpoint)
    return writable_files(checkpoint)


def writable_files(checkpoint: str) -> WritableFiles:
    """The files of a checkpoint that this process reaches by itself. Raises as `open_files`."""
    match = _SCHEME.match(checkpoint)
    if match is None:
        return LocalFiles(checkpoint)
    scheme = match[1].lower()
    rest = checkpoint[match.end() :]
    if scheme == "file":
        return LocalFiles(unquote(re.sub(r"^//[^/]*", "", rest)))
    return attempted(checkpoint, lambda: _open_remote(f"{_ALIASES.get(scheme, scheme)}:{rest}", scheme))


def _open_remote(uri: str, scheme: str) -> RemoteFiles:
    try:
        import pyarrow
        from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
    except ImportError:
        raise MissingExtraError(f"a checkpoint on {scheme}", "spark") from None
    try:
        return RemoteFiles(*FileSystem.from_uri(uri))
    except pyarrow.ArrowInvalid as error:  # a scheme that Arrow does not know
        try:
            import fsspec  # type: ignore[import-not-found, import-untyped, unused-ignore]

            found: Any = fsspec.core.url_to_fs(uri)
        except (ImportError, ValueError):
            raise error from None
        return RemoteFiles(PyFileSystem(FSSpecHandler(found[0])), found[1])


def attempted(checkpoint: str, work: Callable[[], R], *, is_read: bool = True) -> R:
    """Do `work`, and let what goes wrong say which checkpoint it was.

    Args:
        is_read: whether it reads; else it writes.

    Raises:
        FileNotFoundError: as `work` did: what that means, the caller knows.
        CheckpointError: anything else that has to do with files.
    """
    try:
        return work()
    except FileNotFoundError:
        raise
    except _file_errors() as error:
        text, checkpoint = _in_a_line(error), without_password(checkpoint)
        match = _SCHEME.match(checkpoint)
        scheme = "" if match is None else match[1].lower()
        remedy = _REMEDIES.get(_ALIASES.get(scheme, scheme), _REMEDY)
        if not is_read:
            raise CheckpointError(f"checkpoint {checkpoint} cannot be written: {text}. {remedy}") from error
        raise CheckpointError(
            f"checkpoint {checkpoint} cannot be read: {text}. {remedy}. `losses` also takes spark=, a session that "
            "reads it, and filesystem=, one of pyarrow.fs"
        ) from error


def _file_errors() -> tuple[type[Exception], ...]:
    """What may go wrong with files. Arrow's own errors are of kinds of their own."""
    arrow = sys.modules.get("pyarrow")
    of_arrow: tuple[type[Exception], ...] = () if arrow is None else (arrow.ArrowException,)
    return OSError, ValueError, NotImplementedError, *of_arrow
