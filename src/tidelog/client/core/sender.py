"""What a producer sends next, and what an answer means: order, retries, idempotence, and losses that show.

A machine: `take_sends` says which batches go to which broker now; `on_*` tells it what became of them; batches whose
outcome is known come out of `take_done`. Order within a partition is kept through every retry: with idempotence up to
five batches of a partition are under way, without it one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.base.errors import (
    Code,
    KafkaError,
    RecordsLostError,
    TidelogError,
    TimedOutError,
    TransactionAbortedError,
    refusal,
)
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.client.core import sequences
from tidelog.client.core.accumulator import Accumulator, Delivered, Hole, PartitionQueue, PendingBatch
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.client.core.transaction import CONCURRENT_BACKOFF_MS, FENCED, ProducerTransactions
from tidelog.client.core.transaction import FATAL as FATAL_IN_TRANSACTIONS
from tidelog.client.core.values import ProducerStatistics

STALE_LEADER = frozenset(
    {
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.LEADER_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.KAFKA_STORAGE_ERROR,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.BROKER_NOT_AVAILABLE,
        Code.LISTENER_NOT_FOUND,
    }
)
"""Codes after which the metadata is asked for again."""

FATAL = frozenset(
    {
        Code.INVALID_PRODUCER_EPOCH,
        Code.PRODUCER_FENCED,
        Code.TRANSACTION_COORDINATOR_FENCED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Codes after which this producer can deliver nothing any more."""


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """What of a producer's configuration concerns sending; times in ms."""

    idempotent: bool
    acks: int
    in_flight_requests_max: int
    request_size_bytes_max: int
    delivery_timeout_ms: int


@dataclass(slots=True)
class ProduceSend:
    """One Produce request: a batch for each of some partitions, all led by one broker."""

    broker_id: BrokerId
    batches: list[PendingBatch] = field(default_factory=list)
    size_bytes: int = 0


class BatchAnswer(NamedTuple):
    """What a broker said of one batch. -1 of the wire is None."""

    code: Code
    message: str | None = None
    base_offset: int | None = None
    log_append_time: int | None = None
    log_start_offset: int | None = None


@dataclass(slots=True)
class SendCounts:
    """What became of batches since the start. See `ProducerStatistics`."""

    records_delivered: int = 0
    batches_delivered: int = 0
    bytes_delivered: int = 0
    records_failed: int = 0
    batches_retried: int = 0
    losses: int = 0


