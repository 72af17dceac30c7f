"""The records of `__share_group_state`, in Kafka's own formats, so that its tools read our log (KIP-932).

A share group's state in a partition is a snapshot and the updates after it. Both have the same key, but for its type.

Kafka: `ShareCoordinatorShard`.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from tidelog.wire.messages.api_84_read_share_group_state import RECORD_EPOCH_TAG
from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, string, struct, uuid


class ShareRecordType(IntEnum):
    """The numbers in front of keys."""

    SNAPSHOT = 0
    UPDATE = 1


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
