"""CreateTopics (key 19).

Version 4 takes -1 for the broker's defaults (KIP-464), 5 is flexible and answers the topic's configuration (KIP-525),
6 may be throttled (KIP-599), 7 answers the topic's id (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, boolean, field, int8, int16, int32, message, string, struct, uuid


@struct
class CreatableReplicaAssignment:
    """The replicas of one partition, chosen by hand."""

    partition_index: int = field(int32, doc="The partition.")
    broker_ids: list[int] = field(array(int32), doc="Its replicas, the preferred leader first.")


@struct
class CreatableTopicConfig:
    """A configuration of the topic."""

    name: str = field(string, doc="The key.")
    value: str | None = field(string, nullable="0+", default=None, doc="The value.")


@struct
class CreatableTopic:
    """A topic to create."""

    name: str = field(string, doc="Its name.")
    num_partitions: int = field(int32, default=-1, doc="-1: the broker's default, or as assigned by hand.")
    replication_factor: int = field(int16, default=-1, doc="-1: the broker's default, or as assigned by hand.")
    assignments: list[CreatableReplicaAssignment] = field(
        array(CreatableReplicaAssignment), default_factory=list, doc="By hand; empty: the controller chooses."
    )
    configs: list[CreatableTopicConfig] = field(
        array(CreatableTopicConfig), default_factory=list, doc="What differs from the defaults."
    )


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Create topics, each on its own: some may be refused."""

    topics: list[CreatableTopic] = field(array(CreatableTopic), doc="The topics.")
    timeout_ms: int = field(int32, default=60_000, doc="How long to wait until they are there.")
    validate_only: bool = field(boolean, versions="1+", default=False, doc="Check, and create nothing.")


@struct
class CreatableTopicConfigs:
    """A configuration that the new topic has."""

    name: str = field(string, doc="The key.")
    value: str | None = field(string, nullable="5+", default=None, doc="The value, None if it is sensitive.")
    read_only: bool = field(boolean, default=False, doc="Whether it cannot be changed.")
    config_source: int = field(int8, default=-1, doc="Where it comes from: see DescribeConfigs.")
    is_sensitive: bool = field(boolean, default=False, doc="Whether the value is kept back.")


@struct
class CreatableTopicResult:
    """What became of one topic."""

    name: str = field(string, doc="Its name.")
    topic_id: UUID = field(uuid, versions="7+", default=ZERO_UUID, ignorable=True, doc="Its id.")
    error_code: int = field(int16, default=0, doc="0 if it was created.")
    error_message: str | None = field(
        string, versions="1+", nullable="0+", default=None, ignorable=True, doc="Why it was not."
    )
    topic_config_error_code: int = field(
        int16, versions="5+", tag=0, default=0, ignorable=True, doc="Why the configuration is not answered."
    )
    num_partitions: int = field(int32, versions="5+", default=-1, ignorable=True, doc="How many it has.")
    replication_factor: int = field(int16, versions="5+", default=-1, ignorable=True, doc="Its replication factor.")
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs),
        versions="5+",
        nullable="5+",
        default_factory=list,
        ignorable=True,
        doc="Its configuration; None if the asker may not see it.",
    )


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """One answer per topic."""

    throttle_time_ms: int = field(int32, versions="2+", default=0, ignorable=True, doc="How long it was held back.")
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult), doc="The topics.")
