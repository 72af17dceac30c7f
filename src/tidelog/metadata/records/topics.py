"""Records of topics and partitions: what exists, who holds it, who leads it."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int8, int32, message, string, uuid

NO_LEADER = -1
LEADER_UNCHANGED = -2
UNCLEAN_EPOCH_TAG = 10_000
"""Ours: far from the tags that Kafka's layouts may come to use."""


@message(api_key=2, versions="0", flexible="0+", kind="record")
class TopicRecord:
    """A topic was created; its partitions follow."""

    name: str = field(string, doc="Its name.")
    topic_id: UUID = field(uuid, doc="Its id, never used again.")


@message(api_key=3, versions="0-2", flexible="0+", kind="record")
class PartitionRecord:
    """A partition was created, or (in a snapshot) is."""

    partition_id: int = field(int32, default=-1, doc="Its number within the topic.")
    topic_id: UUID = field(uuid, doc="The topic.")
    replicas: list[int] = field(array(int32), doc="Who holds it, the preferred leader first.")
    isr: list[int] = field(array(int32), doc="The in-sync replicas.")
    removing_replicas: list[int] = field(
        array(int32), default_factory=list, doc="Replicas that a reassignment removes."
    )
    adding_replicas: list[int] = field(array(int32), default_factory=list, doc="Replicas that a reassignment adds.")
    leader: int = field(int32, default=NO_LEADER, doc="The leader, or -1.")
    leader_recovery_state: int = field(
        int8, tag=0, tagged="0+", default=0, doc="1 while the leader of an unclean election recovers."
    )
    leader_epoch: int = field(int32, default=-1, doc="The leader epoch; 0 for a new partition.")
    partition_epoch: int = field(int32, default=-1, doc="The version of this state; 0 for a new partition.")
    directories: list[UUID] = field(
        array(uuid),
        versions="1+",
        default_factory=list,
        doc="The log directory of each replica, in the order of replicas.",
    )
    eligible_leader_replicas: list[int] | None = field(
        array(int32), versions="2+", nullable="2+", tag=1, tagged="2+", default=None, doc="KIP-966."
    )
    last_known_elr: list[int] | None = field(
        array(int32), versions="2+", nullable="2+", tag=2, tagged="2+", default=None, doc="KIP-966."
    )
    unclean_epoch: int = field(
        int32,
        tag=UNCLEAN_EPOCH_TAG,
        tagged="0+",
        default=-1,
        doc="The newest leader epoch from which on a leader may lack what was committed before; -1 for none.",
    )


@message(api_key=5, versions="0-2", flexible="0+", kind="record")
class PartitionChangeRecord:
    """The state of a partition changed: what is None, or -2 for the leader, stayed as it was.

    Each moves the partition epoch by one. One that names a leader, be it the same or none, moves the leader epoch by
    one as well.
    """

    partition_id: int = field(int32, default=-1, doc="Its number within the topic.")
    topic_id: UUID = field(uuid, doc="The topic.")
    isr: list[int] | None = field(array(int32), nullable="0+", tag=0, tagged="0+", default=None, doc="The new ISR.")
    leader: int = field(
        int32, tag=1, tagged="0+", default=LEADER_UNCHANGED, doc="The new leader, -1 for none, -2 as it was."
    )
    replicas: list[int] | None = field(
        array(int32), nullable="0+", tag=2, tagged="0+", default=None, doc="The new replicas."
    )
    removing_replicas: list[int] | None = field(
        array(int32), nullable="0+", tag=3, tagged="0+", default=None, doc="What a reassignment now removes."
    )
    adding_replicas: list[int] | None = field(
        array(int32), nullable="0+", tag=4, tagged="0+", default=None, doc="What a reassignment now adds."
    )
    leader_recovery_state: int = field(
        int8, tag=5, tagged="0+", default=-1, doc="0 recovered, 1 recovering after an unclean election, -1 as it was."
    )
    directories: list[UUID] | None = field(
        array(uuid), versions="1+", nullable="1+", tag=8, tagged="1+", default=None, doc="The new log directories."
    )
    eligible_leader_replicas: list[int] | None = field(
        array(int32), versions="2+", nullable="2+", tag=6, tagged="2+", default=None, doc="KIP-966."
    )
    last_known_elr: list[int] | None = field(
        array(int32), versions="2+", nullable="2+", tag=7, tagged="2+", default=None, doc="KIP-966."
    )
    unclean_epoch: int = field(
        int32,
        tag=UNCLEAN_EPOCH_TAG,
        tagged="0+",
        default=-1,
        doc="The leader epoch from which on a leader may lack what was committed before; -1: as it was.",
    )


@message(api_key=9, versions="0", flexible="0+", kind="record")
class RemoveTopicRecord:
    """A topic is deleted, with its partitions and its configuration."""

    topic_id: UUID = field(uuid, doc="The topic.")
