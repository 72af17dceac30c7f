"""ElectLeaders (key 43): let partitions elect their preferred replica, or any live one though records may be lost.

Version 1 tells the two apart and adds an error of the whole request (KIP-460), 2 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct

PREFERRED = 0
"""Elect the first replica of the list, if it is in the ISR."""

UNCLEAN = 1
"""Where no member of the ISR lives, elect another replica: what it does not hold is lost."""


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = field(string, doc="The topic's name.")
    partitions: list[int] = field(array(int32), doc="The partitions.")


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Elect leaders."""

    election_type: int = field(int8, versions="1+", default=PREFERRED, doc="0: the preferred replica; 1: unclean.")
    topic_partitions: list[TopicPartitions] | None = field(
        array(TopicPartitions), nullable="0+", default=None, doc="The partitions; None for all."
    )
    timeout_ms: int = field(int32, default=60_000, doc="How long to wait for the elections.")


@struct
class PartitionResult:
    """What became of one partition."""

    partition_id: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it has the leader that was asked for now.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it has not.")


@struct
class ReplicaElectionResult:
    """The partitions of one topic."""

    topic: str = field(string, doc="The topic's name.")
    partition_result: list[PartitionResult] = field(array(PartitionResult), doc="The partitions.")


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """One result per partition; when all were asked for, those that needed no election are left out."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, versions="1+", default=0, doc="Why the whole request was refused.")
    replica_election_results: list[ReplicaElectionResult] = field(
        array(ReplicaElectionResult), default_factory=list, doc="The topics."
    )
