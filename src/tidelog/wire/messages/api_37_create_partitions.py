"""CreatePartitions (key 37): give topics more partitions (KIP-195).

Version 2 is flexible, 3 may be throttled (KIP-599).
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct


@struct
class CreatePartitionsAssignment:
    """The replicas of one new partition, chosen by hand."""

    broker_ids: list[int] = field(array(int32), doc="Its replicas, the preferred leader first.")


@struct
class CreatePartitionsTopic:
    """A topic, and how many partitions it is to have."""

    name: str = field(string, doc="Its name.")
    count: int = field(int32, doc="How many it is to have in all.")
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment),
        nullable="0+",
        default=None,
        doc="Who holds each new partition, in their order; None: the controller chooses.",
    )


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Give topics more partitions, each topic on its own: some may be refused."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic), doc="The topics.")
    timeout_ms: int = field(int32, default=60_000, doc="How long to wait until they are there.")
    validate_only: bool = field(boolean, default=False, doc="Check, and create nothing.")


@struct
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = field(string, doc="Its name.")
    error_code: int = field(int16, default=0, doc="0 if it has as many as asked for.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not.")


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One answer per topic."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult), doc="The topics.")
