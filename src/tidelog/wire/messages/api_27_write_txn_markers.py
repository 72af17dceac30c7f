"""WriteTxnMarkers (key 27): a transaction's coordinator has its end written to the partitions.

Version 1 is flexible, 2 tells under which transaction protocol the marker is written (KIP-1228). Which marker it is,
and in which leader epochs it belongs, are tagged fields of ours, with tags far from those of others.
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, int64, message, string, struct

LEADER_EPOCHS_TAG = 10_000
NUMBER_TAG = 10_001


@struct
class WritableTxnMarkerTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partition_indexes: list[int] = field(array(int32), default_factory=list, doc="The partitions.")
    leader_epochs: list[int] = field(
        array(int32),
        tag=LEADER_EPOCHS_TAG,
        default_factory=list,
        ignorable=True,
        doc="Ours: of each partition, as the coordinator knows it.",
    )


@struct(kw_only=True)
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = field(int64, doc="Of its producer.")
    producer_epoch: int = field(int16, doc="Of its producer.")
    transaction_result: bool = field(boolean, doc="Whether it is committed: else it is aborted.")
    topics: list[WritableTxnMarkerTopic] = field(
        array(WritableTxnMarkerTopic), default_factory=list, doc="Where the marker belongs."
    )
    coordinator_epoch: int = field(int32, doc="The leader epoch of the coordinator's partition.")
    transaction_version: int = field(
        int8, versions="2+", default=0, ignorable=True, doc="0 and 1 before KIP-890; 2 raises the epoch at each end."
    )
    number: int = field(
        int64,
        tag=NUMBER_TAG,
        default=-1,
        ignorable=True,
        doc="Ours: rises from each end of a transaction to the next in a coordinator epoch.",
    )


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Write markers to partitions that the receiver leads."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker), default_factory=list, doc="The markers.")


@struct
class WritableTxnMarkerPartitionResult:
    """Whether a marker is in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is.")


@struct
class WritableTxnMarkerTopicResult:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        array(WritableTxnMarkerPartitionResult), default_factory=list, doc="The partitions."
    )


@struct
class WritableTxnMarkerResult:
    """What became of one marker."""

    producer_id: int = field(int64, doc="Of the transaction's producer.")
    topics: list[WritableTxnMarkerTopicResult] = field(
        array(WritableTxnMarkerTopicResult), default_factory=list, doc="The topics."
    )


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """What became of each marker."""

    markers: list[WritableTxnMarkerResult] = field(
        array(WritableTxnMarkerResult), default_factory=list, doc="The markers, one for each producer."
    )
