"""OffsetDelete (key 47): forget how far a group has read some partitions (KIP-496)."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, message, string, struct


@struct
class OffsetDeleteRequestPartition:
    """A partition."""

    partition_index: int = field(int32, doc="Its index.")


@struct
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition), doc="The partitions.")


@message(api_key=47, versions="0")
class OffsetDeleteRequest:
    """Ask the coordinator of the group."""

    group_id: str = field(string, doc="The group.")
    topics: list[OffsetDeleteRequestTopic] = field(
        array(OffsetDeleteRequestTopic), default_factory=list, doc="The topics."
    )


@struct
class OffsetDeleteResponsePartition:
    """What became of one partition's offset."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is forgotten.")


@struct
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition), doc="The partitions.")


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    """What became of them."""

    error_code: int = field(int16, default=0, doc="Of the group as a whole.")
    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    topics: list[OffsetDeleteResponseTopic] = field(
        array(OffsetDeleteResponseTopic), default_factory=list, doc="The topics."
    )
