"""AlterPartition (key 56): a leader asks the controller for another ISR.

Version 2 names topics by id, 3 tells the incarnation in which each member is in sync (KIP-903). Both are flexible.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, struct, uuid

RECOVERED = 0
RECOVERING = 1
"""Whether the leader has recovered from an unclean election."""


@struct
class BrokerState:
    """A member of the ISR, in one incarnation."""

    broker_id: int = field(int32, doc="The broker.")
    broker_epoch: int = field(int64, default=-1, doc="Its incarnation; -1 is not checked.")


@struct(kw_only=True)
class AlterPartitionData:
    """What the leader of one partition asks for."""

    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The epoch that it leads in.")
    new_isr: list[int] = field(array(int32), versions="0-2", default_factory=list, doc="The ISR (version 2).")
    new_isr_with_epochs: list[BrokerState] = field(
        array(BrokerState), versions="3+", default_factory=list, doc="The ISR (version 3)."
    )
    leader_recovery_state: int = field(int8, default=RECOVERED, doc="1 while it recovers from an unclean election.")
    partition_epoch: int = field(int32, doc="Of the state that it asks on top of.")


@struct
class AlterPartitionTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[AlterPartitionData] = field(array(AlterPartitionData), doc="The partitions.")


@message(api_key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest:
    """Ask for the ISRs of partitions that the sender leads."""

    broker_id: int = field(int32, doc="Who asks.")
    broker_epoch: int = field(int64, default=-1, doc="Its incarnation.")
    topics: list[AlterPartitionTopic] = field(array(AlterPartitionTopic), default_factory=list, doc="The topics.")


@struct(kw_only=True)
class AlteredPartitionData:
    """What became of one partition: its state, if it was granted."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it was granted.")
    leader_id: int = field(int32, default=-1, doc="The leader, or -1.")
    leader_epoch: int = field(int32, default=-1, doc="Its epoch.")
    isr: list[int] = field(array(int32), default_factory=list, doc="The in-sync replicas.")
    leader_recovery_state: int = field(int8, default=RECOVERED, doc="1 while the leader recovers.")
    partition_epoch: int = field(int32, default=-1, doc="The version of this state.")


@struct
class AlteredTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[AlteredPartitionData] = field(array(AlteredPartitionData), doc="The partitions.")


@message(api_key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    """One answer per partition, unless the request was refused as a whole."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    topics: list[AlteredTopic] = field(array(AlteredTopic), default_factory=list, doc="The topics.")
