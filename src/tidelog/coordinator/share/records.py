"""The records of `__share_group_state`, in Kafka's own formats, so that its tools read our log (KIP-932).

A share group's state in a partition is a snapshot and the updates after it. Both have the same key, but for its type.

Kafka: `ShareCoordinatorShard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from uuid import UUID

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.journal.versioned_records import decode_key, decode_value, encode_key, encode_value, record_type
from tidelog.share.key import ShareKey
from tidelog.share.state import NO_LEADER_EPOCH, DeliveryState, StateBatch, StateChange
from tidelog.wire.messages.api_84_read_share_group_state import RECORD_EPOCH_TAG, WRITE_NUMBER_TAG
from tidelog.wire.primitives import uvarint
from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, string, struct, uuid

VALUE_VERSION = 0
"""Of snapshots and updates."""

NOT_KNOWN = -1
"""A start offset or a count that nobody told."""
NO_STATE_EPOCH = -1
"""Of who does not say it: it is not fenced."""

STATES = {one.value: one for one in DeliveryState if one is not DeliveryState.ACQUIRED}
"""Those that are kept."""


SNAPSHOT_BATCHES_POSITION = 38
UPDATE_BATCHES_POSITION = 18
"""Where the length of the list stands in a value, after fields of fixed sizes."""
_BATCH = Struct(">qqbhB")
_TAGGED_BATCH = Struct(">qqbhB2sBi")
_TAG = uvarint(RECORD_EPOCH_TAG)
_INT32_BYTES = 4


class ShareRecordType(IntEnum):
    """The numbers in front of keys."""

    SNAPSHOT = 0
    UPDATE = 1


TYPES = {one.value: one for one in ShareRecordType}


@message(api_key=ShareRecordType.SNAPSHOT, versions="0", kind="data")
class ShareStateKey:
    """A partition, as one share group reads it. For either type."""

    group_id: str = field(string, doc="The group.")
    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition: int = field(int32, doc="The partition.")


@struct
class ShareStateBatch:
    """How consecutive records stand with the group."""

    first_offset: int = field(int64, doc="The first record.")
    last_offset: int = field(int64, doc="The last record, inclusive.")
    delivery_state: int = field(int8, doc="0: available; 2: acknowledged; 4: archived.")
    delivery_count: int = field(int16, doc="How often they were delivered.")
    leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of these records in the log of who tells it (a field of ours); -1: not told.",
    )


@message(api_key=ShareRecordType.SNAPSHOT, versions="0", flexible="0+", kind="data")
class ShareSnapshotValue:
    """The whole state."""

    snapshot_epoch: int = field(int32, doc="Raised with each snapshot; the updates after it carry it too.")
    state_epoch: int = field(int32, doc="Raised when the state is initialized anew.")
    leader_epoch: int = field(int32, doc="Of the partition's leader that wrote it last.")
    start_offset: int = field(int64, doc="Where the group begins: all before it is done; -1 if not known yet.")
    delivery_complete_count: int = field(
        int32, tag=0, default=-1, doc="Records from the start offset on that are done; -1 if it is not known."
    )
    create_timestamp: int = field(int64, doc="When the state was begun, in ms.")
    write_timestamp: int = field(int64, doc="When this snapshot was written, in ms.")
    state_batches: list[ShareStateBatch] = field(
        array(ShareStateBatch), default_factory=list, doc="What differs from being available."
    )
    start_leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of the record just before the start offset, in the log of who tells it (a field of ours); -1: not told.",
    )
    write_number: int = field(
        int64,
        tag=WRITE_NUMBER_TAG,
        default=-1,
        ignorable=True,
        doc="Of the last change that its leader wrote (a field of ours); -1: not told.",
    )


@message(api_key=ShareRecordType.UPDATE, versions="0", flexible="0+", kind="data")
class ShareUpdateValue:
    """What has changed."""

    snapshot_epoch: int = field(int32, doc="Of the snapshot that it builds on.")
    leader_epoch: int = field(int32, doc="Of the partition's leader that wrote it.")
    start_offset: int = field(int64, doc="Where the group begins now; -1: as before.")
    delivery_complete_count: int = field(
        int32, tag=0, default=-1, doc="Records from the start offset on that are done; -1 if it is not known."
    )
    state_batches: list[ShareStateBatch] = field(array(ShareStateBatch), default_factory=list, doc="What has changed.")
    start_leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of the record just before the start offset, in the log of who tells it (a field of ours); -1: not told.",
    )
    write_number: int = field(
        int64,
        tag=WRITE_NUMBER_TAG,
        default=-1,
        ignorable=True,
        doc="Of the change (a field of ours); -1: not told.",
    )


def snapshot_key(key: ShareKey) -> bytes:
    """The key of a snapshot, or of the tombstone that ends a state."""
    return encode_key(ShareRecordType.SNAPSHOT, _key(key))


def update_key(key: ShareKey) -> bytes:
    """The key of an update."""
    return encode_key(ShareRecordType.UPDATE, _key(key))


def read_key(key: bytes) -> tuple[ShareRecordType, ShareKey] | None:
    """The inverse of both; None for a kind of record that this release does not know.

    Raises:
        CorruptLogError: it is not what it claims.
    """
    kind = TYPES.get(record_type(key))
    if kind is None:
        return None
    read = decode_key(ShareStateKey, key)
    return kind, ShareKey(read.group_id, TopicId(read.topic_id), PartitionIndex(read.partition))


def read_snapshot(value: bytes) -> ShareSnapshotValue:
    """The inverse of `encode_snapshot`. Raises CorruptLogError."""
    return decode_value(ShareSnapshotValue, value)


def read_update(value: bytes) -> StateChange:
    """The inverse of `encode_update`. Raises CorruptLogError."""
    read = decode_value(ShareUpdateValue, value)
    return StateChange(
        state_epoch=NO_STATE_EPOCH,
        leader_epoch=LeaderEpoch(read.leader_epoch),
        start=None if read.start_offset == NOT_KNOWN else Offset(read.start_offset),
        start_leader_epoch=LeaderEpoch(read.start_leader_epoch),
        delivery_complete_count=read.delivery_complete_count,
        batches=tuple(read_batches(read.state_batches)),
        number=read.write_number,
    )


def encode_snapshot(snapshot: ShareSnapshotValue, batches: Sequence[StateBatch]) -> bytes:
    """A value. `batches` take the place of the message's, which are none."""
    return _with_batches(encode_value(snapshot, VALUE_VERSION), SNAPSHOT_BATCHES_POSITION, batches)


