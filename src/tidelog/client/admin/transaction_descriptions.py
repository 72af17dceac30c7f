"""What an Admin tells of transactions: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id that there is."""

    transactional_id: str
    producer_id: int
    state: str
    """`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit` or `CompleteAbort`."""
    coordinator: int
    """The broker."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, as its coordinator knows it."""

    transactional_id: str
    state: str
    """See `TransactionListing`."""
    producer_id: int
    producer_epoch: int | None
    """None before its producer began."""
    timeout_ms: int
    """After which an open transaction is aborted."""
    started_ms: int | None
    """When the transaction began, ms since 1970; None if none is open."""
    partitions: tuple[TopicPartition, ...]
    """Those that the transaction wrote to, sorted; while it ends, those that have no marker yet."""
    coordinator: int
    """The broker."""


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """An idempotent or transactional producer, as the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    """Of its last record; None if it has written nothing in its epoch."""
    last_timestamp_ms: int | None
    """The largest of its last batch, ms since 1970."""
    coordinator_epoch: int | None
    """Of the coordinator that wrote the last marker; None if none did."""
    transaction_start_offset: int | None
    """Where its open transaction begins; None if none is open. Readers of what is committed stop there."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open on a partition, and that no coordinator will end."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    """Of the last marker of the producer; None if there was none."""
    start_offset: int
    last_timestamp_ms: int | None
    """The largest of its last batch, ms since 1970."""
    transactional_id: str | None
    """That its producer has now, if a coordinator knows the producer at all."""
