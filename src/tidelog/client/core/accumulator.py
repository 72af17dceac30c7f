"""What a producer has taken and not yet delivered: records in batches, batches in the order of their partition.

append ->  [open batch]  --full, linger over, flush-->  waiting: b5 b4 | in flight: b3 b2 b1  --> outcome
                                                        (a refused batch goes back to its place by number)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.base.errors import TidelogError
from tidelog.base.ids import LeaderEpoch, TopicId, TopicPartition
from tidelog.records.columns import EncodedRecords
from tidelog.records.header import BATCH_OVERHEAD

RECORD_OVERHEAD_MAX = 36
"""Bytes of a record beside its key, value and headers, at the most: lengths, deltas, attributes, header count."""

HEADER_OVERHEAD_MAX = 10
"""Bytes of a header beside its key and value, at the most."""

RecordHeaders = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker has the batch."""

    base_offset: int | None
    """None where it is not told: acks=0, or a duplicate whose place the broker has forgotten."""
    log_append_time: int | None
    leader_epoch: LeaderEpoch | None


class PendingBatch:
    """Records for one partition that go, and succeed or fail, together.

    The records are either four parallel lists, or `rows` that were encoded from columns. `encoded` is the whole batch,
    kept for retries, and dropped when the sequence changes.
    """

    __slots__ = (
        "attempts",
        "created_ms",
        "encoded",
        "header_count",
        "headers",
        "is_observed",
        "keys",
        "may_be_written",
        "not_before_ms",
        "number",
        "ordinal",
        "outcome",
        "producer_epoch",
        "producer_id",
        "record_count",
        "rows",
        "sent_leader_epoch",
        "sequence",
        "size_bytes",
        "ticket",
        "timestamps",
        "topic_partition",
        "values",
        "was_sent",
        "why",
    )

    def __init__(self, number: int, topic_partition: TopicPartition, created_ms: int, ticket: object) -> None:
        self.number = number  # grows over all batches of a producer: the order of appending
        self.topic_partition = topic_partition
        self.created_ms = created_ms
        self.ticket = ticket  # the shell's own, for those who wait
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[RecordHeaders] = []
        self.header_count = 0
        self.rows: EncodedRecords | None = None
        self.record_count = 0  # set when the batch is closed
        self.size_bytes = BATCH_OVERHEAD  # an upper bound, before compression
        self.encoded: bytes | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequence: int | None = None  # of the first record
        self.ordinal = 0  # of the sequence: how many batches of the partition were given one before
        self.attempts = 0
        self.not_before_ms = 0
        self.was_sent = False  # in an attempt that has ended
        self.may_be_written = False  # an attempt of which no answer tells whether the log has it
        self.sent_leader_epoch: LeaderEpoch | None = None
        self.why: TidelogError | None = None  # of the last failed attempt
        self.outcome: Delivered | TidelogError | None = None
        self.is_observed = False  # somebody asked for the outcome

    def __repr__(self) -> str:
        return (
            f"PendingBatch({self.number}, {self.topic_partition}, sequence={self.sequence}, attempts={self.attempts})"
        )


@dataclass(frozen=True, slots=True)
class Hole:
    """A batch with a sequence failed for good, and no later one of its partition was accepted yet."""

    number: int
    sequence: int
    may_be_written: bool


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition, and where its sequences stand. `sequences` gives the fields their meaning."""

    topic_partition: TopicPartition
    topic_id: TopicId | None = None
    open: PendingBatch | None = None
    waiting: deque[PendingBatch] = field(default_factory=deque)
    in_flight: list[PendingBatch] = field(default_factory=list)
    producer_id: int = -1
    producer_epoch: int = -1
    next_sequence: int = 0
    next_ordinal: int = 0
    holes: list[Hole] = field(default_factory=list)
    last_acked_number: int = -1
    last_acked_offset: int | None = None

    def put_back(self, batch: PendingBatch) -> None:
        """Return a batch to its place among those that wait, which is by number."""
        index = 0
        for waiting in self.waiting:
            if waiting.number > batch.number:
                break
            index += 1
        self.waiting.insert(index, batch)


class Accumulator:
    """All queues of a producer, and how many bytes are in them. Not thread-safe: its owner holds a lock."""

    __slots__ = ("batch_size_bytes", "buffer_size_bytes", "linger_ms", "next_number", "queues", "used_bytes")

    def __init__(self, *, batch_size_bytes: int, buffer_size_bytes: int, linger_ms: int) -> None:
        self.batch_size_bytes = batch_size_bytes
        self.buffer_size_bytes = buffer_size_bytes
        self.linger_ms = linger_ms
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.used_bytes = 0
        self.next_number = 0

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, made on first use."""
        queue = self.queues.get(topic_partition)
        if queue is None:
            queue = self.queues[topic_partition] = PartitionQueue(topic_partition)
        return queue

    def open_batch(self, queue: PartitionQueue, now_ms: int, ticket: object) -> PendingBatch:
        """Close what is open, and open a batch. `ticket` is the shell's."""
        self.close_batch(queue)
        batch = PendingBatch(self.next_number, queue.topic_partition, now_ms, ticket)
        self.next_number += 1
        self.used_bytes += batch.size_bytes
        queue.open = batch
        return batch

    def close_batch(self, queue: PartitionQueue) -> None:
        """The open batch takes no more records; it waits to be sent."""
        batch = queue.open
        if batch is not None:
            batch.record_count = len(batch.timestamps)
            queue.open = None
            queue.waiting.append(batch)

    def add_rows(self, queue: PartitionQueue, rows: EncodedRecords, now_ms: int, ticket: object) -> PendingBatch:
        """Queue a batch of rows, after all that was appended before it."""
        batch = self.open_batch(queue, now_ms, ticket)
        batch.rows = rows
        batch.record_count = rows.record_count
        batch.size_bytes += len(rows.records)
        self.used_bytes += len(rows.records)
        queue.open = None
        queue.waiting.append(batch)
        return batch

    def oldest_number(self) -> int:
        """The number of the oldest batch that has no outcome yet; that of the next batch if there is none."""
        oldest = self.next_number
        for queue in self.queues.values():
            for batch in (queue.open, *queue.waiting, *queue.in_flight):
                if batch is not None and batch.number < oldest:
                    oldest = batch.number
        return oldest

    def release(self, batch: PendingBatch) -> None:
        """Forget a batch whose outcome is known. Who waits for it holds the batch itself, and needs its timestamps."""
        self.used_bytes -= batch.size_bytes
        batch.keys = []
        batch.values = []
        batch.headers = []
        batch.rows = None
        batch.encoded = None