def encode_update(change: StateChange, snapshot_epoch: int) -> bytes:
    """A value. The state epoch of the change is not in it."""
    update = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=NOT_KNOWN if change.start is None else change.start,
        delivery_complete_count=change.delivery_complete_count,
        start_leader_epoch=NO_LEADER_EPOCH if change.start is None else change.start_leader_epoch,
        write_number=change.number,
    )
    return _with_batches(encode_value(update, VALUE_VERSION), UPDATE_BATCHES_POSITION, change.batches)


def read_batches(written: Sequence[ShareStateBatch]) -> list[StateBatch]:
    """As they are worked with.

    Raises:
        CorruptLogError: one of them is none.
    """
    return [_read_batch(one) for one in written]


def _with_batches(value: bytes, position: int, batches: Sequence[StateBatch]) -> bytes:
    """Put batches into a value that has none: a state may have thousands, which messages of their own would take four
    times as long for.
    """
    if not batches:
        return value
    parts = [value[:position], uvarint(len(batches) + 1)]
    for one in batches:
        if one.leader_epoch == NO_LEADER_EPOCH:
            parts.append(_BATCH.pack(one.first, one.last, one.state, one.delivery_count, 0))
        else:
            parts.append(
                _TAGGED_BATCH.pack(
                    one.first, one.last, one.state, one.delivery_count, 1, _TAG, _INT32_BYTES, one.leader_epoch
                )
            )
    parts.append(value[position + 1 :])
    return b"".join(parts)


def _read_batch(written: ShareStateBatch) -> StateBatch:
    state = STATES.get(written.delivery_state)
    if state is None or written.last_offset < written.first_offset:
        raise CorruptLogError(
            f"offsets {written.first_offset} to {written.last_offset} in state {written.delivery_state}: there is no "
            "such batch"
        )
    return StateBatch(
        Offset(written.first_offset),
        Offset(written.last_offset),
        state,
        written.delivery_count,
        LeaderEpoch(written.leader_epoch),
    )


def _key(key: ShareKey) -> ShareStateKey:
    return ShareStateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