class Sender:
    """See the module.

    Args:
        accumulator: the queues that it empties. Whoever calls here holds the lock that guards them.
        metadata: who leads what.
        settings: of the producer.
        retry_delay_ms: how long to wait after attempt n (from 1) of a batch; jitter included.
        transactions: of the producer, if it is transactional: says which batches may go, and hears what failed.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: MetadataCache,
        settings: SenderSettings,
        retry_delay_ms: Callable[[int], int],
        transactions: ProducerTransactions | None = None,
    ) -> None:
        self.accumulator = accumulator
        self.transactions = transactions
        self.metadata = metadata
        self.settings = settings
        self.fatal: TidelogError | None = None
        self.producer_id: tuple[int, int] | None = None
        self.needs_producer_id = False
        self.needs_metadata: set[str] = set()
        self._retry_delay_ms = retry_delay_ms
        self._in_flight: dict[BrokerId, int] = {}
        self._done: list[PendingBatch] = []
        self._losses: list[RecordsLostError] = []
        self._counts = SendCounts()

    # What to do.
    def take_sends(self, now_ms: int, *, flushing: bool, ready: Callable[[BrokerId], bool]) -> list[ProduceSend]:
        """The requests to send now, in order. Afterwards each owes one `on_answer` per batch, or one `on_lost`.

        Args:
            now_ms: monotonic.
            flushing: send open batches as well, before their linger is over.
            ready: whether there is a connection to a broker; asking may make the shell open one.
        """
        sends: list[ProduceSend] = []
        if self.fatal is not None or (self.transactions is not None and not self.transactions.takes_batches):
            return sends
        queues = [queue for queue in self.accumulator.queues.values() if queue.open is not None or queue.waiting]
        for queue in queues:
            self._expire(queue, now_ms)
        while queues:  # each round takes at most one batch of a partition, so that none starves the others
            going: list[PartitionQueue] = []
            requests: dict[BrokerId, ProduceSend] = {}
            for queue in queues:
                batch = self._next_batch(queue, now_ms, flushing=flushing)
                leader = self._leader(queue.topic_partition) if batch is not None else None
                if batch is None or leader is None or not ready(leader[0]):
                    continue
                send = requests.get(leader[0])
                if send is None or send.size_bytes + batch.size_bytes > self.settings.request_size_bytes_max:
                    if self._in_flight.get(leader[0], 0) >= self.settings.in_flight_requests_max:
                        continue
                    self._in_flight[leader[0]] = self._in_flight.get(leader[0], 0) + 1
                    send = requests[leader[0]] = ProduceSend(leader[0])
                    sends.append(send)
                self._start(queue, batch, leader[1])
                send.batches.append(batch)
                send.size_bytes += batch.size_bytes
                going.append(queue)
            queues = going
        return sends

    def take_done(self) -> list[PendingBatch]:
        """Batches whose outcome is known since the last call, in the order in which it became known."""
        done, self._done = self._done, []
        return done

    def take_losses(self) -> list[RecordsLostError]:
        """Losses of acknowledged records that showed since the last call."""
        losses, self._losses = self._losses, []
        self._counts.losses += len(losses)
        return losses

    def statistics(self, now_ms: int) -> ProducerStatistics:
        """How all of it stands."""
        counts, queues = self._counts, self.accumulator.queues.values()
        waiting = [batch for queue in queues for batch in (queue.open, *queue.waiting) if batch is not None]
        in_flight = [batch for queue in queues for batch in queue.in_flight]
        oldest_ms = min((batch.created_ms for batch in (*waiting, *in_flight)), default=now_ms)
        return ProducerStatistics(
            records_delivered=counts.records_delivered,
            batches_delivered=counts.batches_delivered,
            bytes_delivered=counts.bytes_delivered,
            records_failed=counts.records_failed,
            batches_retried=counts.batches_retried,
            losses=counts.losses,
            batches_waiting=len(waiting),
            batches_in_flight=len(in_flight),
            buffered_bytes=self.accumulator.used_bytes,
            oldest_batch_ms=now_ms - oldest_ms,
        )

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `take_sends` may have more to say though nothing happened: linger, back-off, expiry."""
        deadline: int | None = None
        for queue in self.accumulator.queues.values():
            if queue.open is not None and not queue.waiting:
                due = queue.open.created_ms + self.accumulator.linger_ms
                deadline = due if deadline is None else min(deadline, due)
            if queue.waiting:
                first = queue.waiting[0]
                due = first.created_ms + self.settings.delivery_timeout_ms
                if first.not_before_ms > now_ms:
                    due = min(due, first.not_before_ms)
                deadline = due if deadline is None else min(deadline, due)
        return deadline

    # What happened.
    def on_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """A broker gave us an id (InitProducerId)."""
        self.producer_id = (producer_id, producer_epoch)
        self.needs_producer_id = False

    def on_request_ended(self, broker_id: BrokerId) -> None:
        """A request is answered, or lost: there is room for another."""
        self._in_flight[broker_id] -= 1

    def on_answer(self, batch: PendingBatch, answer: BatchAnswer, now_ms: int) -> None:
        """The leader answered for one batch."""
        queue = self.accumulator.queue(batch.topic_partition)
        queue.in_flight.remove(batch)
        self._count_sent(batch)
        code = answer.code
        if code is Code.NONE or code is Code.DUPLICATE_SEQUENCE_NUMBER:
            self._on_delivered(queue, batch, answer)
            return
        error = KafkaError(f"{batch.topic_partition}: {answer.message or code.meaning} ({code.name})", code=code)
        error.partition = batch.topic_partition
        if code not in sequences.REFUSED_BEFORE_APPEND:
            batch.may_be_written = True
        if code in STALE_LEADER:
            self.needs_metadata.add(batch.topic_partition.topic)
        if batch.sequence is not None and code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID):
            self._on_out_of_order(queue, batch, answer, error, now_ms)
        elif self.transactions is not None and (code in FENCED or code in FATAL_IN_TRANSACTIONS):
            self._end_transactions(queue, batch, error)
        elif code in FATAL:
            self._fail(queue, batch, error)
            self.fail_all(error)
        elif code.retriable:
            self._retry(queue, batch, error, now_ms)
        else:
            self._fail(queue, batch, error)

    def on_lost(self, batch: PendingBatch, error: TidelogError, now_ms: int, *, sent: bool) -> None:
        """No answer will come: the connection broke, or (`sent` false) nothing was sent at all."""
        queue = self.accumulator.queue(batch.topic_partition)
        queue.in_flight.remove(batch)
        if sent:
            self._count_sent(batch)
            batch.may_be_written = True
        self.needs_metadata.add(batch.topic_partition.topic)
        if isinstance(error, KafkaError) and not error.retriable:
            self._fail(queue, batch, error)
        else:
            self._retry(queue, batch, error, now_ms)

    def on_unacknowledged(self, batch: PendingBatch) -> None:
        """Sent with acks=0: nobody will ever tell more."""
        queue = self.accumulator.queue(batch.topic_partition)
        queue.in_flight.remove(batch)
        self._count_sent(batch)
        self._finish(batch, Delivered(None, None, batch.sent_leader_epoch))

    def on_topics_changed(self, topics: Collection[str]) -> None:
        """Metadata changed: a recreated topic starts its offsets and sequences anew."""
        for queue in self.accumulator.queues.values():
            topic = queue.topic_partition.topic
            topic_id = self.metadata.topic_id(topic)
            if topic in topics and topic_id is not None and topic_id != queue.topic_id:
                if queue.topic_id is not None:
                    queue.last_acked_offset = None
                    if self.transactions is not None:
                        self._on_recreated(queue, self.transactions)
                    elif self.settings.idempotent and queue.producer_id >= 0:
                        queue.holes.append(Hole(self.accumulator.next_number, 0, may_be_written=True))
                queue.topic_id = topic_id

    def close_open(self) -> None:
        """No open batch takes more records."""
        for queue in self.accumulator.queues.values():
            self.accumulator.close_batch(queue)

    def drop_waiting(self, error: TidelogError) -> None:
        """The transaction is not to be committed: all that is not in flight fails now, the rest as it comes back."""
        self.close_open()
        for queue in self.accumulator.queues.values():
            while queue.waiting:
                self._fail(queue, queue.waiting.popleft(), error)

    def fail_all(self, error: TidelogError) -> None:
        """This producer is done: all that is not in flight fails now, the rest as it comes back."""
        self.fatal = self.fatal or error
        if self.transactions is not None:
            self.transactions.fail(error)
        for queue in self.accumulator.queues.values():
            self.accumulator.close_batch(queue)
            while queue.waiting:
                self._finish(queue.waiting.popleft(), error)

    def abort_in_flight(self, error: TidelogError) -> None:
        """The producer closes without waiting: nobody will tell what became of these."""
        for queue in self.accumulator.queues.values():
            for batch in queue.in_flight:
                self._finish(batch, error)
            queue.in_flight.clear()

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, which notes the topic id when it is made."""
        queue = self.accumulator.queue(topic_partition)
        if queue.topic_id is None:
            queue.topic_id = self.metadata.topic_id(topic_partition.topic)
        return queue

    # How.
    def _next_batch(self, queue: PartitionQueue, now_ms: int, *, flushing: bool) -> PendingBatch | None:
        # Behind others it stays open and takes further records, however long they wait.
        is_over = queue.open is not None and queue.open.created_ms + self.accumulator.linger_ms <= now_ms
        if queue.open is not None and (flushing or (is_over and not queue.waiting)):
            self.accumulator.close_batch(queue)
        if not queue.waiting:
            return None
        if not self.settings.idempotent:
            if queue.in_flight and self.settings.acks:
                return None  # one at a time, so that a retry does not overtake
            batch: PendingBatch | None = queue.waiting[0]
        elif self._can_count(queue):
            batch = sequences.next_to_send(queue)
            if batch is not None and batch.sequence is None and not sequences.is_room_for_another(queue):
                return None
        else:
            return None
        return None if batch is None or batch.not_before_ms > now_ms else batch

    def _can_count(self, queue: PartitionQueue) -> bool:
        """See to it that batches can be given sequences. False while that has to wait for a producer id."""
        if self.transactions is not None:
            return self._can_count_in_transaction(queue, self.transactions)
        if queue.producer_id >= 0 and not sequences.can_close_holes(queue):
            return True
        if queue.producer_id >= 0 and not sequences.needs_new_producer_id(queue):
            sequences.close_holes(queue)
        elif self.producer_id is None or self.producer_id[0] == queue.producer_id:
            self.needs_producer_id = True
            return False
        else:
            sequences.start_anew(queue, *self.producer_id)
        return True

    def _can_count_in_transaction(self, queue: PartitionQueue, transactions: ProducerTransactions) -> bool:
        """As `_can_count`. All partitions count under the one id and epoch; a failure ends in the next epoch."""
        producer = transactions.producer
        if producer is None or not transactions.may_send(queue.topic_partition):
            return False
        if (queue.producer_id, queue.producer_epoch) != producer:
            invariant(not queue.in_flight, "{}: in flight from an epoch that is over", queue.topic_partition)
            sequences.start_anew(queue, *producer)
        return True

    def _leader(self, topic_partition: TopicPartition) -> tuple[BrokerId, LeaderEpoch | None] | None:
        view = self.metadata.partition(topic_partition)
        if view is None or view.leader_id is None or view.leader_id not in self.metadata.brokers:
            self.needs_metadata.add(topic_partition.topic)
            return None
        return view.leader_id, view.leader_epoch

    def _start(self, queue: PartitionQueue, batch: PendingBatch, leader_epoch: LeaderEpoch | None) -> None:
        queue.waiting.remove(batch)
        queue.in_flight.append(batch)
        if self.settings.idempotent and batch.sequence is None:
            sequences.assign_sequence(queue, batch)
        batch.attempts += 1
        batch.sent_leader_epoch = leader_epoch

    def _count_sent(self, batch: PendingBatch) -> None:
        """An attempt has ended, and the batch was sent in it."""
        self._counts.batches_retried += batch.was_sent
        batch.was_sent = True

    def _on_delivered(self, queue: PartitionQueue, batch: PendingBatch, answer: BatchAnswer) -> None:
        sequences.on_batch_accepted(queue, batch)
        offset = answer.base_offset
        if offset is not None and batch.number > queue.last_acked_number:
            last = queue.last_acked_offset
            if last is not None and offset <= last:
                why = f"the leader of epoch {batch.sent_leader_epoch} gave later records offset {offset}"
                self._losses.append(
                    RecordsLostError(queue.topic_partition, first_offset=offset, last_offset=last, why=why)
                )
                if self.transactions is not None:
                    self._on_failed_in_transaction(self._losses[-1], queue.topic_partition, is_counted=True)
            queue.last_acked_number = batch.number
            queue.last_acked_offset = offset + batch.record_count - 1
        self._finish(batch, Delivered(offset, answer.log_append_time, batch.sent_leader_epoch))

    def _on_out_of_order(
        self, queue: PartitionQueue, batch: PendingBatch, answer: BatchAnswer, error: KafkaError, now_ms: int
    ) -> None:
        last = queue.last_acked_offset
        if sequences.is_explained(queue, batch):
            batch.may_be_written = False
            self._retry(queue, batch, error, now_ms)
        elif answer.code is Code.UNKNOWN_PRODUCER_ID and (
            last is None or (answer.log_start_offset is not None and answer.log_start_offset > last)
        ):
            # Retention removed all we wrote, and with it what the leader knew of us: that is no loss.
            if self.transactions is not None:
                self._fail(queue, batch, error)  # the next epoch counts from 0
                return
            queue.holes.append(Hole(batch.number, batch.sequence or 0, may_be_written=True))
            batch.may_be_written = False
            self._retry(queue, batch, error, now_ms)
        else:
            loss = RecordsLostError(
                queue.topic_partition,
                first_offset=None,
                last_offset=last,
                why=f"its leader does not know the records that came before sequence {batch.sequence}"
                f" of producer {batch.producer_id} ({answer.code.name})",
            )
            self._losses.append(loss)
            self._fail(queue, batch, loss)
            if self.transactions is None:
                self.fail_all(loss)

    def _retry(self, queue: PartitionQueue, batch: PendingBatch, error: TidelogError, now_ms: int) -> None:
        batch.why = error
        if self.fatal is not None:
            self._fail(queue, batch, self.fatal)
            return
        if self.transactions is not None and not self.transactions.takes_batches:
            self._fail(queue, batch, _aborted(queue.topic_partition))
            return
        delay_ms = self._retry_delay_ms(batch.attempts)
        if isinstance(error, KafkaError) and error.code is Code.CONCURRENT_TRANSACTIONS:
            delay_ms = min(delay_ms, CONCURRENT_BACKOFF_MS)
        batch.not_before_ms = now_ms + delay_ms
        queue.put_back(batch)
        self._expire(queue, now_ms)

    def _expire(self, queue: PartitionQueue, now_ms: int) -> None:
        """Fail what waited too long. The oldest batch stands in front."""
        limit = self.settings.delivery_timeout_ms
        while queue.waiting and now_ms - queue.waiting[0].created_ms >= limit:
            batch = queue.waiting.popleft()
            why = batch.why or self._why_unsent(batch)
            maybe = "; it may have been written" if batch.may_be_written else ""
            error = TimedOutError(f"{batch.topic_partition}: not delivered within {limit} ms{maybe}; last: {why}")
            self._fail(queue, batch, error.about(batch.topic_partition))

    def _why_unsent(self, batch: PendingBatch) -> str:
        if self.transactions is not None:
            if batch.topic_partition not in self.transactions.partitions:
                return "the coordinator has not added its partition to the transaction"
        elif self.settings.idempotent and self.producer_id is None:
            return "no producer id could be had"
        if self.metadata.partition(batch.topic_partition) is None or self._leader(batch.topic_partition) is None:
            code = self.metadata.why_missing(batch.topic_partition)
            return f"{code.meaning} ({code.name})"
        return "its leader could not be reached, or has not answered what was sent before"

    def _fail(self, queue: PartitionQueue, batch: PendingBatch, error: TidelogError) -> None:
        sequences.on_batch_failed(queue, batch)
        self._finish(batch, error)
        if self.transactions is not None:
            self._on_failed_in_transaction(error, batch.topic_partition, is_counted=batch.sequence is not None)

    # In transactions.
    def _on_failed_in_transaction(self, error: TidelogError, partition: TopicPartition, *, is_counted: bool) -> None:
        assert self.transactions is not None
        could_commit = self.transactions.takes_batches
        self.transactions.on_send_failed(error, is_counted=is_counted)
        if could_commit:
            self.drop_waiting(_aborted(partition))

    def _end_transactions(self, queue: PartitionQueue, batch: PendingBatch, error: KafkaError) -> None:
        transactions = self.transactions
        assert transactions is not None
        if error.code in FENCED:
            transactions.on_fenced()
        else:
            transactions.fail(error)
        assert transactions.error is not None
        self.fail_all(transactions.error)
        self._fail(queue, batch, transactions.error)

    def _on_recreated(self, queue: PartitionQueue, transactions: ProducerTransactions) -> None:
        if queue.topic_partition in transactions.partitions and transactions.takes_batches:
            topic = queue.topic_partition.topic
            error = refusal(
                Code.INCONSISTENT_TOPIC_ID, f"topic {topic!r} was recreated; what was written to it is gone"
            )
            self._on_failed_in_transaction(error, queue.topic_partition, is_counted=True)
        elif not queue.in_flight:
            queue.producer_id = -1  # its log knows of no producer

    def _finish(self, batch: PendingBatch, outcome: Delivered | TidelogError) -> None:
        batch.outcome = outcome
        if isinstance(outcome, Delivered):
            self._counts.records_delivered += batch.record_count
            self._counts.batches_delivered += 1
            self._counts.bytes_delivered += batch.size_bytes
        else:
            self._counts.records_failed += batch.record_count
        self.accumulator.release(batch)
        self._done.append(batch)


def _aborted(partition: TopicPartition) -> TransactionAbortedError:
    return TransactionAbortedError(f"{partition}: not delivered: its transaction was aborted first").about(partition)
