"""What the committed metadata says, as of one offset: the values that every reader at a broker works from.

An image never changes. The next one shares with it whatever the records in between did not touch (see `draft.py` for
what a change costs), so a reader may hold one for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossId
from tidelog.metadata.acls import Acl
from tidelog.metadata.client_quotas import QuotaEntity
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.metadata.scram_credentials import ScramCredential, ScramUser


class ResourceType(IntEnum):
    """What a setting is about, with the numbers of the protocol."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ResourceKey(NamedTuple):
    """Whose settings: a topic or group by name, a broker by id, or, with an empty name, all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. A partition epoch is one version of it: any change makes a new value."""

    replicas: tuple[BrokerId, ...]
    """Who holds it, the preferred leader first."""
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    """None: nobody may lead now. That is no rewind of the leader epoch."""
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    is_recovering: bool = False
    """The leader came from an unclean election and has not settled yet."""
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    directories: tuple[UUID, ...] = ()
    """The log directory of each replica; empty where nobody said."""
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_eligible_leader_replicas: tuple[BrokerId, ...] = ()
    unclean_epoch: LeaderEpoch | None = None
    """The newest leader epoch from which on a leader may lack what was committed in older ones: it was elected
    uncleanly, or a loss of power was not covered. None where that never was so."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. `partitions[n]` is partition n."""

    name: str
    topic_id: TopicId
    partitions: Sequence[PartitionImage]


@dataclass(frozen=True, slots=True)
class RegisteredEndpoint:
    """Where a broker listens under one listener name."""

    listener_name: str
    host: str
    port: int
    security_protocol: int = 0
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker: one incarnation of it."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: UUID
    endpoints: tuple[RegisteredEndpoint, ...]
    rack: str | None
    is_fenced: bool
    """It may lead nothing, and clients are not told of it."""
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    """Name, lowest and highest level of each feature that it can work at."""

    @property
    def is_active(self) -> bool:
        """Whether it may be elected."""
        return not self.is_fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> RegisteredEndpoint | None:
        """Where it listens under that name, if it does."""
        return next((e for e in self.endpoints if e.listener_name == listener_name), None)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A registered controller: one incarnation of it (KIP-919)."""

    controller_id: BrokerId
    incarnation_id: UUID
    endpoints: tuple[RegisteredEndpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()
    """As a broker's."""

    def endpoint(self, listener_name: str) -> RegisteredEndpoint | None:
        """Where it listens under that name, if it does."""
        return next((e for e in self.endpoints if e.listener_name == listener_name), None)


class MetadataView(Protocol):
    """The metadata to read from, whether it is settled (an image) or still being worked on (a draft)."""

    @property
    def topics_by_name(self) -> Mapping[str, TopicImage]: ...
    @property
    def topics_by_id(self) -> Mapping[TopicId, TopicImage]: ...
    @property
    def brokers(self) -> Mapping[BrokerId, BrokerImage]: ...
    @property
    def controllers(self) -> Mapping[BrokerId, ControllerImage]: ...
    @property
    def configs(self) -> Mapping[ResourceKey, Mapping[str, str]]: ...
    @property
    def features(self) -> Mapping[str, int]: ...
    @property
    def next_producer_id(self) -> int: ...
    @property
    def losses(self) -> Mapping[LossId, Loss]: ...
    @property
    def open_loss_count(self) -> int: ...
    @property
    def unacknowledged_loss_count(self) -> int: ...
    @property
    def acls(self) -> Mapping[UUID, Acl]: ...
    @property
    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]: ...
    @property
    def scram_credentials(self) -> Mapping[ScramUser, ScramCredential]: ...
    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]: ...


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The metadata up to and including one offset."""

    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    configs: Mapping[ResourceKey, Mapping[str, str]] = field(default_factory=dict)
    """What was set, and nothing of what is by default."""
    features: Mapping[str, int] = field(default_factory=dict)
    """The finalized level of each feature."""
    next_producer_id: int = 0
    """The first producer id that no broker was given."""
    last_offset: Offset | None = None
    """Inclusive: the consistency token (KIP-1243). None before the first record."""
    controllers: Mapping[BrokerId, ControllerImage] = field(default_factory=dict)
    """Those that registered: they are no brokers, or Kafka's."""
    losses: Mapping[LossId, Loss] = field(default_factory=dict)
    """The account of losses, the oldest entry first; of topics that may be gone by now."""
    open_loss_count: int = 0
    """How many of its entries are open."""
    unacknowledged_loss_count: int = 0
    """How many no operator has acknowledged."""
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    """The access rules by their ids."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    """The quotas of clients, by whom they are for and by key."""
    scram_credentials: Mapping[ScramUser, ScramCredential] = field(default_factory=dict)
    """What is kept of passwords, by mechanism and user."""
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    """By their ids; some may have expired since they were last swept."""

    @staticmethod
    def empty() -> MetadataImage:
        """What is known before the first record."""
        return MetadataImage()

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: PartitionIndex) -> PartitionImage | None:
        """One partition by its topic's name, if there is one."""
        found = self.topics_by_name.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def reachable_leader(self, partition: PartitionImage) -> BrokerId | None:
        """Who leads, as clients are told: not one that is fenced, whose successor is about to be elected."""
        broker = None if partition.leader is None else self.brokers.get(partition.leader)
        return None if broker is None or broker.is_fenced else broker.broker_id

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The settings made for a topic; see `tidelog.metadata.configs` for those in force."""
        return self.configs.get(ResourceKey(ResourceType.TOPIC, name), {})

    def broker_configs(self, broker_id: BrokerId) -> Mapping[str, str]:
        """The settings made for one broker."""
        return self.configs.get(ResourceKey(ResourceType.BROKER, str(broker_id)), {})

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """The settings made for one group."""
        return self.configs.get(ResourceKey(ResourceType.GROUP, group_id), {})

    def cluster_configs(self) -> Mapping[str, str]:
        """The settings made for all brokers at once."""
        return self.configs.get(ResourceKey(ResourceType.BROKER, ""), {})
