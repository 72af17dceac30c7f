"""Idempotence: the numbers by which a leader tells a retry from new records, and a loss from both.

Each partition counts its records from 0 under a producer id. A batch gets its sequence when it is first sent and keeps
it through all retries. When a sent batch fails for good there is a *hole*: the next sequence that the leader expects
may be the failed one's. While a hole stands, only batches whose own fate is unknown are sent; then it closes:

    refused for certain                          -> the later batches take its sequences again
    unknown (time ran out), a later one accepted -> it was written after all; nothing to do
    unknown, and the later ones are refused      -> a new producer id, from 0: the lost request may still be under way,
                                                    and must not pass for the records that come next
"""

from __future__ import annotations

from tidelog.base.errors import Code
from tidelog.base.invariant import invariant
from tidelog.client.core.accumulator import Hole, PartitionQueue, PendingBatch

SEQUENCE_END = 1 << 31
"""Sequences wrap to 0 here."""

REMEMBERED_BATCHES = 5
"""As many of a producer's latest batches does a leader remember in each partition, to recognise duplicates."""

REFUSED_BEFORE_APPEND = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.MESSAGE_TOO_LARGE,
        Code.INVALID_TOPIC_EXCEPTION,
        Code.RECORD_LIST_TOO_LARGE,
        Code.NOT_ENOUGH_REPLICAS,
        Code.INVALID_REQUIRED_ACKS,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.INVALID_TIMESTAMP,
        Code.INVALID_REQUEST,
        Code.UNSUPPORTED_VERSION,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Code.UNSUPPORTED_COMPRESSION_TYPE,
        Code.INVALID_RECORD,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.INVALID_PRODUCER_EPOCH,
        Code.UNKNOWN_PRODUCER_ID,
        Code.PRODUCER_FENCED,
        Code.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes that tell for certain that this attempt wrote nothing. After any other the records may be in the log."""


def assign_sequence(queue: PartitionQueue, batch: PendingBatch) -> None:
    """Give a batch that is about to be sent for the first time its place in the count."""
    invariant(queue.producer_id >= 0, "{}: a sequence without a producer id", queue.topic_partition)
    batch.producer_id = queue.producer_id
    batch.producer_epoch = queue.producer_epoch
    batch.sequence = queue.next_sequence
    batch.encoded = None
    batch.ordinal = queue.next_ordinal
    queue.next_ordinal += 1
    queue.next_sequence = (queue.next_sequence + batch.record_count) % SEQUENCE_END


def is_room_for_another(queue: PartitionQueue) -> bool:
    """Whether one more batch may have a sequence, and the leader would still recognise the oldest unanswered one.

    It counts those that were answered since: they too have taken a place in the leader's memory.
    """
    unanswered = [batch.ordinal for batch in queue.in_flight]
    unanswered += [batch.ordinal for batch in queue.waiting if batch.sequence is not None]
    return not unanswered or queue.next_ordinal - min(unanswered) < REMEMBERED_BATCHES


def next_to_send(queue: PartitionQueue) -> PendingBatch | None:
    """The waiting batch whose turn it is: the first; but behind a hole, only one whose own fate is unknown."""
    if not queue.waiting:
        return None
    first = queue.waiting[0]
    if not queue.holes or first.number < queue.holes[0].number:
        return first
    return next((batch for batch in queue.waiting if batch.may_be_written), None)


def on_batch_failed(queue: PartitionQueue, batch: PendingBatch) -> None:
    """A batch failed for good. If it had a sequence, that is a hole now."""
    if batch.sequence is not None:
        queue.holes.append(Hole(batch.number, batch.sequence, batch.may_be_written))
        queue.holes.sort(key=_by_number)


def on_batch_accepted(queue: PartitionQueue, batch: PendingBatch) -> None:
    """The leader took a batch, so it has all that came before it."""
    if queue.holes:
        queue.holes = [hole for hole in queue.holes if hole.number > batch.number]


def is_explained(queue: PartitionQueue, batch: PendingBatch) -> bool:
    """Whether OUT_OF_ORDER_SEQUENCE_NUMBER for `batch` (which is no longer in flight) is our own doing.

    It is if there is a hole before it, or an earlier batch is still to be written. If not, the log has lost what it
    acknowledged.
    """
    if any(hole.number <= batch.number for hole in queue.holes):
        return True
    earlier = (*queue.waiting, *queue.in_flight)
    return any(other.number < batch.number and other.sequence is not None for other in earlier)


def can_close_holes(queue: PartitionQueue) -> bool:
    """Whether there are holes, and no answer is left that could tell more of them."""
    return bool(queue.holes) and not queue.in_flight and not any(batch.may_be_written for batch in queue.waiting)


def needs_new_producer_id(queue: PartitionQueue) -> bool:
    """Whether the holes can only be closed by counting anew under another producer id."""
    return can_close_holes(queue) and any(hole.may_be_written for hole in queue.holes)


def close_holes(queue: PartitionQueue) -> None:
    """Let the later batches take the sequences of those that were refused for certain. Earlier ones keep theirs."""
    invariant(can_close_holes(queue) and not needs_new_producer_id(queue), "{}: {}", queue.topic_partition, queue.holes)
    first = queue.holes[0]
    queue.next_sequence = first.sequence
    _forget_sequences(queue, behind=first.number)


def start_anew(queue: PartitionQueue, producer_id: int, producer_epoch: int) -> None:
    """Count from 0 under a producer id that the partition has not seen."""
    queue.producer_id = producer_id
    queue.producer_epoch = producer_epoch
    queue.next_sequence = 0
    _forget_sequences(queue, behind=-1)


def _forget_sequences(queue: PartitionQueue, *, behind: int) -> None:
    queue.holes.clear()
    for batch in queue.waiting:
        if batch.number > behind:
            batch.sequence = None
            batch.encoded = None


def _by_number(hole: Hole) -> int:
    return hole.number
