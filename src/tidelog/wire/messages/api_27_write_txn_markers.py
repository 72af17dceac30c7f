"""WriteTxnMarkers (key 27): a coordinator has the leaders of partitions write down how transactions ended.

All versions are flexible. Version 2 says which version of transactions the producer speaks (KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, int64, message, string, struct


@struct(kw_only=True)
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = field(string, doc="Its name.")
    partition_indexes: list[int] = field(array(int32), default_factory=list, doc="Their indexes.")


@struct(kw_only=True)
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = field(int64, doc="Its producer.")
    producer_epoch: int = field(int16, doc="That the marker carries.")
    transaction_result: bool = field(boolean, doc="True for a commit, False for an abort.")
    topics: list[WritableTxnMarkerTopic] = field(
        array(WritableTxnMarkerTopic), default_factory=list, doc="Where to write it."
    )
    coordinator_epoch: int = field(int32, doc="Of the partition of the coordinator.")
    transaction_version: int = field(int8, versions="2+", default=0, ignorable=True, doc="0, 1 or 2.")


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Write markers."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker), default_factory=list, doc="The markers.")


@struct(kw_only=True)
class WritableTxnMarkerPartitionResult:
    """What became of a marker on one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is committed.")


@struct(kw_only=True)
class WritableTxnMarkerTopicResult:
    """What became of a marker on the partitions of one topic."""

    name: str = field(string, doc="Its name.")
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        array(WritableTxnMarkerPartitionResult), default_factory=list, doc="Each partition."
    )


@struct(kw_only=True)
class WritableTxnMarkerResult:
    """What became of one marker."""

    producer_id: int = field(int64, doc="Its producer.")
    topics: list[WritableTxnMarkerTopicResult] = field(
        array(WritableTxnMarkerTopicResult), default_factory=list, doc="By topic."
    )


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """What was written."""

    markers: list[WritableTxnMarkerResult] = field(
        array(WritableTxnMarkerResult), default_factory=list, doc="In the order of the request."
    )
