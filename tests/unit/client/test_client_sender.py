"""The producer's machine: order and exactly-once through every failure, and losses that show."""

from __future__ import annotations

from collections import deque
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, KafkaError, NetworkError, RecordsLostError, TidelogError, TimedOutError
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.core.accumulator import Accumulator, Delivered, PendingBatch
from tidelog.client.core.metadata_cache import MetadataCache
from tidelog.client.core.sender import BatchAnswer, ProduceSend, Sender, SenderSettings
from tidelog.wire.messages.api_03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LOST = NetworkError("the connection broke")
P0 = TopicPartition("t", PartitionIndex(0))


def metadata(partitions: int = 2, topic_id: int = 1) -> MetadataResponse:
    rows = [
        MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=0) for index in range(partitions)
    ]
    topic = MetadataResponseTopic(name="t", topic_id=UUID(int=topic_id), partitions=rows)
    return MetadataResponse(brokers=[MetadataResponseBroker(1, "h", 1)], topics=[topic])


class Bench:
    """A sender with its world: time, metadata, and records that are numbers."""

    def __init__(
        self, *, idempotent: bool = True, acks: int = -1, linger_ms: int = 0, delivery_timeout_ms: int = 1_000
    ) -> None:
        self.now_ms = 0
        self.cache = MetadataCache()
        self.cache.on_metadata(metadata(), requested=["t"])
        self.accumulator = Accumulator(batch_size_bytes=10_000, buffer_size_bytes=1_000_000, linger_ms=linger_ms)
        settings = SenderSettings(
            idempotent=idempotent,
            acks=acks,
            in_flight_requests_max=5,
            request_size_bytes_max=1_000_000,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        self.sender = Sender(self.accumulator, self.cache, settings, lambda failures: 10)
        self.producer_ids = iter(range(100, 1_000))
        self.ids_given = 0

    def add(self, *numbers: int, partition: int = 0) -> PendingBatch:
        """A closed batch of these records."""
        queue = self.sender.queue(TopicPartition("t", PartitionIndex(partition)))
        batch = self.accumulator.open_batch(queue, self.now_ms, None)
        for number in numbers:
            batch.timestamps.append(number)
            batch.keys.append(None)
            batch.values.append(b"%d" % number)
            batch.headers.append(())
        self.accumulator.close_batch(queue)
        return batch

    def sends(self, *, flushing: bool = True) -> list[ProduceSend]:
        """What goes out now; a producer id is given as soon as one is asked for."""
        sends = self.sender.take_sends(self.now_ms, flushing=flushing, ready=lambda broker_id: True)
        if self.sender.needs_producer_id:
            self.ids_given += 1
            self.sender.on_producer_id(next(self.producer_ids), 0)
            sends += self.sender.take_sends(self.now_ms, flushing=flushing, ready=lambda broker_id: True)
        return sends

    def send_one(self) -> PendingBatch:
        [send] = self.sends()
        [batch] = send.batches
        return batch

    def answer(self, batch: PendingBatch, code: Code = Code.NONE, base_offset: int | None = None) -> None:
        self.sender.on_request_ended(self._broker())
        self.sender.on_answer(batch, BatchAnswer(code, None, base_offset), self.now_ms)

    def lose(self, batch: PendingBatch) -> None:
        self.sender.on_request_ended(self._broker())
        self.sender.on_lost(batch, LOST, self.now_ms, sent=True)

    def _broker(self) -> BrokerId:
        return next(iter(self.cache.brokers))

    def wait(self, ms: int = 20) -> None:
        self.now_ms += ms


def is_idle(bench: Bench) -> bool:
    """Whether nothing is left to deliver."""
    queues = bench.sender.accumulator.queues.values()
    return not any(queue.open or queue.waiting or queue.in_flight for queue in queues)


def outcome(batch: PendingBatch) -> Delivered:
    assert isinstance(batch.outcome, Delivered), batch.outcome
    return batch.outcome


def test_batches_of_a_partition_count_their_sequences_and_keep_them_when_sent_again() -> None:
    bench = Bench()
    bench.add(1, 2)
    bench.add(3)
    first, second = (send.batches[0] for send in bench.sends())
    assert (first.sequence, second.sequence, first.producer_id) == (0, 2, 100)
    bench.lose(first)
    assert bench.sends() == []  # it backs off
    bench.wait()
    assert bench.send_one() is first
    assert first.sequence == 0
    assert first.attempts == 2
    bench.answer(first, base_offset=0)
    bench.answer(second, base_offset=2)
    assert [outcome(batch).base_offset for batch in bench.sender.take_done()] == [0, 2]


def test_what_cannot_be_sent_yet_takes_further_records() -> None:
    """After a failover, hundreds of records wait: as many batches of one record would go out five at a time."""
    bench = Bench()
    for number in range(5):
        bench.add(number)
    in_flight = [send.batches[0] for send in bench.sends(flushing=False)]
    assert len(in_flight) == 5
    waiting, queue = bench.add(5), bench.sender.queue(P0)
    open_one = bench.accumulator.open_batch(queue, bench.now_ms, None)
    assert bench.sends(flushing=False) == []
    bench.wait()
    assert bench.sends(flushing=False) == []
    assert queue.open is open_one
    assert bench.sender.next_deadline_ms(bench.now_ms) == bench.sender.settings.delivery_timeout_ms
    bench.answer(in_flight.pop(0), base_offset=0)
    assert [send.batches for send in bench.sends(flushing=False)] == [[waiting]]
    bench.answer(in_flight.pop(0), base_offset=1)
    assert [send.batches for send in bench.sends(flushing=False)] == [[open_one]]


def test_what_was_never_sent_is_not_sent_again() -> None:
    bench = Bench()
    bench.add(0)

    def retried() -> int:
        return bench.sender.statistics(bench.now_ms).batches_retried

    for sent, expected in ((False, 0), (True, 0), (False, 0), (True, 1), (False, 1)):
        batch = bench.send_one()
        bench.sender.on_request_ended(BrokerId(1))
        bench.sender.on_lost(batch, LOST, bench.now_ms, sent=sent)
        assert retried() == expected
        bench.wait()
    bench.answer(bench.send_one(), base_offset=0)
    assert retried() == 2
    bench.add(1)
    bench.answer(bench.send_one(), base_offset=1)
    assert retried() == 2


def test_at_most_five_batches_of_a_partition_are_under_way_and_other_partitions_get_their_turn() -> None:
    bench = Bench()
    for number in range(8):
        bench.add(number)
    bench.add(100, partition=1)
    sends = bench.sends()
    assert [len(send.batches) for send in sends] == [2, 1, 1, 1, 1]
    assert bench.sends() == []


def test_without_idempotence_one_batch_of_a_partition_is_under_way() -> None:
    bench = Bench(idempotent=False, acks=1)
    bench.add(1)
    bench.add(2)
    first = bench.send_one()
    assert first.sequence is None
    assert bench.sends() == []
    bench.lose(first)
    bench.wait()
    assert bench.send_one() is first  # so the order stays
    bench.answer(first, base_offset=0)
    assert bench.send_one().values == [b"2"]
    assert not bench.ids_given


def test_with_acks_0_all_goes_out_and_is_done_at_once() -> None:
    bench = Bench(idempotent=False, acks=0)
    for number in range(20):
        bench.add(number)
    count = 0
    while sends := bench.sends():
        for send in sends:
            bench.sender.on_request_ended(send.broker_id)
            for batch in send.batches:
                bench.sender.on_unacknowledged(batch)
                count += 1
                assert outcome(batch).base_offset is None
    assert count == 20


def test_linger_holds_an_open_batch_back_unless_somebody_flushes() -> None:
    bench = Bench(linger_ms=50)
    queue = bench.sender.queue(P0)
    batch = bench.accumulator.open_batch(queue, 0, None)
    batch.timestamps.append(0)
    assert bench.sends(flushing=False) == []
    assert bench.sender.next_deadline_ms(0) == 50
    bench.wait(50)
    [send] = bench.sends(flushing=False)
    assert send.batches == [batch]
    other = bench.accumulator.open_batch(queue, bench.now_ms, None)
    other.timestamps.append(0)
    [send] = bench.sends(flushing=True)
    assert send.batches == [other]


def test_out_of_order_is_explained_by_an_earlier_batch_that_is_still_to_be_written() -> None:
    bench = Bench()
    bench.add(1)
    bench.add(2)
    first, second = (send.batches[0] for send in bench.sends())
    bench.lose(first)
    bench.answer(second, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.wait()
    assert [send.batches[0] for send in bench.sends()] == [first, second]
    assert (first.sequence, second.sequence) == (0, 1)


def test_a_duplicate_is_a_success() -> None:
    bench = Bench()
    bench.add(1)
    batch = bench.send_one()
    bench.answer(batch, Code.DUPLICATE_SEQUENCE_NUMBER)
    assert outcome(batch).base_offset is None


def test_a_batch_refused_for_certain_leaves_its_sequences_to_the_next() -> None:
    bench = Bench()
    bench.add(1, 2, 3)
    bench.add(4)
    first, second = (send.batches[0] for send in bench.sends())
    bench.answer(first, Code.MESSAGE_TOO_LARGE)
    assert isinstance(first.outcome, KafkaError)
    bench.answer(second, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.wait()
    assert bench.send_one() is second
    assert second.sequence == 0
    assert second.producer_id == 100
    assert bench.ids_given == 1


def test_after_a_batch_of_unknown_fate_counting_starts_anew_unless_a_later_one_is_accepted() -> None:
    bench = Bench(delivery_timeout_ms=100)
    bench.add(1)
    first = bench.send_one()
    bench.wait(90)
    bench.add(2)
    second = bench.send_one()
    bench.wait(20)
    bench.lose(first)  # too late to try again
    assert isinstance(first.outcome, TimedOutError)
    assert "it may have been written" in str(first.outcome)
    bench.add(3)
    assert bench.sends() == []  # while the second one's fate can still tell
    bench.answer(second, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.wait(10)
    again = [send.batches[0] for send in bench.sends()]
    assert again[0] is second
    assert [(batch.producer_id, batch.sequence) for batch in again] == [(101, 0), (101, 1)]


def test_a_later_batch_that_is_accepted_shows_that_the_lost_one_was_written() -> None:
    bench = Bench(delivery_timeout_ms=100)
    bench.add(1)
    first = bench.send_one()
    bench.wait(90)
    bench.add(2)
    second = bench.send_one()
    bench.wait(20)
    bench.lose(first)
    bench.answer(second, base_offset=1)
    bench.add(3)
    third = bench.send_one()
    assert (third.producer_id, third.sequence) == (100, 2)


def test_out_of_order_without_a_reason_means_that_the_log_lost_what_it_acknowledged() -> None:
    bench = Bench()
    bench.add(1, 2)
    batch = bench.send_one()
    bench.answer(batch, base_offset=40)
    bench.add(3)
    later = bench.send_one()
    bench.add(4)
    bench.answer(later, Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    [loss] = bench.sender.take_losses()
    assert loss.last_offset == 41
    assert "t-0: acknowledged records were lost" in str(loss)
    assert later.outcome is loss
    assert bench.sender.fatal is loss
    assert all(isinstance(done.outcome, Delivered | RecordsLostError) for done in bench.sender.take_done())
    assert bench.sends() == []


def test_an_offset_that_was_acknowledged_before_shows_a_loss_too() -> None:
    bench = Bench(idempotent=False, acks=1)
    bench.add(1, 2, 3)
    bench.answer(bench.send_one(), base_offset=10)
    bench.add(4)
    batch = bench.send_one()
    bench.answer(batch, base_offset=11)
    [loss] = bench.sender.take_losses()
    assert (loss.first_offset, loss.last_offset) == (11, 12)
    assert outcome(batch).base_offset == 11  # this one is written all the same
    assert bench.sender.fatal is None


def test_a_producer_that_retention_forgot_goes_on_under_a_new_id() -> None:
    bench = Bench()
    bench.add(1)
    bench.answer(bench.send_one(), base_offset=5)
    bench.add(2)
    batch = bench.send_one()
    bench.sender.on_request_ended(next(iter(bench.cache.brokers)))
    bench.sender.on_answer(batch, BatchAnswer(Code.UNKNOWN_PRODUCER_ID, None, None, None, 6), bench.now_ms)
    assert bench.sender.take_losses() == []
    bench.wait()
    again = bench.send_one()
    assert again is batch
    assert (again.producer_id, again.sequence) == (101, 0)


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.CLUSTER_AUTHORIZATION_FAILED])
def test_what_ends_a_producer_fails_all_it_holds(code: Code) -> None:
    bench = Bench()
    bench.add(1)
    batch = bench.send_one()
    bench.add(2)
    bench.answer(batch, code)
    assert isinstance(bench.sender.fatal, KafkaError)
    assert len(bench.sender.take_done()) == 2
    assert bench.accumulator.used_bytes == 0


def test_a_stale_leader_makes_it_ask_for_metadata() -> None:
    bench = Bench()
    bench.add(1)
    batch = bench.send_one()
    bench.answer(batch, Code.NOT_LEADER_OR_FOLLOWER)
    assert bench.sender.needs_metadata == {"t"}
    assert batch.outcome is None


def test_nothing_is_sent_where_there_is_no_leader_and_the_time_out_says_so() -> None:
    bench = Bench()
    answer = metadata()
    answer.topics[0].partitions[0].leader_id = -1
    bench.cache.on_metadata(answer, requested=["t"])
    bench.add(1)
    assert bench.sends() == []
    bench.wait(1_000)
    assert bench.sends() == []
    [batch] = bench.sender.take_done()
    assert "not delivered within 1000 ms; last: The partition has no leader" in str(batch.outcome)


def test_a_recreated_topic_starts_its_offsets_and_sequences_anew() -> None:
    bench = Bench()
    bench.add(1)
    bench.answer(bench.send_one(), base_offset=50)
    bench.sender.on_topics_changed(bench.cache.on_metadata(metadata(topic_id=2), requested=["t"]).topics)
    bench.add(2)
    batch = bench.send_one()
    assert (batch.producer_id, batch.sequence) == (101, 0)
    bench.answer(batch, base_offset=0)
    assert bench.sender.take_losses() == []


class ModelLeader:
    """A leader's log with its rules of idempotence, written apart from what it checks."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.last: dict[int, deque[tuple[int, int, int]]] = {}  # by producer id: (first, next, offset) of five batches

    def append(self, batch: PendingBatch) -> BatchAnswer:
        assert batch.sequence is not None
        values = [value for value in batch.values if value is not None]
        known = self.last.setdefault(batch.producer_id, deque(maxlen=5))
        for first, _, offset in known:
            if first == batch.sequence:
                return BatchAnswer(Code.NONE, None, offset)
        if batch.sequence != (known[-1][1] if known else 0):
            return BatchAnswer(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        offset = len(self.log)
        self.log += values
        known.append((batch.sequence, batch.sequence + len(values), offset))
        return BatchAnswer(Code.NONE, None, offset)


FATES = ("fine", "fine", "fine", "lose request", "lose answer", "refuse", "late", "too large", "wait")


@given(st.lists(st.sampled_from(FATES), max_size=40), st.lists(st.integers(1, 3), min_size=1, max_size=12))
def test_whatever_happens_records_are_written_once_in_order_or_reported(fates: list[str], sizes: list[int]) -> None:
    """Requests and answers are lost, refused and delayed at random; each connection keeps its own order."""
    bench = Bench(delivery_timeout_ms=200)
    leader = ModelLeader()
    script = iter(fates)
    number = 0
    batches: list[tuple[PendingBatch, list[bytes]]] = []
    late: list[PendingBatch] = []
    for _ in range(400):
        if sizes:
            size = sizes.pop()
            records = [b"%d" % (number + index) for index in range(size)]
            batches.append((bench.add(*range(number, number + size)), records))
            number += size
        for send in bench.sends():
            [batch] = send.batches
            fate = next(script, "fine")
            if fate in ("lose request", "wait"):
                bench.lose(batch)
                bench.wait(90 if fate == "wait" else 0)
            elif fate == "lose answer":
                leader.append(batch)
                bench.lose(batch)
            elif fate == "late":
                late.append(batch)
            elif fate in ("refuse", "too large"):
                bench.answer(batch, Code.NOT_ENOUGH_REPLICAS if fate == "refuse" else Code.MESSAGE_TOO_LARGE)
            else:
                answer = leader.append(batch)
                bench.answer(batch, answer.code, answer.base_offset)
        if late:
            for batch in late:  # on their way all the time, on the same connection: in the order of sending
                answer = leader.append(batch)
                bench.answer(batch, answer.code, answer.base_offset)
            late.clear()
        bench.wait(5)
        if not sizes and is_idle(bench):
            break
    assert is_idle(bench)
    assert bench.sender.fatal is None
    assert bench.sender.take_losses() == []
    written = [int(value) for value in leader.log]
    assert written == sorted(set(written))  # once each, and in order
    for batch, records in batches:
        if isinstance(batch.outcome, Delivered):
            assert batch.outcome.base_offset is not None
            end = batch.outcome.base_offset + len(records)
            assert leader.log[batch.outcome.base_offset : end] == records
        else:
            assert isinstance(batch.outcome, TidelogError)
    assert bench.accumulator.used_bytes == 0
