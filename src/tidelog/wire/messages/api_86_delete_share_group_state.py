"""DeleteShareGroupState (key 86): the groups' coordinator has a share group's state of partitions deleted (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.messages.api_84_read_share_group_state import RECORD_EPOCH_TAG
from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uuid


@struct
class DeleteShareGroupStatePartition:
    """Whose state to delete."""

    partition: int = field(int32, doc="The partition.")
    state_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="A state with a higher epoch was begun since, and stays (a field of ours); -1: any is deleted.",
    )


@struct
class DeleteShareGroupStateTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[DeleteShareGroupStatePartition] = field(
        array(DeleteShareGroupStatePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    """Ask the share coordinator to delete the state of each partition."""

    group_id: str = field(string, doc="The group.")
    topics: list[DeleteShareGroupStateTopic] = field(
        array(DeleteShareGroupStateTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class DeleteShareGroupStatePartitionResult:
    """Whether the state of one partition is deleted."""

    partition: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if that was done.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")


@struct
class DeleteShareGroupStateResult:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[DeleteShareGroupStatePartitionResult] = field(
        array(DeleteShareGroupStatePartitionResult), default_factory=list, doc="The partitions."
    )


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """What became of each partition."""

    results: list[DeleteShareGroupStateResult] = field(
        array(DeleteShareGroupStateResult), default_factory=list, doc="The topics."
    )
