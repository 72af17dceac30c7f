"""ShareFetch (key 78): a member of a share group acquires records, and acknowledges others on the way (KIP-932).

Version 2 can ask for a strict number of records (KIP-1206), and lengthen the time for which records are acquired
(KIP-1222).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.compile import Piece
from tidelog.wire.schema import (
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uuid,
)

OPEN_SESSION_EPOCH = 0
CLOSE_SESSION_EPOCH = -1

ACKNOWLEDGE_GAP = 0
"""There is no record at the offset."""
ACKNOWLEDGE_ACCEPT = 1
"""The record is processed."""
ACKNOWLEDGE_RELEASE = 2
"""Deliver the record again, to whomever."""
ACKNOWLEDGE_REJECT = 3
"""Deliver the record to nobody any more."""
ACKNOWLEDGE_RENEW = 4
"""The record is still being processed (from version 2)."""

ACQUIRE_WHOLE_BATCHES = 0
ACQUIRE_AT_MOST = 1
"""No more records than `max_records`, even if a batch is acquired in part."""

MAX_BYTES_DEFAULT = 0x7FFF_FFFF


@struct
class ShareAcknowledgementBatch:
    """What became of consecutive records."""

    first_offset: int = field(int64, doc="The first record.")
    last_offset: int = field(int64, doc="The last record, inclusive.")
    acknowledge_types: list[int] = field(
        array(int8), default_factory=list, doc="One of the constants above for each record, or one for all."
    )


@struct
class ShareFetchPartition:
    """What is wanted of one partition, and what became of its records."""

    partition_index: int = field(int32, doc="The partition.")
    acknowledgement_batches: list[ShareAcknowledgementBatch] = field(
        array(ShareAcknowledgementBatch), default_factory=list, doc="What is acknowledged."
    )


@struct
class ShareFetchTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ShareFetchPartition] = field(array(ShareFetchPartition), default_factory=list, doc="To be read.")


@struct
class ShareFetchForgottenTopic:
    """Partitions of one topic to take out of the session."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """Acquire records, within a session with the leader of the partitions."""

    group_id: str | None = field(string, nullable="0+", default=None, doc="The group.")
    member_id: str | None = field(string, nullable="0+", default="", doc="The member.")
    share_session_epoch: int = field(int32, doc="0 opens a session, -1 closes it; else one more than before.")
    max_wait_ms: int = field(int32, doc="How long to wait until there is as much as `min_bytes`.")
    min_bytes: int = field(int32, doc="How much is worth an answer at once.")
    max_bytes: int = field(int32, default=MAX_BYTES_DEFAULT, doc="How much the answer may hold.")
    max_records: int = field(int32, doc="How many records to acquire; whole batches may exceed it.")
    batch_size: int = field(int32, doc="How many records an acquired batch had best have.")
    share_acquire_mode: int = field(
        int8, versions="2+", default=ACQUIRE_WHOLE_BATCHES, ignorable=True, doc="How strict `max_records` is."
    )
    is_renew_ack: bool = field(
        boolean, versions="2+", default=False, doc="Whether some acknowledgement is ACKNOWLEDGE_RENEW."
    )
    topics: list[ShareFetchTopic] = field(array(ShareFetchTopic), default_factory=list, doc="The topics.")
    forgotten_topics_data: list[ShareFetchForgottenTopic] = field(
        array(ShareFetchForgottenTopic), default_factory=list, doc="What the session shall not read any more."
    )


@struct
class ShareFetchLeader:
    """Who leads now."""

    leader_id: int = field(int32, default=0, doc="The leader, or -1 if there is none or it is not known.")
    leader_epoch: int = field(int32, default=0, doc="The latest leader epoch known.")


@struct
class ShareAcquiredRecords:
    """Consecutive records that are this member's for a while."""

    first_offset: int = field(int64, doc="The first record.")
    last_offset: int = field(int64, doc="The last record, inclusive.")
    delivery_count: int = field(int16, doc="How often they were delivered, this time included.")


@struct(kw_only=True)
class ShareFetchPartitionData:
    """What was read from one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it could be read.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")
    acknowledge_error_code: int = field(int16, default=0, doc="0 if what was acknowledged is taken.")
    acknowledge_error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")
    current_leader: ShareFetchLeader = field(ShareFetchLeader, doc="When the asked one is not it.")
    records: Piece = field(records, default=b"", doc="Whole batches.")
    acquired_records: list[ShareAcquiredRecords] = field(
        array(ShareAcquiredRecords), default_factory=list, doc="Which of the records are acquired."
    )


@struct
class ShareFetchTopicResponse:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ShareFetchPartitionData] = field(
        array(ShareFetchPartitionData), default_factory=list, doc="The partitions."
    )


@struct
class ShareFetchNodeEndpoint:
    """Where a leader named in the same response is."""

    node_id: int = field(int32, doc="The broker.")
    host: str = field(string, doc="Its host, on the listener that the client used.")
    port: int = field(int32, doc="Its port.")
    rack: str | None = field(string, nullable="0+", default=None, doc="Its rack, if it has one.")


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """What was read, and what of it is acquired."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, ignorable=True, doc="Of the session as a whole.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    acquisition_lock_timeout_ms: int = field(int32, default=0, doc="For how long records are acquired.")
    responses: list[ShareFetchTopicResponse] = field(
        array(ShareFetchTopicResponse), default_factory=list, doc="The topics."
    )
    node_endpoints: list[ShareFetchNodeEndpoint] = field(
        array(ShareFetchNodeEndpoint), default_factory=list, doc="Where the new leaders are."
    )
