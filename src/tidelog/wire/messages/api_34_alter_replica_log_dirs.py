"""AlterReplicaLogDirs (key 34, KIP-113): replicas of one broker are to lie in other log directories of it.

Version 2 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, message, string, struct


@struct
class AlterReplicaLogDirTopic:
    """Some partitions of one topic."""

    name: str = field(string, doc="The topic.")
    partitions: list[int] = field(array(int32), doc="The partitions.")


@struct
class AlterReplicaLogDir:
    """One directory, and what is to lie there."""

    path: str = field(string, doc="Its absolute path.")
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic), doc="Which replicas.")


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Ask one broker to move replicas that it has; the answer comes when the moves have begun."""

    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir), doc="The directories.")


@struct
class AlterReplicaLogDirPartitionResult:
    """What was said to one replica."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="Why it is not moved, or 0.")


@struct
class AlterReplicaLogDirTopicResult:
    """Some partitions of one topic."""

    topic_name: str = field(string, doc="The topic.")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        array(AlterReplicaLogDirPartitionResult), doc="The partitions."
    )


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """Each replica that was named."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    results: list[AlterReplicaLogDirTopicResult] = field(
        array(AlterReplicaLogDirTopicResult), default_factory=list, doc="The topics."
    )
