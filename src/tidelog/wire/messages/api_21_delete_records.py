"""DeleteRecords (key 21): move the start of partitions' logs (KIP-107). Version 2 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct

TO_HIGH_WATERMARK = -1
"""As an offset: all that is committed."""
NO_LOW_WATERMARK = -1


@struct
class DeleteRecordsPartition:
    """One partition, and what is to go of it."""

    partition_index: int = field(int32, doc="The partition.")
    offset: int = field(int64, doc="Records below it go; -1: all below the high watermark.")


@struct
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = field(string, doc="The topic.")
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition), doc="Its partitions.")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Delete the oldest records of partitions, each on its own: some may be refused."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic), doc="Of what.")
    timeout_ms: int = field(int32, default=60_000, doc="How long to wait until all replicas did it.")


@struct
class DeleteRecordsPartitionResult:
    """What became of one partition."""

    partition_index: int = field(int32, doc="The partition.")
    low_watermark: int = field(
        int64, default=NO_LOW_WATERMARK, doc="The smallest log start offset of its replicas; -1 if it was refused."
    )
    error_code: int = field(int16, default=0, doc="0 if the records are gone.")


@struct
class DeleteRecordsTopicResult:
    """Partitions of one topic."""

    name: str = field(string, doc="The topic.")
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult), doc="Its partitions.")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """One answer per partition."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult), doc="The topics.")
