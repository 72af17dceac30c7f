"""What is asked of the controller, and what it answers: plain values, with nothing of the wire in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ClusterId,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.metadata.configs import BrokerSettings, EffectiveConfig, broker_settings
from tidelog.metadata.image import ControllerImage, MetadataView, RegisteredEndpoint, ResourceKey

PARTITION_CHANGES_MAX = 100
"""In one decision: some milliseconds of CPU at the active controller, and less at the others. Several are on their way
to a majority at a time, so that many small ones last hardly longer than few large ones."""


@dataclass(frozen=True, slots=True)
class FirstMetadata:
    """What the metadata of a new cluster begins with.

    Attributes:
        levels: of features.
        records: what else, as the users that a first client connects as.
    """

    levels: Mapping[str, int]
    records: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What this node's file says that the controller needs. The same at every controller, as far as we can help it.

    Attributes:
        cluster_id: brokers that name another one are refused.
        num_partitions: of a topic that was created without saying how many.
        replication_factor: likewise.
        delete_topic_enable: whether topics may be deleted.
        broker: its file, to tell what is in force for a topic; what was set over it, the metadata says.
        node_id: the broker whose own settings count there; None for those of all brokers only.
        partition_changes_max: so many partitions that have nothing to do with each other change in one decision at
            most; the rest follow in further decisions (`pending_changes.py`).
    """

    cluster_id: ClusterId | None = None
    num_partitions: int = 1
    replication_factor: int = 1
    delete_topic_enable: bool = True
    broker: BrokerSettings = field(default_factory=lambda: BrokerSettings.of({}))
    node_id: BrokerId | None = None
    partition_changes_max: int = PARTITION_CHANGES_MAX

    def broker_settings(self, metadata: MetadataView) -> BrokerSettings:
        """What is set for the controller's own broker, changes while running included."""
        return broker_settings(self.broker.static, metadata.configs, self.node_id)


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic to create.

    Attributes:
        num_partitions: None for the cluster's default.
        replication_factor: None for the cluster's default.
        assignments: who holds each partition, as (partition, brokers) in any order; empty to let the controller choose.
        configs: keys and values as text, as they were sent.
    """

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[tuple[int, Sequence[BrokerId]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicResult:
    """What became of one topic to create.

    Attributes:
        topic_id: None where it was not created (refused, or only validated).
        message: why it was refused.
        configs: what would be in force for it, empty where it was refused.
    """

    name: str
    code: Code
    message: str | None = None
    topic_id: TopicId | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: tuple[EffectiveConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicToDelete:
    """A topic, by its name or by its id."""

    name: str | None = None
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What became of one topic to delete. Names and ids are filled in where the controller knows them."""

    name: str | None
    topic_id: TopicId | None
    code: Code
    message: str | None = None


@dataclass(frozen=True, slots=True)
class TopicToGrow:
    """A topic that is to have more partitions.

    Attributes:
        count: in all.
        assignments: who holds each new one, in their order; None to let the controller choose.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[BrokerId]] | None = None


@dataclass(frozen=True, slots=True)
class GrownTopic:
    """What became of one topic to grow, and why it did not."""

    name: str
    code: Code
    message: str | None = None


class ConfigOperation(IntEnum):
    """What is to be done to one setting, with the numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting, what to do to it, and the value or the elements to do it with."""

    name: str
    operation: int
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigsToAlter:
    """What is to be changed of one resource.

    Attributes:
        replaces_all: whatever is not named goes back to its default.
    """

    resource: ResourceKey
    changes: Sequence[ConfigChange]
    replaces_all: bool = False


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """What became of one resource, and why it was not changed.

    Attributes:
        has_more: nothing was yet: a portion of what has to come before it was done, and it is to be asked again.
    """

    resource: ResourceKey
    code: Code
    message: str | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class BrokerToRegister:
    """A broker presents itself.

    Attributes:
        incarnation_id: drawn anew by each process.
        cluster_id: the one it belongs to; None if it does not know.
        log_dirs: the ids of its log directories.
        features: name, lowest and highest level that it supports.
        previous_broker_epoch: the last one that it was up in, if its logs lost nothing since: it stopped cleanly, or
            only its process ended, and what it had written is on disk or in memory. None after anything else (KIP-966).
    """

    broker_id: BrokerId
    incarnation_id: UUID
    endpoints: tuple[RegisteredEndpoint, ...]
    cluster_id: ClusterId | None = None
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    previous_broker_epoch: BrokerEpoch | None = None


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """What became of a registration, a fencing or an unfencing.

    Attributes:
        has_more: it is not done: a portion of what has to come before it was, and it is to be asked again.
    """

    broker_epoch: BrokerEpoch
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker says that it is alive, and what it wants.

    Attributes:
        metadata_offset: inclusive: how far its image is; None while it has none.
        wants_fence: to lead nothing, and not to be told of to clients.
        wants_shut_down: to go, once what it leads has gone to others.
        offline_log_dirs: the ids of its directories that failed since it started.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    metadata_offset: Offset | None
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_log_dirs: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What the controller takes a broker to be, once that is committed.

    Attributes:
        is_caught_up: it has seen its own registration (rule 6).
        should_shut_down: it may go now. It is fenced, and nothing else waits for it.
        has_more: a portion was done of what a broker that shuts down has to give away: to be asked again.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False
    has_more: bool = False


class UpgradeType(IntEnum):
    """Which way the level of a feature may go, with the numbers of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """Whatever the lower level cannot say is lost."""


@dataclass(frozen=True, slots=True)
class FeatureToUpdate:
    """A feature, and the level that it shall be at."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class QuorumControllers:
    """The controllers that have to be able to work at a level, as the leader of the metadata quorum knows them.

    Attributes:
        voters: of the quorum.
        others: who follows it beside them.
        registered: what controllers told the active one, whether the metadata has words for it or not.
        kraft_version: 1 where the metadata log says who votes.
        why_not_in_log: why the voters cannot be put there now; None if they can, or are there.
    """

    voters: tuple[BrokerId, ...] = ()
    others: tuple[BrokerId, ...] = ()
    registered: Mapping[BrokerId, ControllerImage] = field(default_factory=dict)
    kraft_version: int = 0
    why_not_in_log: str | None = None


NO_CONTROLLERS = QuorumControllers()
"""Where nothing but brokers counts."""


@dataclass(frozen=True, slots=True)
class UpdatedFeature:
    """What became of one feature to update, and why it was not."""

    name: str
    code: Code
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids that are one broker's to give away, from `first` on."""

    first: ProducerId
    size: int

    @property
    def end(self) -> ProducerId:
        """The exclusive end of the block."""
        return ProducerId(self.first + self.size)


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    """What became of an election in one partition, and why there was none."""

    topic_partition: TopicPartition
    code: Code
    message: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionToReassign:
    """A partition, and who is to hold it.

    Attributes:
        replicas: the preferred leader first; None to go back to those it had before it began to move.
    """

    topic_partition: TopicPartition
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignedPartition:
    """What became of one partition to reassign.

    Attributes:
        message: why it was refused; of one that was not, what it waits for.
    """

    topic_partition: TopicPartition
    code: Code
    message: str | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition on its way: all that hold it now, and which of them come and go."""

    topic_partition: TopicPartition
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
