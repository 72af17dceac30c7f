"""What a query's checkpoint says of a batch, read from outside the query: which query it is, and what it reads.

Spark writes `offsets/<batch id>` before the batch runs, so a sink that reads it learns the same at every replay. The
planner's own state is in another process, and a replay does not have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.spark.checkpoint_files import CheckpointFiles, FallbackFiles, LocalFiles, without_password
from tidelog.spark.healing_errors import HealingError
from tidelog.spark.offsets import KEYS, CheckpointError, StreamOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")


class BatchOffsets(NamedTuple):
    """Where one batch of one source begins and ends: `start` is the end of the batch before."""

    start: StreamOffset
    end: StreamOffset


class WriteAheadLog:
    """The parts of a checkpoint that say what is read. Never writes.

    A path on this machine is read directly. Any other (`s3a://…`, `hdfs://…`, or one that only Spark's default file
    system has) is read by small Spark jobs, or, if Spark knows no such place, by this process with Arrow.

    Args:
        path: the query's `checkpointLocation`.
        spark: the session; None if the path is known to be on this machine.

    Attributes:
        path: as it may be shown, without a password.
    """

    def __init__(self, path: str, spark: SparkSession | None) -> None:
        path = path.rstrip("/")
        self.path = without_password(path)
        folder = local_folder(path)
        self._files: CheckpointFiles = (
            LocalFiles(str(folder or path)) if folder is not None or spark is None else FallbackFiles(spark, path)
        )

    def query_id(self) -> str:
        """The id that Spark gave to the query when it made the checkpoint.

        Raises:
            HealingError: CHECKPOINT_UNREADABLE: there is no checkpoint.
        """
        text = self._read("metadata")
        try:
            return str(json.loads(text or "")["id"])
        except (ValueError, KeyError, TypeError):
            raise self._unreadable("metadata") from None

    def batch(self, batch_id: int) -> list[BatchOffsets]:
        """What a batch reads, of each source of this kind that has something new in it.

        Raises:
            HealingError: CHECKPOINT_UNREADABLE: the batch is not there, or reads no topic by this source.
            CheckpointError: an offset is not one that we wrote.
        """
        ends = self._offsets(batch_id)
        if not ends:
            raise HealingError(
                "CHECKPOINT_UNREADABLE",
                f"{self.path}: batch {batch_id} reads nothing by format tidelog, so its rows cannot be healed",
            )
        # A source with nothing new repeats its offset, with what it said of losses: that was dealt with before.
        starts = self._offsets(batch_id - 1) if batch_id > 0 else {}
        return [
            BatchOffsets(StreamOffset.from_json(starts.get(source, {"v": 1})), StreamOffset.from_json(end))
            for source, end in ends.items()
            if end != starts.get(source)
        ]

    def ends(self, batch_id: int) -> list[StreamOffset]:
        """Where all sources of this kind stand after a batch."""
        return [StreamOffset.from_json(end) for end in self._offsets(batch_id).values()]

    def has_state(self) -> bool:
        """Whether the query holds state: of an aggregate, a deduplication or a join."""
        return self._reached(lambda: self._files.has_nested("state"))

    def _offsets(self, batch_id: int) -> dict[int, dict[str, object]]:
        text = self._read(f"offsets/{batch_id}")
        if text is None:
            raise self._unreadable(f"offsets/{batch_id}")
        return parse_offsets(text)

    def _read(self, name: str) -> str | None:
        try:
            return self._reached(lambda: self._files.text(name))
        except (FileNotFoundError, NotADirectoryError):
            return None

    @staticmethod
    def _reached(read: Callable[[], R]) -> R:
        try:
            return read()
        except CheckpointError as error:
            raise HealingError("CHECKPOINT_UNREADABLE", str(error)) from None

    def _unreadable(self, name: str) -> HealingError:
        return HealingError(
            "CHECKPOINT_UNREADABLE",
            f"{self.path} holds no readable {name}: is it the checkpointLocation of the query that writes the table?",
        )


def local_folder(path: str) -> Path | None:
    """The folder on this machine, or None: it is elsewhere."""
    if path.startswith("file:"):
        return Path(re.sub(r"^file:(//(?=/))?", "", path))
    if re.match(r"^[A-Za-z][A-Za-z0-9+.-]+:", path):
        return None
    folder = Path(path)
    return folder if folder.exists() else None


def parse_offsets(text: str) -> dict[int, dict[str, object]]:
    """The offsets of this kind in a file of `offsets/`, by the number of the source.

    The first line is the version of the file, the second Spark's own; then comes a line for each source.
    """
    found = {}
    for number, line in enumerate(text.splitlines()[2:]):
        try:
            offset = json.loads(line[line.find("{") :])
        except ValueError:
            continue
        if isinstance(offset, dict) and "v" in offset and offset.keys() <= KEYS:
            found[number] = offset
    return found
