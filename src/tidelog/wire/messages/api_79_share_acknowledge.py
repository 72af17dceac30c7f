"""ShareAcknowledge (key 79): a member of a share group says what became of records it acquired (KIP-932).

Version 2 can lengthen the time for which records are acquired, and tells how long it is (KIP-1222).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.messages.api_78_share_fetch import ShareAcknowledgementBatch, ShareFetchLeader, ShareFetchNodeEndpoint
from tidelog.wire.schema import array, boolean, field, int16, int32, message, string, struct, uuid


@struct
class ShareAcknowledgePartition:
    """What became of records of one partition."""

    partition_index: int = field(int32, doc="The partition.")
    acknowledgement_batches: list[ShareAcknowledgementBatch] = field(
        array(ShareAcknowledgementBatch), default_factory=list, doc="What is acknowledged."
    )


@struct
class ShareAcknowledgeTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ShareAcknowledgePartition] = field(
        array(ShareAcknowledgePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """Acknowledge records, within the session of ShareFetch."""

    group_id: str | None = field(string, nullable="0+", default=None, doc="The group.")
    member_id: str | None = field(string, nullable="0+", default="", doc="The member.")
    share_session_epoch: int = field(int32, doc="-1 closes the session; else one more than before.")
    is_renew_ack: bool = field(
        boolean, versions="2+", default=False, doc="Whether some acknowledgement is ACKNOWLEDGE_RENEW."
    )
    topics: list[ShareAcknowledgeTopic] = field(array(ShareAcknowledgeTopic), default_factory=list, doc="The topics.")


@struct(kw_only=True)
class ShareAcknowledgePartitionData:
    """Whether what was acknowledged of one partition is taken."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")
    current_leader: ShareFetchLeader = field(ShareFetchLeader, doc="When the asked one is not it.")


@struct
class ShareAcknowledgeTopicResponse:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ShareAcknowledgePartitionData] = field(
        array(ShareAcknowledgePartitionData), default_factory=list, doc="The partitions."
    )


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """What became of each acknowledgement."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, ignorable=True, doc="Of the session as a whole.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")
    acquisition_lock_timeout_ms: int = field(
        int32, versions="2+", default=0, ignorable=True, doc="For how long renewed records are acquired."
    )
    responses: list[ShareAcknowledgeTopicResponse] = field(
        array(ShareAcknowledgeTopicResponse), default_factory=list, doc="The topics."
    )
    node_endpoints: list[ShareFetchNodeEndpoint] = field(
        array(ShareFetchNodeEndpoint), default_factory=list, doc="Where the new leaders are."
    )
