"""InitializeShareGroupState (key 83): the groups' coordinator has a share group begin with partitions (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uuid


@struct
class InitializeShareGroupStatePartition:
    """Where to begin in one partition."""

    partition: int = field(int32, doc="The partition.")
    state_epoch: int = field(int32, doc="Raised when the state is initialized anew.")
    start_offset: int = field(int64, doc="Where the share group begins: all before it is done; -1 if not known yet.")


@struct
class InitializeShareGroupStateTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[InitializeShareGroupStatePartition] = field(
        array(InitializeShareGroupStatePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    """Ask the share coordinator to begin a state for each partition, in place of any there was."""

    group_id: str = field(string, doc="The group.")
    topics: list[InitializeShareGroupStateTopic] = field(
        array(InitializeShareGroupStateTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class InitializeShareGroupStatePartitionResult:
    """Whether the state of one partition is begun."""

    partition: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if that was done.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")


@struct
class InitializeShareGroupStateResult:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[InitializeShareGroupStatePartitionResult] = field(
        array(InitializeShareGroupStatePartitionResult), default_factory=list, doc="The partitions."
    )


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """What became of each partition."""

    results: list[InitializeShareGroupStateResult] = field(
        array(InitializeShareGroupStateResult), default_factory=list, doc="The topics."
    )
