"""The records of `__consumer_offsets`, in Kafka's own formats, so that its tools read our log.

```
 key    version │ …            0, 1: an offset; 2: a group; others are of protocols not served, and skipped
 value  version │ …            none at all: a tombstone
         int16
```

Offsets are most of what such a log holds: their usual forms (key 1, values 3 and 4) are packed by hand, and a committed
offset is kept as the bytes of its value. Everything else is declared.

Kafka: `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

import struct as packing
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import CorruptLogError
from tidelog.journal.versioned_records import decode_value, encode_value
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, bytes_, field, int32, int64, message, string, struct, uuid

OFFSET_KEY_VERSIONS = (b"\x00\x00", b"\x00\x01")
GROUP_KEY_VERSION = b"\x00\x02"
OFFSET_KEY_VERSION_WRITTEN = 1
OFFSET_VALUE_VERSION_WRITTEN = 4
OFFSET_VALUE_VERSION_WITHOUT_ID = 3
OFFSET_VALUE_VERSION_EXPIRING = 1
GROUP_VALUE_VERSION_WRITTEN = 3
NAME_SIZE_BYTES_MAX = 32_767

_VERSION = Struct(">h")
_HEAD = Struct(">hh")
_PARTITION = Struct(">i")
_BARE_OFFSET = Struct(">hqihq")  # with empty metadata
_OFFSET_BEFORE_METADATA = Struct(">hqih")
_TIMESTAMP = Struct(">q")
_BARE_OFFSET_WITH_ID = Struct(">hqiBq3s16s")  # likewise; version 4 is flexible: the id is its only tagged field
_OFFSET_SIZE_BYTES = _BARE_OFFSET.size
_OFFSET_WITH_ID_SIZE_BYTES = _BARE_OFFSET_WITH_ID.size
_METADATA_AT = _OFFSET_BEFORE_METADATA.size
_VERSION_3 = b"\x00\x03"
_VERSION_4 = b"\x00\x04"
_EMPTY = 1
"""The length of an empty string in a flexible version."""
_TAGS_OF_ID = b"\x01\x00\x10"
"""One tagged field, number 0, of 16 bytes."""
_TAGS_AT = 23


@message(api_key=0, versions="0-4", flexible="4+", kind="data")
class OffsetCommitValue:
    """How far a group has read one partition."""

    offset: int = field(int64, doc="The next offset to read.")
    leader_epoch: int = field(
        int32, versions="3+", default=-1, ignorable=True, doc="Of the last record read, or -1 (KIP-320)."
    )
    metadata: str = field(string, default="", doc="Whatever the client liked.")
    commit_timestamp: int = field(int64, doc="When it was committed.")
    expire_timestamp: int = field(
        int64,
        versions="1",
        default=-1,
        ignorable=True,
        doc="When it is to be forgotten, or -1: as the broker's settings say.",
    )
    topic_id: UUID = field(
        uuid,
        versions="4+",
        tag=0,
        tagged="4+",
        default=ZERO_UUID,
        ignorable=True,
        doc="The topic's id, if it was known.",
    )


@struct(kw_only=True)
class MemberMetadata:
    """A member of a group."""

    member_id: str = field(string, doc="Its id.")
    group_instance_id: str | None = field(
        string, versions="3+", nullable="3+", default=None, ignorable=True, doc="The static member's name (KIP-345)."
    )
    client_id: str = field(string, doc="As it called itself when it joined.")
    client_host: str = field(string, doc="From where it joined.")
    rebalance_timeout: int = field(int32, versions="1+", default=-1, ignorable=True, doc="In ms; -1: its session's.")
    session_timeout: int = field(int32, doc="In ms.")
    subscription: bytes = field(bytes_, doc="What it wants, in the protocol chosen.")
    assignment: bytes = field(bytes_, doc="What it got.")


@message(api_key=2, versions="0-4", flexible="4+", kind="data")
class GroupMetadataValue:
    """A classic group, as its leader's assignment left it."""

    protocol_type: str = field(string, doc='"consumer", or what else its members agreed on.')
    generation: int = field(int32, doc="Its generation.")
    protocol: str | None = field(string, nullable="0+", default=None, doc="The protocol chosen.")
    leader: str | None = field(string, nullable="0+", default=None, doc="Its leader.")
    current_state_timestamp: int = field(
        int64, versions="2+", default=-1, ignorable=True, doc="Since when it is as it is, or -1."
    )
    members: list[MemberMetadata] = field(array(MemberMetadata), default_factory=list, doc="Its members.")


class OffsetAndMetadata(NamedTuple):
    """A committed offset, as it is told.

    Attributes:
        leader_epoch: of the last record read; None if it is not known.
        commit_timestamp_ms: of the coordinator's clock.
        expire_timestamp_ms: when it is to go, if its client said so (before OffsetCommit 5).
        topic_id: of the topic that it was committed for; zero if it is not known.
    """

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    topic_id: UUID = ZERO_UUID

    def is_for(self, topic_id: UUID) -> bool:
        """Whether it may count for a topic. A topic that is deleted and made anew has the same name, and another id."""
        return self.topic_id == topic_id or ZERO_UUID in (self.topic_id, topic_id)


# Keys.


