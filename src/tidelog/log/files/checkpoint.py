"""The small text files beside the logs, as Kafka's own tools read and write them.

    *-offset-checkpoint      `0`, the number of entries, then `topic partition offset` lines
    partition.metadata       `version: 0`, `topic_id: ` and 22 characters of base64
    meta.properties          `version=1`, `cluster.id=`, `node.id=`, `directory.id=`, `tidelog.replica.list=`,
                             `tidelog.quorum.state=`
    .kafka_cleanshutdown     {"version":0,"brokerEpoch":12}; empty when written by Kafka before 3.7
    .tidelog_stopped         the same, renamed by the next start
    .tidelog_incarnation     {"version":1,"number":3,"brokerEpoch":12,"bootId":"0b6f..."}: see `incarnation.py`

(`records.lineage` has the format of leader-epoch-checkpoint.) Every parser raises `CorruptLogError` naming the file
and the line for what was never written so.

Kafka: `CheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`, `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ClusterId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
    parse_uuid,
    uuid_text,
)

OFFSET_CHECKPOINT_VERSION = 0
PARTITION_METADATA_VERSION = 0
META_PROPERTIES_VERSION = 1
REPLICA_LIST_KEY = "tidelog.replica.list"
QUORUM_STATE_KEY = "tidelog.quorum.state"
CLEAN_SHUTDOWN_VERSION = 0


def format_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """An offset checkpoint, sorted by topic and partition."""
    lines = [str(OFFSET_CHECKPOINT_VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    """The inverse of `format_offsets`. An entry that comes twice makes the file corrupt."""
    lines = _text(data, path).splitlines()
    if not lines or lines[0] != str(OFFSET_CHECKPOINT_VERSION):
        raise _corrupt(path, 1, f"version {OFFSET_CHECKPOINT_VERSION} is expected")
    if len(lines) < 2 or not _is_number(lines[1]):
        raise _corrupt(path, 2, "the number of entries is expected")
    if len(lines) - 2 != int(lines[1]):
        raise _corrupt(path, 2, f"{lines[1]} entries are announced, {len(lines) - 2} follow")
    offsets: dict[TopicPartition, Offset] = {}
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != 3 or not _is_number(fields[1]) or not _is_number(fields[2]):
            raise _corrupt(path, number, f"`topic partition offset` is expected, not {line!r}")
        topic_partition = TopicPartition(fields[0], PartitionIndex(int(fields[1])))
        if topic_partition in offsets:
            raise _corrupt(path, number, f"{topic_partition} comes twice")
        offsets[topic_partition] = Offset(int(fields[2]))
    return offsets


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """The file that ties a directory to a topic id, so that a topic created anew never takes over old records."""
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes, path: str) -> TopicId:
    """The topic id that the directory belongs to."""
    lines = _text(data, path).splitlines()
    version, topic_id = (_value(lines, index, key, path) for index, key in enumerate(("version", "topic_id")))
    if version != str(PARTITION_METADATA_VERSION):
        raise _corrupt(path, 1, f"version {PARTITION_METADATA_VERSION} is expected, not {version!r}")
    try:
        return TopicId(parse_uuid(topic_id))
    except ValueError as error:
        raise _corrupt(path, 2, str(error)) from None


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose log directory this is: meta.properties."""

    cluster_id: ClusterId
    node_id: BrokerId
    directory_id: str
    """22 characters of base64, drawn when the directory was formatted."""
    has_replica_list: bool = False
    """Whether the directory lists its replicas (`log.replica_list`): without its list it is a lost directory then."""
    has_quorum_state: bool = False
    """Whether the directory of the metadata log has a `quorum-state`: without it what the node voted is lost then."""


def format_meta_properties(properties: MetaProperties) -> bytes:
    """The file of a directory that has been formatted."""
    return (
        f"#\n"
        f"cluster.id={_escape(properties.cluster_id)}\n"
        f"directory.id={_escape(properties.directory_id)}\n"
        f"node.id={properties.node_id}\n"
        f"{f'{REPLICA_LIST_KEY}=1{chr(10)}' if properties.has_replica_list else ''}"
        f"{f'{QUORUM_STATE_KEY}=1{chr(10)}' if properties.has_quorum_state else ''}"
        f"version={META_PROPERTIES_VERSION}\n"
    ).encode()


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read version 1, in any order of keys; keys that mean nothing here are skipped.

    Raises:
        CorruptLogError: also for the versions of ZooKeeper's days (0) and of the future, saying so.
    """
    values: dict[str, str] = {}
    for line in _text(data, path).splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip().replace("\\", "")
    version = values.get("version")
    if version != str(META_PROPERTIES_VERSION):
        raise CorruptLogError(
            f"{path}: version {META_PROPERTIES_VERSION} is expected, not {version}: "
            "the directory was formatted by another release; use that one, or an empty directory"
        )
    missing = [key for key in ("cluster.id", "node.id") if key not in values]
    if missing or not _is_number(values["node.id"]):
        raise CorruptLogError(f"{path}: {missing[0] if missing else 'a numeric node.id'} is missing")
    return MetaProperties(
        ClusterId(values["cluster.id"]),
        BrokerId(int(values["node.id"])),
        values.get("directory.id", ""),
        values.get(REPLICA_LIST_KEY) == "1",
        values.get(QUORUM_STATE_KEY) == "1",
    )


def format_clean_shutdown(broker_epoch: BrokerEpoch | None) -> bytes:
    """The marker of a clean stop. The epoch lets the broker prove at its next registration that it lost nothing."""
    return b'{"version":%d,"brokerEpoch":%d}' % (CLEAN_SHUTDOWN_VERSION, -1 if broker_epoch is None else broker_epoch)


def parse_clean_shutdown(data: bytes) -> BrokerEpoch | None:
    """The epoch in the marker; None when it holds none that can be read. That the file is there is what counts."""
    try:
        content = json.loads(data)
        epoch = content["brokerEpoch"] if content["version"] == CLEAN_SHUTDOWN_VERSION else -1
    except (ValueError, TypeError, KeyError):
        return None
    return BrokerEpoch(epoch) if isinstance(epoch, int) and epoch >= 0 else None


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptLogError(f"{path}: byte {error.start} is not text") from None


def _value(lines: list[str], index: int, key: str, path: str) -> str:
    found, _, value = lines[index].partition(":") if index < len(lines) else ("", "", "")
    if found != key:
        raise _corrupt(path, index + 1, f"`{key}: …` is expected")
    return value.strip()


def _corrupt(path: str, line: int, why: str) -> CorruptLogError:
    return CorruptLogError(f"{path}: line {line}: {why}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _escape(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\=:#! " else letter for letter in text)
