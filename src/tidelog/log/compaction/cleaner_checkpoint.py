"""Up to where the logs of a directory were compacted: the file `cleaner-offset-checkpoint`, as Kafka's tools read it.

It is where the next compaction begins, and no more than that: without it the next one does more than it would have to.
Entries outlive their topics; a log that was never compacted says so itself (cleaner_mark.py).

Kafka: `LogCleanerManager`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Disk
from tidelog.log.files.checkpoint import format_offsets, parse_offsets

CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"


def read_cleaner_offsets(disk: Disk, directory: str) -> dict[TopicPartition, Offset]:
    """The first dirty offset of each log that was compacted; nothing if the file is missing or cannot be read."""
    path = f"{directory}/{CLEANER_OFFSET_FILE}"
    if not disk.exists(path):
        return {}
    try:
        return parse_offsets(disk.read_bytes(path), path)
    except CorruptLogError:
        return {}


def write_cleaner_offsets(disk: Disk, directory: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Replace the file. Raises DiskError: it is as it was."""
    disk.write_atomically(f"{directory}/{CLEANER_OFFSET_FILE}", format_offsets(offsets))