def offset_key_head(group_id: str, topic: str) -> bytes:
    """What the keys of all offsets of a group in a topic begin with."""
    group_name, topic_name = group_id.encode(), topic.encode()
    return b"".join(
        (
            _HEAD.pack(OFFSET_KEY_VERSION_WRITTEN, len(group_name)),
            group_name,
            _VERSION.pack(len(topic_name)),
            topic_name,
        )
    )


pack_partition = _PARTITION.pack
"""What follows the head in the key of an offset."""


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of one offset."""
    return offset_key_head(group_id, topic) + pack_partition(partition)


def group_key(group_id: str) -> bytes:
    """The key of a group."""
    name = group_id.encode()
    return _HEAD.pack(2, len(name)) + name


def split_offset_key(key: bytes) -> tuple[bytes, int]:
    """The names in the key of an offset, for `names_in`, and the partition."""
    return key[2:-4], int.from_bytes(key[-4:], "big", signed=True)


def names_in(names: bytes) -> tuple[str, ...]:
    """The strings, each behind its length, that fill `names`.

    Raises:
        CorruptLogError: they do not.
    """
    found = []
    position = 0
    try:
        while position < len(names):
            (size,) = _VERSION.unpack_from(names, position)
            position += 2 + size
            if size < 0 or position > len(names):
                raise CorruptLogError(f"a name of {size} bytes does not fit into the {len(names)} of its key")
            found.append(names[position - size : position].decode())
    except (packing.error, UnicodeDecodeError) as error:
        raise CorruptLogError(f"the names in a key cannot be read: {error}") from error
    return tuple(found)


# Values.


def encode_offset(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, topic_id: UUID = ZERO_UUID
) -> bytes:
    """The value of an offset; -1 for a leader epoch, and zero for a topic, that is not known."""
    if topic_id != ZERO_UUID:
        if not metadata:
            return _BARE_OFFSET_WITH_ID.pack(
                OFFSET_VALUE_VERSION_WRITTEN,
                offset,
                leader_epoch,
                _EMPTY,
                commit_timestamp_ms,
                _TAGS_OF_ID,
                topic_id.bytes,
            )
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_timestamp_ms,
            topic_id=topic_id,
        )
        return encode_value(value, OFFSET_VALUE_VERSION_WRITTEN)
    if not metadata:
        return _BARE_OFFSET.pack(OFFSET_VALUE_VERSION_WITHOUT_ID, offset, leader_epoch, 0, commit_timestamp_ms)
    text = metadata.encode()
    head = _OFFSET_BEFORE_METADATA.pack(OFFSET_VALUE_VERSION_WITHOUT_ID, offset, leader_epoch, len(text))
    return b"".join((head, text, _TIMESTAMP.pack(commit_timestamp_ms)))


def encode_expiring_offset(offset: int, metadata: str, commit_timestamp_ms: int, expire_timestamp_ms: int) -> bytes:
    """The value of an offset whose client said when it is to be forgotten: version 1, the only one to carry that."""
    value = OffsetCommitValue(
        offset=offset,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    return encode_value(value, OFFSET_VALUE_VERSION_EXPIRING)


def decode_offset(value: bytes) -> OffsetAndMetadata:
    """Read the value of an offset, of either kind.

    Raises:
        CorruptLogError: the bytes are no such value, or one of a version that this release does not know.
    """
    if len(value) == _OFFSET_SIZE_BYTES and value[:2] == _VERSION_3:
        _, offset, leader_epoch, size, timestamp_ms = _BARE_OFFSET.unpack(value)
        if size == 0:
            return OffsetAndMetadata(offset, None if leader_epoch < 0 else leader_epoch, "", timestamp_ms, None)
    elif len(value) == _OFFSET_WITH_ID_SIZE_BYTES and value[:2] == _VERSION_4:
        _, offset, leader_epoch, size, timestamp_ms, tags, topic_id = _BARE_OFFSET_WITH_ID.unpack(value)
        if size == _EMPTY and tags == _TAGS_OF_ID:
            epoch = None if leader_epoch < 0 else leader_epoch
            return OffsetAndMetadata(offset, epoch, "", timestamp_ms, None, UUID(bytes=topic_id))
    read = decode_value(OffsetCommitValue, value)
    return OffsetAndMetadata(
        read.offset,
        None if read.leader_epoch < 0 else read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        None if read.expire_timestamp < 0 else read.expire_timestamp,
        read.topic_id,
    )


def check_offset(value: bytes) -> None:
    """Return if `decode_offset` would: asked of every record that is loaded.

    Raises:
        CorruptLogError: as it does.
    """
    if (
        len(value) == _OFFSET_SIZE_BYTES
        and value[:2] == _VERSION_3
        and value[_METADATA_AT - 2 : _METADATA_AT] == b"\0\0"
    ):
        return
    if (
        len(value) == _OFFSET_WITH_ID_SIZE_BYTES
        and value[:2] == _VERSION_4
        and value[_METADATA_AT - 2] == _EMPTY
        and value[_TAGS_AT : _TAGS_AT + 3] == _TAGS_OF_ID
    ):
        return
    decode_offset(value)


def encode_group(value: GroupMetadataValue) -> bytes:
    """The value of a group."""
    return encode_value(value, GROUP_VALUE_VERSION_WRITTEN)


def decode_group(value: bytes) -> GroupMetadataValue:
    """Read the value of a group.

    Raises:
        CorruptLogError: the bytes are no such value, or one of a version that this release does not know.
    """
    return decode_value(GroupMetadataValue, value)
