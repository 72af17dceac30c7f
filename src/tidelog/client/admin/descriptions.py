"""What an Admin takes and returns: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

OffsetSpec = Literal["earliest", "latest", "max_timestamp"] | int
"""Which offset: one of the ends, that of the largest timestamp, or the first at or after a time (ms since 1970)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. What is None is the broker's default."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    """Kafka's keys, as `retention.ms`, to text."""
    replica_assignments: Mapping[int, list[int]] = field(default_factory=dict)
    """Brokers of each partition, the preferred leader first; instead of the two numbers."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What became of a new topic. None where the broker does not tell (before 2.4, the id before 2.8)."""

    name: str
    topic_id: str | None
    """As Kafka prints it."""
    num_partitions: int | None
    replication_factor: int | None


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic that there is."""

    name: str
    topic_id: str | None
    is_internal: bool
    num_partitions: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Who leads and who replicates one partition."""

    partition: int
    leader: int | None
    """The broker; None if there is none at the moment."""
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None = None
    """Beside the ISR, who holds all that is committed (KIP-966); None where that was not asked, or is not told."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None
    """Who did, when nobody is left who does."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions, by number."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ConfigResource(NamedTuple):
    """What has a configuration."""

    type: Literal["topic", "broker", "group"]
    name: str
    """The name of the topic or group, or the broker's id; of brokers, "" is what they share."""


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a configuration."""

    name: str
    value: str | None
    """None if it is not set, or sensitive."""
    source: str
    """Where the value comes from: `default`, `static broker`, `dynamic broker`, `dynamic default broker`,
    `dynamic topic`, `dynamic group` or `unknown`."""
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of the cluster."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster, as one broker knows it."""

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not newer than the asked one, and its end offset, exclusive."""

    leader_epoch: int
    end_offset: int
