"""`tidelog topics`: create, list, describe, alter and delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, TopicAlreadyExistsError
from tidelog.cli.command import (
    INT16_MAX,
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    config_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.configs import changed_configs
from tidelog.cli.deletion import delete_each
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.descriptions import PartitionDescription, TopicDescription


def summary(topic: TopicDescription) -> Row:
    """A topic as one row."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create TOPIC.

    Example:

        tidelog topics create flights --partitions 4 --config max.message.bytes=2000000
    """

    topic: str = argument(metavar="TOPIC")
    partitions: int | None = option(
        "--partitions",
        type=WholeNumber(1),
        default=None,
        metavar="N",
        help="How many; else the broker's default.",
    )
    replication_factor: int | None = option(
        "--replication-factor",
        type=WholeNumber(1, INT16_MAX),
        default=None,
        metavar="N",
        help="Replicas of each partition.",
    )
    config: tuple[tuple[str, str], ...] = config_option("A setting of the topic, by Kafka's key. May be repeated.")
    if_not_exists: bool = option("--if-not-exists", is_flag=True, help="It is no failure if the topic is there.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            from tidelog import NewTopic

            topic = NewTopic(self.topic, self.partitions, self.replication_factor, dict(self.config))
            try:
                (made,) = admin.create_topics([topic])
            except TopicAlreadyExistsError:
                if not self.if_not_exists:
                    raise
                return Rows([summary(admin.describe_topics([self.topic])[self.topic])])
        return Rows(
            [
                {
                    "topic": made.name,
                    "topic_id": made.topic_id,
                    "partitions": made.num_partitions,
                    "replication_factor": made.replication_factor,
                }
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopics:
    """List the topics.

    Example:

        tidelog topics list --output json
    """

    internal: bool = option("--internal", is_flag=True, help="Those that brokers keep for themselves, too.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            topics = admin.describe_topics()
        rows = [summary(topic) for topic in topics.values() if self.internal or not topic.is_internal]
        return Rows(rows, nothing="no topics")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopics:
    """Show the partitions of each TOPIC, who leads them and who is in sync; or its settings.

    Without a name, of all topics. ELIGIBLE are replicas outside the ISR that hold all that was acknowledged, and may
    lead; LAST KNOWN ELIGIBLE those that did when nobody was left who does. With several filters a partition is shown
    that passes any of them.

    Examples:

        tidelog topics describe flights
        tidelog topics describe flights --configs
        tidelog topics describe --under-replicated --offline
    """

    topics: tuple[str, ...] = argument(metavar="[TOPIC]...", nargs=-1)
    configs: bool = option("--configs", is_flag=True, help="The settings, those that are not defaults first.")
    under_replicated: bool = option(
        "--under-replicated", is_flag=True, help="Only partitions with a replica that is not in sync."
    )
    offline: bool = option("--offline", is_flag=True, help="Only partitions without a leader.")
    at_min_isr: bool = option(
        "--at-min-isr", is_flag=True, help="Only those with as many in sync as acks=all needs, and no more."
    )
    under_min_isr: bool = option(
        "--under-min-isr", is_flag=True, help="Only those with fewer in sync than acks=all needs."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if self.configs and self._filters:
            raise UsageError("--configs shows settings, which no partition's state filters: give one or the other")
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            if self.configs:
                topics = admin.describe_topics(self.topics or None)
                return Rows(self._configs(admin, list(topics)), nothing="no topics")
            topics = admin.describe_topics(self.topics or None, include_eligible_leaders=True)
            rows = self._partitions(admin, topics.values())
        return Rows(rows, nothing=f"no partition is {' or '.join(self._filters)}" if self._filters else "no topics")

    @property
    def _filters(self) -> list[str]:
        """What partitions are asked for, each as the end of a sentence."""
        asked = {
            "under-replicated": self.under_replicated,
            "offline": self.offline,
            "at its min.insync.replicas": self.at_min_isr,
            "under its min.insync.replicas": self.under_min_isr,
        }
        return [words for words, is_asked in asked.items() if is_asked]

    def _configs(self, admin: Admin, names: list[str]) -> list[Row]:
        from tidelog.client.admin.descriptions import ConfigResource

        found = admin.describe_configs([ConfigResource("topic", name) for name in names])
        return [
            {"topic": resource.name, "key": entry.name, "value": entry.value, "source": entry.source}
            for resource, entries in found.items()
            for entry in sorted(entries.values(), key=lambda entry: (entry.is_default, entry.name))
        ]

    def _partitions(self, admin: Admin, topics: Iterable[TopicDescription]) -> list[Row]:
        held = list(topics)
        needed = self._min_insync_replicas(admin, [topic.name for topic in held])
        return [
            _partition_row(topic.name, partition)
            for topic in held
            for partition in topic.partitions
            if not self._filters or self._passes(partition, needed.get(topic.name, 1))
        ]

    def _min_insync_replicas(self, admin: Admin, names: list[str]) -> dict[str, int]:
        """What each topic asks for, where that is asked."""
        if not names or not (self.at_min_isr or self.under_min_isr):
            return {}
        from tidelog.client.admin.descriptions import ConfigResource

        found = admin.describe_configs([ConfigResource("topic", name) for name in names])
        return {each.name: int(entries["min.insync.replicas"].value or 1) for each, entries in found.items()}

    def _passes(self, partition: PartitionDescription, min_insync_replicas: int) -> bool:
        # A topic with fewer replicas than it wants in sync takes writes when all of them are.
        needed = min(min_insync_replicas, len(partition.replicas))
        return (
            (self.under_replicated and len(partition.isr) < len(partition.replicas))
            or (self.offline and partition.leader is None)
            or (self.at_min_isr and len(partition.isr) == needed)
            or (self.under_min_isr and len(partition.isr) < needed)
        )


def _partition_row(topic: str, partition: PartitionDescription) -> Row:
    row: dict[str, object] = {
        "topic": topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "replicas": partition.replicas,
    }
    if partition.eligible_leader_replicas is not None:
        row["eligible"] = partition.eligible_leader_replicas or None
        row["last_known_eligible"] = partition.last_known_eligible_leader_replicas or None
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopic:
    """Give TOPIC more partitions, or other settings. What is not named stays as it is.

    With more partitions, records with a key may go to another partition from then on.

    Examples:

        tidelog topics alter flights --partitions 8
        tidelog topics alter flights --config retention.ms=3600000 --delete-config segment.bytes
    """

    topic: str = argument(metavar="TOPIC")
    partitions: int | None = option(
        "--partitions", type=WholeNumber(1), default=None, metavar="N", help="How many it is to have in all."
    )
    config: tuple[tuple[str, str], ...] = config_option("A setting to make, by Kafka's key. May be repeated.")
    delete_config: tuple[str, ...] = option(
        "--delete-config", multiple=True, metavar="KEY", help="A setting to take back to its default. May be repeated."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        from tidelog import ConfigResource

        changes = changed_configs(self.config, self.delete_config)
        if self.partitions is None and not changes:
            raise UsageError("nothing is to be changed: say --partitions, --config or --delete-config")
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            # What can be refused is asked first, so that a refusal leaves the topic as it was.
            resource = ConfigResource("topic", self.topic)
            if changes:
                admin.alter_configs({resource: changes}, validate_only=True)
            if self.partitions is not None:
                admin.create_partitions({self.topic: self.partitions})
            if changes:
                admin.alter_configs({resource: changes})
            return Rows([summary(admin.describe_topics([self.topic])[self.topic])])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    """Delete each TOPIC, with all its records.

    Example:

        tidelog topics delete flights
    """

    topics: tuple[str, ...] = argument(metavar="TOPIC...", nargs=-1, required=True)
    if_exists: bool = option("--if-exists", is_flag=True, help="It is no failure if one is not there.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            return delete_each(
                self.topics,
                lambda topic: admin.delete_topics([topic]),
                absent=Code.UNKNOWN_TOPIC_OR_PARTITION,
                may_be_absent=self.if_exists,
            )
