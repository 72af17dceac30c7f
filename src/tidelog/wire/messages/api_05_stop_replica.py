"""StopReplica (key 5): the controller tells a broker that it holds a replica no more (KIP-570).

Version 1 names the incarnation of the broker and groups the partitions by topic, 2 is flexible, 3 carries the leader
epoch of each partition and whether to delete it, 4 says what kind of controller sends it. Kafka dropped it with
ZooKeeper. Topic ids and the metadata offset are tagged fields of ours, with tags far from those of others.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct, uuid

DELETED_TOPIC_EPOCH = -2
"""Stands for the leader epoch of a topic that is deleted: its epoch did not grow. As Kafka ships it."""

ANY_EPOCH = -1
"""The same, as the text of KIP-570 has it; and what earlier versions stand for."""

TOPIC_ID_TAG = 10_000
METADATA_OFFSET_TAG = 10_001


@struct
class StopReplicaPartitionV0:
    """One partition to stop."""

    topic_name: str = field(string, doc="The topic's name.")
    partition_index: int = field(int32, doc="The partition.")


@struct
class StopReplicaTopicV1:
    """The partitions of one topic to stop."""

    name: str = field(string, doc="The topic's name.")
    partition_indexes: list[int] = field(array(int32), doc="The partitions.")


@struct
class StopReplicaPartitionState:
    """One partition to stop, and since when."""

    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, default=ANY_EPOCH, doc="Of the change that it follows from; -2 or -1: deletion.")
    delete_partition: bool = field(boolean, default=False, doc="Whether the files are to go.")


@struct
class StopReplicaTopicState:
    """The partitions of one topic to stop."""

    topic_name: str = field(string, doc="The topic's name.")
    partition_states: list[StopReplicaPartitionState] = field(array(StopReplicaPartitionState), doc="The partitions.")
    topic_id: UUID = field(uuid, tag=TOPIC_ID_TAG, default=ZERO_UUID, ignorable=True, doc="Its id (a field of ours).")


@message(api_key=5, versions="0-4", flexible="2+")
class StopReplicaRequest:
    """Stop replicas, and delete some of them."""

    controller_id: int = field(int32, doc="Who sends it.")
    is_kraft_controller: bool = field(boolean, versions="4+", default=False, doc="Whether its log is the metadata log.")
    controller_epoch: int = field(int32, doc="The sender's period as controller.")
    broker_epoch: int = field(
        int64, versions="1+", default=-1, ignorable=True, doc="The incarnation that it is for; -1 is not checked."
    )
    delete_partitions: bool = field(
        boolean, versions="0-2", default=False, ignorable=True, doc="Whether the files of all are to go."
    )
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(
        array(StopReplicaPartitionV0), versions="0", default_factory=list, doc="The partitions (version 0)."
    )
    topics: list[StopReplicaTopicV1] = field(
        array(StopReplicaTopicV1), versions="1-2", default_factory=list, doc="The topics (versions 1 and 2)."
    )
    topic_states: list[StopReplicaTopicState] = field(
        array(StopReplicaTopicState), versions="3+", default_factory=list, doc="The topics (version 3)."
    )
    metadata_offset: int = field(
        int64,
        versions="3+",
        tag=METADATA_OFFSET_TAG,
        default=-1,
        ignorable=True,
        doc="Of the committed record that it follows from, inclusive; -1: not told (a field of ours).",
    )


@struct
class StopReplicaPartitionError:
    """What became of one partition."""

    topic_name: str = field(string, doc="The topic's name.")
    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is stopped.")


@message(api_key=5, versions="0-4", flexible="2+")
class StopReplicaResponse:
    """One answer per partition, unless the request was refused as a whole."""

    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    partition_errors: list[StopReplicaPartitionError] = field(
        array(StopReplicaPartitionError), default_factory=list, doc="The partitions."
    )
