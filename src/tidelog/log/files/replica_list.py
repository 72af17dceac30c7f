"""The replicas that lie in a log directory: the file `.tidelog_replicas`.

    0                                  the version
    2                                  the number of entries
    FUf3WpGqQ8yzVx5ERlZ2aw 0           topic id, partition
    FUf3WpGqQ8yzVx5ERlZ2aw 1 lost      its log lies there and lacks records, which is yet to be committed

An entry is synced before its replica first leads or fetches, and goes before its log does. So a replica that is listed,
and whose log lies nowhere, has lost it; one that is not listed never held a record. The metadata alone cannot tell the
two apart. Kafka has no counterpart, and takes every log that is absent for a new one.

A directory whose meta.properties does not say that there is such a list was last used by an older release, or by Kafka.
The next start lists what lies there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import PartitionIndex, TopicId, parse_uuid, uuid_text

REPLICA_LIST_FILE = ".tidelog_replicas"
REPLICA_LIST_VERSION = "0"
LOST = "lost"

ListedReplica = tuple[TopicId, PartitionIndex]


def entry_lines(replicas: Iterable[ListedReplica]) -> list[str]:
    """The lines of replicas that are not lost, sorted: who adds a few to many need not make all of them again."""
    return sorted(f"{uuid_text(topic_id)} {index}" for topic_id, index in replicas)


def format_replica_list(lines: Collection[str], found_lost: Collection[ListedReplica] = ()) -> bytes:
    """The file, of the lines of those that are not lost, and of those that are."""
    lost = [f"{line} {LOST}" for line in entry_lines(found_lost)]
    return "\n".join((REPLICA_LIST_VERSION, str(len(lines) + len(lost)), *lines, *lost, "")).encode()


def parse_replica_list(data: bytes, path: str) -> tuple[Set[ListedReplica], Set[ListedReplica]]:
    """The inverse of `format_replica_list`: all, and those that were found to be lost.

    Raises:
        CorruptLogError: nothing that it says counts.
    """
    version, count, *entries = data.decode(errors="replace").split("\n") if data.count(b"\n") > 1 else ("", "")
    if version != REPLICA_LIST_VERSION or entries[-1:] != [""] or count != str(len(entries) - 1):
        raise CorruptLogError(f"{path}: it is no list of replicas, or was cut short")
    try:
        found = {_parse_entry(entry.removesuffix(f" {LOST}")): entry.endswith(LOST) for entry in entries[:-1]}
    except ValueError as error:
        raise CorruptLogError(f"{path}: {error}") from None
    return found.keys(), {replica for replica, is_lost in found.items() if is_lost}


def _parse_entry(entry: str) -> ListedReplica:
    topic_id, _, index = entry.partition(" ")
    return TopicId(parse_uuid(topic_id)), PartitionIndex(int(index))
