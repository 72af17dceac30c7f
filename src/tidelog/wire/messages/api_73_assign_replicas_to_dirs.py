"""AssignReplicasToDirs (key 73): a broker tells the controller in which log directory each replica lies (KIP-858)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, int64, message, struct, uuid


@struct
class AssignedPartition:
    """One replica."""

    partition_index: int = field(int32, doc="The partition.")


@struct
class AssignedTopic:
    """The replicas of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[AssignedPartition] = field(array(AssignedPartition), default_factory=list, doc="The replicas.")


@struct
class AssignedDirectory:
    """What lies in one directory."""

    id: UUID = field(uuid, doc="The directory's id.")
    topics: list[AssignedTopic] = field(array(AssignedTopic), default_factory=list, doc="The topics.")


@message(api_key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    """Say where replicas lie."""

    broker_id: int = field(int32, doc="Whose they are.")
    broker_epoch: int = field(int64, default=-1, doc="Its incarnation.")
    directories: list[AssignedDirectory] = field(array(AssignedDirectory), default_factory=list, doc="The directories.")


@struct
class AssignedPartitionResult:
    """What became of one replica."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if the metadata says so now.")


@struct
class AssignedTopicResult:
    """The replicas of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[AssignedPartitionResult] = field(
        array(AssignedPartitionResult), default_factory=list, doc="The replicas."
    )


@struct
class AssignedDirectoryResult:
    """What lies in one directory."""

    id: UUID = field(uuid, doc="The directory's id.")
    topics: list[AssignedTopicResult] = field(array(AssignedTopicResult), default_factory=list, doc="The topics.")


@message(api_key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    """One answer per replica, unless the request was refused as a whole."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    directories: list[AssignedDirectoryResult] = field(
        array(AssignedDirectoryResult), default_factory=list, doc="The directories."
    )
