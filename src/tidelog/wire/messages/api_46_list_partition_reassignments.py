"""ListPartitionReassignments (key 46): which partitions are being moved (KIP-455). Flexible."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, message, string, struct


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of one topic that are asked about."""

    name: str = field(string, doc="The topic's name.")
    partition_indexes: list[int] = field(array(int32), doc="The partitions.")


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Ask for the reassignments under way."""

    timeout_ms: int = field(int32, default=60_000, doc="How long to wait for the answer.")
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None, doc="The partitions; None for all."
    )


@struct
class OngoingPartitionReassignment:
    """One partition that is being moved."""

    partition_index: int = field(int32, doc="The partition.")
    replicas: list[int] = field(array(int32), doc="All that hold it now, or begin to.")
    adding_replicas: list[int] = field(array(int32), doc="Those of them that it did not have before.")
    removing_replicas: list[int] = field(array(int32), doc="Those of them that it will not have afterwards.")


@struct
class OngoingTopicReassignment:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment), doc="The partitions.")


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The reassignments under way, of those that were asked about."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="The same in words.")
    topics: list[OngoingTopicReassignment] = field(
        array(OngoingTopicReassignment), default_factory=list, doc="The topics."
    )
