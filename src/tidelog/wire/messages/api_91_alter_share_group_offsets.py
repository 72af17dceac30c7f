"""AlterShareGroupOffsets (key 91): have a share group without members begin elsewhere (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uuid


@struct
class AlterShareGroupOffsetsRequestPartition:
    """Where to begin in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    start_offset: int = field(int64, doc="The first offset to deliver.")


@struct
class AlterShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic's name.")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
        array(AlterShareGroupOffsetsRequestPartition), default_factory=list, doc="The partitions."
    )


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """Ask the coordinator of the group."""

    group_id: str = field(string, doc="The group.")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        array(AlterShareGroupOffsetsRequestTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class AlterShareGroupOffsetsResponsePartition:
    """Whether the group begins elsewhere in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it does.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")


@struct
class AlterShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic's name.")
    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
        array(AlterShareGroupOffsetsResponsePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """What became of each partition."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Of the group as a whole.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        array(AlterShareGroupOffsetsResponseTopic), default_factory=list, doc="The topics."
    )
