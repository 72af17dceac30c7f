"""`tidelog transactions`: list, describe, find those that hang, and abort them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import (
    INT64_MAX,
    Duration,
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.transaction_descriptions import (
        HangingTransaction,
        ProducerDescription,
        TransactionDescription,
    )

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
IDLE_MINUTES_MIN = 15.0
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """List the transactional ids that brokers coordinate, with the state of each one's last transaction.

    Examples:

        tidelog transactions list --state Ongoing --open-for 60
        tidelog transactions list --pattern 'copier-.*'
    """

    state: tuple[str, ...] = option(
        "--state",
        multiple=True,
        type=click.Choice(STATES, case_sensitive=False),
        help="Only those in it. May be repeated.",
    )
    producer_id: tuple[int, ...] = option(
        "--producer-id",
        multiple=True,
        type=WholeNumber(0, INT64_MAX),
        metavar="ID",
        help="Only of this producer. May be repeated.",
    )
    open_for: float | None = option(
        "--open-for",
        type=Duration(),
        default=None,
        metavar="SECONDS",
        help="Only those with a transaction that has been open for longer.",
    )
    pattern: str | None = option(
        "--pattern", default=None, metavar="REGEX", help="Only those whose whole id matches this expression (RE2)."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        open_longer_than_ms = None if self.open_for is None else round(self.open_for * 1_000)
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            listed = admin.list_transactions(
                self.state,
                producer_ids=self.producer_id,
                open_longer_than_ms=open_longer_than_ms,
                pattern=self.pattern,
            )
        rows = [
            {
                "transactional_id": each.transactional_id,
                "coordinator": each.coordinator,
                "producer_id": each.producer_id,
                "state": each.state,
            }
            for each in listed
        ]
        return Rows(rows, nothing="no transactional ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactions:
    """Show where the transaction of each ID stands, and which partitions it has written to; without one, of all ids.

    OPEN_MS is how long it has been open, by the clock of this machine. A transaction that is open for longer than
    TIMEOUT_MS is aborted by its coordinator.

    Example:

        tidelog transactions describe copier-1
    """

    ids: tuple[str, ...] = argument(metavar="[ID]...", nargs=-1)
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            names = self.ids or tuple(listing.transactional_id for listing in admin.list_transactions())
            described = admin.describe_transactions(names).values()
        return Rows([_row_of_id(each) for each in described], nothing="no transactional ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducers:
    """Show the idempotent and transactional producers that the leaders of TOPIC remember.

    START_OFFSET is where a producer's transaction begins that is open: readers of committed records stop at the
    smallest one.

    Example:

        tidelog transactions producers flights --partition 0
    """

    topic: str = argument(metavar="TOPIC")
    partition: tuple[int, ...] = option(
        "--partition", type=WholeNumber(), multiple=True, metavar="N", help="Only this one. May be repeated."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            described = admin.describe_producers(_partitions(admin, (self.topic,), self.partition))
        rows = [_row_of_producer(partition, producer) for partition, each in described.items() for producer in each]
        return Rows(rows, nothing="no producers")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindHanging:
    """Find transactions that are open on a partition, and that no coordinator will ever end.

    Consumers with isolation.level=read_committed read no further than to such a transaction, and compaction stops
    there too. Looks at all partitions, unless --topic names some; each needs a leader.

    Examples:

        tidelog transactions find-hanging
        tidelog transactions find-hanging --topic flights --idle-for 1
    """

    topic: tuple[str, ...] = option("--topic", multiple=True, metavar="TOPIC", help="Only of this one.")
    partition: tuple[int, ...] = option(
        "--partition",
        type=WholeNumber(),
        multiple=True,
        metavar="N",
        help="Only this one of the topic. May be repeated.",
    )
    idle_for: float = option(
        "--idle-for",
        type=Duration(),
        default=IDLE_MINUTES_MIN,
        metavar="MINUTES",
        help="Only where the last record is older; no less than the largest transaction.timeout.ms is safe.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if self.partition and len(self.topic) != 1:
            raise UsageError("--partition is of one topic: name it with --topic")
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            partitions = _partitions(admin, self.topic, self.partition) if self.topic else None
            found = admin.find_hanging_transactions(partitions, idle_ms_min=round(self.idle_for * MINUTE_MS))
        return Rows([_row_of_hanging(each) for each in found], nothing="no hanging transactions")


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransaction:
    """Abort the transaction that a producer has open on one partition of TOPIC, for good, without its coordinator.

    It must hang: `tidelog transactions find-hanging` shows where it begins. One that a coordinator holds open is
    refused; its producer ends it, or its time-out does.

    Example:

        tidelog transactions abort flights --partition 0 --start-offset 4711
    """

    topic: str = argument(metavar="TOPIC")
    partition: int = option("--partition", type=WholeNumber(), required=True, metavar="N", help="On this one.")
    start_offset: int | None = option(
        "--start-offset",
        type=WholeNumber(0, INT64_MAX),
        default=None,
        metavar="N",
        help="Where the transaction begins.",
    )
    producer_id: int | None = option(
        "--producer-id", type=WholeNumber(0, INT64_MAX), default=None, metavar="ID", help="Or: whose it is."
    )
    force: bool = option(
        "--force", is_flag=True, help="Even if a coordinator holds it open: then it is aborted here alone, not whole."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if (self.start_offset is None) == (self.producer_id is None):
            raise UsageError("one of --start-offset and --producer-id says which transaction")
        partition = TopicPartition(self.topic, PartitionIndex(self.partition))
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            producer = self._producer(admin, partition)
            if not self.force:
                _check_it_hangs(admin, partition, producer)
            admin.abort_transaction(
                partition,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=producer.coordinator_epoch,
            )
        aborted: Row = {
            "topic": partition.topic,
            "partition": partition.partition,
            "producer_id": producer.producer_id,
            "start_offset": producer.transaction_start_offset,
            "aborted": True,
        }
        return Rows([aborted])

    def _producer(self, admin: Admin, partition: TopicPartition) -> ProducerDescription:
        described = admin.describe_producers([partition])[partition]
        is_open = [each for each in described if each.transaction_start_offset is not None]
        for each in is_open:
            if self.start_offset in (None, each.transaction_start_offset) and self.producer_id in (
                None,
                each.producer_id,
            ):
                return each
        what = f"begins at offset {self.start_offset}"
        if self.start_offset is None:
            what = f"is of producer {self.producer_id}"
        there = ", ".join(f"{each.transaction_start_offset} (producer {each.producer_id})" for each in is_open)
        there = f"those that are open begin at {there}" if there else "none is open"
        raise refusal(Code.INVALID_TXN_STATE, f"{partition}: no open transaction {what}: {there}")


def _check_it_hangs(admin: Admin, partition: TopicPartition, producer: ProducerDescription) -> None:
    hanging = admin.find_hanging_transactions([partition], idle_ms_min=None)
    if any(
        each.producer_id == producer.producer_id and each.start_offset == producer.transaction_start_offset
        for each in hanging
    ):
        return
    held_by = admin.list_transactions(producer_ids=[producer.producer_id])
    whose = f"transactional id {held_by[0].transactional_id!r}" if held_by else f"producer {producer.producer_id}"
    raise refusal(
        Code.INVALID_TXN_STATE,
        f"{partition}: the transaction at offset {producer.transaction_start_offset} does not hang: the coordinator of "
        f"{whose} holds it open, and aborts it when its time is over. See `tidelog transactions describe`; stop its "
        "producer, or wait. --force aborts it here alone",
    )


def _partitions(admin: Admin, topics: tuple[str, ...], indexes: tuple[int, ...]) -> list[TopicPartition]:
    """All of the topics, or those with the given numbers."""
    described = admin.describe_topics(dict.fromkeys(topics))
    found = []
    for name, topic in described.items():
        there = [each.partition for each in topic.partitions]
        for index in indexes or there:
            if index not in there:
                raise UsageError(f"{name}-{index} is not there: {name} has partitions 0 to {len(there) - 1}")
            found.append(TopicPartition(name, PartitionIndex(index)))
    return found


def _row_of_id(described: TransactionDescription) -> Row:
    started_ms = described.started_ms
    return {
        "transactional_id": described.transactional_id,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "coordinator": described.coordinator,
        "timeout_ms": described.timeout_ms,
        "started_ms": started_ms,
        "open_ms": None if started_ms is None else max(0, round(time.time() * 1_000) - started_ms),
        "partitions": [str(each) for each in described.partitions],
    }


def _row_of_producer(partition: TopicPartition, producer: ProducerDescription) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "start_offset": producer.transaction_start_offset,
    }


def _row_of_hanging(found: HangingTransaction) -> Row:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "start_offset": found.start_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_timestamp_ms": found.last_timestamp_ms,
        "transactional_id": found.transactional_id,
    }
