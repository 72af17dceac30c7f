"""What a checkpoint of Spark says: which batches are planned and committed, where its sources stand, what state it has.

    metadata                 the query's id
    offsets/N                where each source ends in batch N: written before the batch runs
    commits/N                that batch N is done
    state/OPERATOR/…         what an aggregate, a deduplication or a join has counted

The files are Spark's: `offsets/N` has a version, a line about the batch, and a line for each source (in version 2
with its name and a colon before). Spark keeps the newest hundred batches (`spark.sql.streaming.minBatchesToRetain`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.spark.checkpoint_files import attempted, open_files, without_password
from tidelog.spark.offsets import CheckpointError, StreamOffset

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

TIDELOG = "tidelog"
KAFKA = "kafka"
OTHER = "other"

_WITHOUT_OFFSET = "-"
_OPERATORS = {
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "globalLimit": "limit",
    "sessionWindowStateStoreSaveExec": "aggregate over session windows",
    "stateStoreSave": "aggregate",
    "symmetricHashJoin": "join of two streams",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPySparkExec": "transformWithState",
}
"""Spark's names of the operators that keep state, and what a user calls them."""


class SourceOffset(NamedTuple):
    """Where one source of a query ends in a batch.

    Attributes:
        source: its place among the query's sources, from 0 on.
        connector: `tidelog`, `kafka` (Spark's own) or `other`.
        stream: what ours wrote; None for others.
        offsets: by partition, of ours and of Spark's Kafka connector; empty for others.
    """

    source: int
    connector: str
    stream: StreamOffset | None
    offsets: Mapping[TopicPartition, int]

    def starting_offsets(self) -> dict[str, dict[str, int]]:
        """As the option `startingOffsets` of either connector has it."""
        topics: dict[str, dict[str, int]] = {}
        for partition, offset in sorted(self.offsets.items()):
            topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
        return topics


class Checkpoint:
    """Reads one checkpoint. Nothing is kept: each call looks again.

    Args:
        location: what the query's `checkpointLocation` is.
        filesystem: as in `open_files`.
        spark: likewise. It does not see what keeps state.

    Attributes:
        location: as it may be shown, without a password.
    """

    def __init__(self, location: str, filesystem: FileSystem | None = None, spark: SparkSession | None = None) -> None:
        self.location = without_password(location)
        self._files = open_files(location, filesystem, spark)

    def planned(self) -> list[int]:
        """The batches of which is written down where they end.

        Raises:
            CheckpointError: there is no checkpoint.
        """
        found = self._numbers("offsets")
        if found is None:
            if "metadata" in (self._names("") or ()):
                return []  # a query that has not planned yet
            raise CheckpointError(
                f"there is no checkpoint at {self.location}: a directory with offsets/ and metadata is expected, as "
                "checkpointLocation names it. Is it a path that this machine can see?"
            )
        return found

    def committed(self) -> list[int]:
        """The batches that are done."""
        return self._numbers("commits") or []

    def sources(self, batch_id: int) -> list[SourceOffset]:
        """Where the sources end in a batch.

        Raises:
            FileNotFoundError: Spark has written no such batch down, or has removed it since.
            CheckpointError: the file is none of Spark's, or of a version that is not known here.
        """
        place = f"{self.location}/offsets/{batch_id}"
        lines = attempted(self.location, lambda: self._files.text(f"offsets/{batch_id}")).splitlines()
        version = lines[0].strip() if lines else ""
        if version == "v1":
            texts = lines[2:]
        elif version == "v2":
            texts = [line.partition(":")[2] for line in lines[2:]]
        else:
            raise CheckpointError(
                f"{place} begins with {version[:40]!r}; v1 or v2 is expected: it was not written by Spark, or by a "
                "later one than is known here"
            )
        return [_source_offset(number, text, place) for number, text in enumerate(texts)]

    def query_id(self) -> str | None:
        """The id that the query keeps over its restarts."""
        with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            return str(json.loads(attempted(self.location, lambda: self._files.text("metadata")))["id"])
        return None

    def operators(self) -> list[str]:
        """What keeps state, in a user's words: `aggregate (state/0)`."""
        return [f"{self._operator(number)} (state/{number})" for number in self._numbers("state") or []]

    def _operator(self, number: int) -> str:
        try:
            text = attempted(self.location, lambda: self._files.text(f"state/{number}/_metadata/metadata"))
            name = str(json.loads(text.splitlines()[-1])["operatorInfo"]["operatorName"])
        except (FileNotFoundError, ValueError, TypeError, KeyError, IndexError):
            return "an operator"
        return _OPERATORS.get(name, name)

    def _numbers(self, folder: str) -> list[int] | None:
        """The numbers among the names; None if there is no such folder."""
        names = self._names(folder)
        return None if names is None else sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def _names(self, folder: str) -> list[str] | None:
        try:
            return attempted(self.location, lambda: self._files.names(folder))
        except FileNotFoundError:
            return None


def _source_offset(number: int, text: str, place: str) -> SourceOffset:
    if text.strip() == _WITHOUT_OFFSET:
        return SourceOffset(number, OTHER, None, {})
    try:
        parsed = json.loads(text)
    except ValueError:
        return SourceOffset(number, OTHER, None, {})
    if isinstance(parsed, dict) and isinstance(parsed.get("v"), int):
        try:
            stream = StreamOffset.from_json(parsed)
        except CheckpointError as error:
            raise CheckpointError(f"{place}: {error}") from None
        return SourceOffset(number, TIDELOG, stream, {key: at.offset for key, at in stream.positions.items()})
    offsets = _kafka_offsets(parsed)
    return SourceOffset(number, OTHER if offsets is None else KAFKA, None, offsets or {})


def _kafka_offsets(parsed: object) -> dict[TopicPartition, int] | None:
    """What Spark's Kafka connector wrote: `{"t": {"0": 23}}`; None if it is not that."""
    if not isinstance(parsed, dict) or not parsed:
        return None
    offsets = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not partition.isdigit() or not isinstance(offset, int) or isinstance(offset, bool):
                return None
            offsets[TopicPartition(topic, PartitionIndex(int(partition)))] = offset
    return offsets
