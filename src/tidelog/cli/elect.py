"""`tidelog elect`: have partitions elect another leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import (
    UsageError,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows, Section, Sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.cluster_descriptions import ElectionType
    from tidelog.client.admin.descriptions import PartitionDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Have partitions elect another leader, and show who leads then.

    `--type preferred` gives partitions back to the first of their replicas, if it is in sync: so leaderships spread
    again after nodes were away. `--type unclean` lets a partition that nobody can lead be led by a replica that lives,
    though it may not hold all that was acknowledged: WHAT IT DOES NOT HOLD IS LOST, and readers are told.

    Ends with status 1 if a partition that was asked for could not elect.

    Examples:

        tidelog elect --type preferred --all
        tidelog elect --type unclean --topic flights --partition 3
    """

    type: str = option(
        "--type",
        type=click.Choice(["preferred", "unclean"]),
        required=True,
        help="preferred: the first replica; unclean: any that lives, though records are lost.",
    )
    topic: str | None = option("--topic", default=None, metavar="TOPIC", help="The topic.")
    partition: tuple[int, ...] = option(
        "--partition",
        type=click.IntRange(min=0),
        multiple=True,
        metavar="N",
        help="A partition of it; else all of them. May be repeated.",
    )
    all: bool = option("--all", is_flag=True, help="All partitions of all topics that need it.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        if self.all == (self.topic is not None):
            raise UsageError("say which partitions: --topic TOPIC, with --partition N if you like, or --all")
        if self.partition and self.topic is None:
            raise UsageError("--partition needs --topic")
        election: ElectionType = "unclean" if self.type == "unclean" else "preferred"
        return Sections(self._sections(election))

    def _sections(self, election: ElectionType) -> Iterator[Section]:
        """What came of it; and then the error, if a partition could not elect."""
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            results = admin.elect_leaders(election, self._partitions(admin))
            described = admin.describe_topics(sorted({each.topic for each in results})) if results else {}
        leaders = {
            TopicPartition(name, PartitionIndex(each.partition)): each
            for name, topic in described.items()
            for each in topic.partitions
        }
        rows = [_row(partition, leaders.get(partition), error) for partition, error in results.items()]
        facts = {"type": self.type}
        yield Section(f"{self.type} election", facts, Rows(rows, nothing="no partition needs it"))
        failed = [error for error in results.values() if error and error.code is not Code.ELECTION_NOT_NEEDED]
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise KafkaError(f"{failed[0]}{more}", code=failed[0].code)

    def _partitions(self, admin: Admin) -> list[TopicPartition] | None:
        if self.topic is None:
            return None
        indexes = self.partition
        if not indexes:
            indexes = tuple(each.partition for each in admin.describe_topics([self.topic])[self.topic].partitions)
        return [TopicPartition(self.topic, PartitionIndex(index)) for index in dict.fromkeys(indexes)]


def _row(partition: TopicPartition, state: PartitionDescription | None, error: KafkaError | None) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if state is None else state.leader,
        "leader_epoch": None if state is None else state.leader_epoch,
        "outcome": "elected" if error is None else error.code.name,
    }
