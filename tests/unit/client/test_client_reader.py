"""One partition's reader: every way in which a position may be lost, and that it is always told."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from tidelog.base.errors import (
    Code,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TidelogError,
    TopicRecreatedError,
)
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.client.core.fetched import read_fetched
from tidelog.client.core.metadata_cache import CachedPartition
from tidelog.client.core.needs import EARLIEST, LATEST, FetchFrom, LookUp, NeedsMetadata, Validate
from tidelog.client.core.positions import UNDEFINED_MS_MAX
from tidelog.client.core.reader import DOUBTS_MAX, PartitionReader, Phase
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import PositionReset, ResetPolicy, ResetReason
from tidelog.records.batch import BatchBuilder

P0 = TopicPartition("t", PartitionIndex(0))
BEGINS_AT = 1_234
NONE, EARLIEST_POLICY, LATEST_POLICY, CLOSEST = (
    ResetPolicy.NONE,
    ResetPolicy.EARLIEST,
    ResetPolicy.LATEST,
    ResetPolicy.CLOSEST,
)


class Bench:
    """A reader with a cluster that says what the test says."""

    def __init__(self, policy: ResetPolicy = NONE) -> None:
        self.now_ms = 0
        self.resets: list[PositionReset] = []
        self.reader = PartitionReader(
            P0, policy, 1_000, lambda failures: 10, self.resets.append, begins_at=lambda: BEGINS_AT
        )
        self.epoch = 0
        self.topic_id = 1
        self.metadata()

    def metadata(self, *, epoch: int | None = None, topic_id: int | None = None, leader: int | None = 1) -> None:
        self.epoch = self.epoch if epoch is None else epoch
        self.topic_id = self.topic_id if topic_id is None else topic_id
        view = CachedPartition(PartitionIndex(0), None if leader is None else BrokerId(leader), LeaderEpoch(self.epoch))
        self.reader.on_metadata(TopicId(UUID(int=self.topic_id)), view, self.now_ms)

    def need(self) -> object:
        """What it asks for; noted as asked."""
        need = self.reader.need(self.now_ms)
        if need is not None and not isinstance(need, NeedsMetadata):
            self.reader.in_flight = self.reader.generation
        return need

    def fetch(self, *batches: tuple[int, int, int], high_watermark: int = 1_000) -> None:
        """Answer a fetch with batches of (base offset, leader epoch, records)."""
        need = self.need()
        assert isinstance(need, FetchFrom), need
        data = b""
        for base_offset, epoch, count in batches:
            builder = BatchBuilder()
            for index in range(count):
                builder.append(1_000 + base_offset + index, None, b"v")
            data += builder.build(base_offset, epoch)
        found = read_fetched(
            data,
            need.offset,
            aborted=None,
            check_crcs=True,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark - 1,
            log_start_offset=0,
        )
        self.reader.on_fetched(self.reader.generation, found)

    def out_of_range(self) -> None:
        assert isinstance(self.need(), FetchFrom)
        self.reader.on_out_of_range(self.reader.generation)

    def deliver(self) -> list[int]:
        """The offsets of all records that it has to deliver."""
        subscription = Subscription(NONE, 1, lambda failures: 1)
        subscription.readers[P0] = self.reader
        return [record.offset for record in subscription.take_records(10_000)]

    def look_up(self, timestamp: int, offset: int | None, epoch: int | None = None) -> None:
        """Answer the look-up that must be next."""
        assert self.need() == LookUp(timestamp)
        self.reader.on_looked_up(
            self.reader.generation,
            None if offset is None else Offset(offset),
            None if epoch is None else LeaderEpoch(epoch),
            self.now_ms,
        )

    def epoch_end(self, asked: int, answer: tuple[int, int] | None) -> None:
        """Answer the validation that must be next."""
        assert self.need() == Validate(LeaderEpoch(asked))
        found = None if answer is None else (LeaderEpoch(answer[0]), Offset(answer[1]))
        self.reader.on_epoch_end(self.reader.generation, LeaderEpoch(asked), found, self.now_ms)

    def read_up_to(self, offset: int, epoch: int = 0) -> None:
        """Seek to 0 and read a batch that ends at `offset`."""
        self.metadata(epoch=epoch)
        self.reader.seek(Offset(0), None)
        self.fetch((0, epoch, offset))
        assert self.deliver() == list(range(offset))

    def stands(self) -> tuple[int, int | None] | None:
        """Its position, as it tells it."""
        return self.reader.position

    @property
    def error(self) -> TidelogError:
        assert self.reader.phase is Phase.STOPPED
        assert self.reader.error is not None
        assert self.need() is None
        return self.reader.error


def test_reading_moves_the_position_to_offset_and_epoch_of_what_was_read() -> None:
    bench = Bench()
    bench.metadata(epoch=3)
    bench.reader.seek(Offset(0), None)
    assert bench.stands() == (0, None)
    bench.fetch((0, 1, 3), (3, 3, 2))
    assert bench.stands() == (0, None)  # not before it was delivered
    bench.deliver()
    assert bench.stands() == (5, 3)


def test_without_a_position_and_a_policy_it_says_so_until_a_seek() -> None:
    bench = Bench()
    assert "there is no position" in str(bench.error)
    bench.reader.seek(Offset(4), None)
    assert bench.reader.error is None
    assert bench.need() == FetchFrom(Offset(4), 1_000, BrokerId(1))


@pytest.mark.parametrize(
    ("policy", "timestamp"),
    [
        (EARLIEST_POLICY, EARLIEST),
        (LATEST_POLICY, LATEST),
        (CLOSEST, LATEST),
        (ResetPolicy.BY_DURATION, BEGINS_AT),
    ],
)
def test_a_policy_finds_the_first_position(policy: ResetPolicy, timestamp: int) -> None:
    bench = Bench(policy)
    bench.look_up(timestamp, 7, 0)
    assert bench.stands() == (7, None)  # an epoch that was looked up is not one that was read
    assert bench.need() == FetchFrom(Offset(7), 1_000, BrokerId(1))
    assert bench.resets == []


def test_a_few_answers_are_held_in_advance_and_no_more() -> None:
    bench = Bench()
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 0, 5))
    bench.fetch((5, 0, 5))
    assert bench.need() is None
    assert bench.deliver() == list(range(10))
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(1))


def test_no_fetch_begins_behind_the_range_that_is_read_until_a_seek() -> None:
    bench = Bench()
    bench.reader.seek(Offset(0), None, 7)
    bench.fetch((0, 0, 5))
    bench.fetch((5, 0, 5))
    assert bench.deliver() == list(range(10))
    assert bench.need() is None
    bench.metadata(epoch=1)
    assert isinstance(bench.need(), Validate)  # whether the log was truncated is looked for all the same
    bench.reader.seek(Offset(10), None)
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(1))


def test_a_new_leader_epoch_is_followed_by_a_question_and_drops_what_was_fetched_before() -> None:
    bench = Bench()
    bench.read_up_to(5)
    bench.fetch((5, 0, 5))
    bench.metadata(epoch=1)
    assert bench.deliver() == []  # the old leader's word no longer counts
    bench.epoch_end(0, (0, 5))
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(1))


def test_an_answer_from_before_the_election_is_dropped() -> None:
    bench = Bench()
    bench.read_up_to(5)
    need = bench.need()
    assert isinstance(need, FetchFrom)
    before = bench.reader.generation
    bench.metadata(epoch=1)
    data = read_fetched(
        BatchBuilder().build(5), 5, aborted=None, check_crcs=False,
        high_watermark=9, last_stable_offset=9, log_start_offset=0,
    )  # fmt: skip
    bench.reader.on_fetched(before, data)
    bench.reader.on_refused(before, KafkaError(code=Code.TOPIC_AUTHORIZATION_FAILED), 0)
    assert bench.need() == Validate(LeaderEpoch(0))


def test_no_leader_is_waited_for_and_changes_nothing() -> None:
    bench = Bench()
    bench.read_up_to(5)
    bench.metadata(leader=None)
    assert bench.need() == NeedsMetadata()
    bench.metadata()
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(1))


def test_truncation_without_a_policy_stops_with_the_divergence_until_a_seek() -> None:
    bench = Bench()
    bench.read_up_to(5)
    bench.metadata(epoch=1)
    bench.epoch_end(0, (0, 3))
    error = bench.error
    assert isinstance(error, LogTruncatedError)
    assert (error.position, error.divergent_offset, error.divergent_leader_epoch, error.leader_epoch) == (5, 3, 0, 0)
    assert "t-0: the log was truncated from offset 3 on" in str(error)
    bench.metadata(epoch=2)
    assert bench.error is error
    bench.reader.seek(Offset(3), LeaderEpoch(0))
    bench.epoch_end(0, (0, 3))
    assert bench.need() == FetchFrom(Offset(3), 1_000, BrokerId(1))


@pytest.mark.parametrize("policy", [EARLIEST_POLICY, LATEST_POLICY, CLOSEST])
def test_every_policy_goes_to_the_divergence_if_it_is_known_and_tells(policy: ResetPolicy) -> None:
    bench = Bench(policy)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 0, 4), (4, 0, 4))
    bench.deliver()
    bench.metadata(epoch=2)
    bench.epoch_end(0, (0, 6))
    assert bench.need() == FetchFrom(Offset(6), 1_000, BrokerId(1))
    assert bench.stands() == (6, 0)
    [reset] = bench.resets
    assert (reset.reason, reset.position, reset.divergent_offset, reset.new_offset) == (
        ResetReason.TRUNCATED, (8, 0), 6, 6,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "timestamp"), [(EARLIEST_POLICY, EARLIEST), (LATEST_POLICY, LATEST), (CLOSEST, 1_004)]
)
def test_where_the_divergence_is_unknown_the_policy_decides(policy: ResetPolicy, timestamp: int) -> None:
    bench = Bench(policy)
    bench.metadata(epoch=5)
    bench.reader.seek(Offset(3), None)
    bench.fetch((3, 5, 2))
    bench.deliver()
    bench.metadata(epoch=6)
    bench.epoch_end(5, (2, 9))  # the leader has no epoch 5, and what we read does not reach down to 2
    assert bench.reader.position is None
    [reset] = bench.resets
    assert (reset.divergent_offset, reset.new_offset) == (None, None)
    bench.look_up(timestamp, 2, 2)
    assert bench.need() == FetchFrom(Offset(2), 1_000, BrokerId(1))


def test_closest_goes_to_the_end_if_nothing_is_as_young_as_what_was_read() -> None:
    bench = Bench(CLOSEST)
    bench.metadata(epoch=5)
    bench.reader.seek(Offset(3), None)
    bench.fetch((3, 5, 2))
    bench.deliver()
    bench.metadata(epoch=6)
    bench.epoch_end(5, (2, 9))
    bench.look_up(1_004, None)
    bench.look_up(LATEST, 9, 6)
    bench.look_up(1_004, None)  # nothing came before the end was looked up
    assert bench.stands() == (9, None)


def test_the_question_goes_down_the_epochs_that_were_read() -> None:
    bench = Bench()
    bench.metadata(epoch=7)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 1, 10), (10, 3, 10), (20, 7, 10))
    bench.deliver()
    bench.metadata(epoch=8)
    bench.epoch_end(7, (5, 25))
    bench.epoch_end(3, (2, 12))
    bench.epoch_end(1, (1, 15))
    error = bench.error
    assert isinstance(error, LogTruncatedError)
    assert (error.divergent_offset, error.divergent_leader_epoch) == (10, 1)


def test_a_seek_with_an_epoch_asks_first() -> None:
    bench = Bench()
    bench.metadata(epoch=4)
    bench.reader.seek(Offset(50), LeaderEpoch(2))
    assert bench.stands() == (50, 2)
    bench.epoch_end(2, (2, 40))
    error = bench.error
    assert isinstance(error, LogTruncatedError)
    assert error.divergent_offset == 40


def test_a_seek_without_an_epoch_does_not_ask() -> None:
    bench = Bench()
    bench.reader.seek(Offset(50), None)
    assert bench.need() == FetchFrom(Offset(50), 1_000, BrokerId(1))


def test_a_fetch_that_is_told_of_a_divergence_asks_where_it_is() -> None:
    bench = Bench()
    bench.read_up_to(5)
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(1))
    bench.reader.on_diverging(bench.reader.generation)
    bench.epoch_end(0, (0, 3))
    error = bench.error
    assert isinstance(error, LogTruncatedError)
    assert (error.position, error.divergent_offset) == (5, 3)


def test_a_position_of_an_epoch_that_the_metadata_does_not_know_yet_waits_for_it() -> None:
    bench = Bench()
    bench.metadata(epoch=4)
    bench.reader.seek(Offset(50), LeaderEpoch(6))
    assert bench.need() == NeedsMetadata()
    bench.metadata(epoch=6)
    bench.epoch_end(6, (6, 60))
    assert bench.need() == FetchFrom(Offset(50), 1_000, BrokerId(1))


@pytest.mark.parametrize("behind", [True, False])
def test_what_nobody_can_tell_is_asked_again_for_a_time_and_then_reported(behind: bool) -> None:
    bench = Bench()
    bench.metadata(epoch=4)
    bench.reader.seek(Offset(50), LeaderEpoch(6 if behind else 4))
    rounds = 0
    while bench.reader.error is None:
        rounds += 1
        if behind:
            bench.metadata()
        else:
            bench.epoch_end(4, None)
        bench.now_ms += 1_000
        assert bench.now_ms <= UNDEFINED_MS_MAX + 2_000
    assert rounds > 20
    assert isinstance(bench.error, LogTruncatedError)
    assert bench.error.divergent_offset is None


def test_an_offset_below_the_log_start_is_out_of_range() -> None:
    bench = Bench()
    bench.reader.seek(Offset(5), None)
    bench.out_of_range()
    bench.look_up(EARLIEST, 20)
    bench.look_up(LATEST, 31)
    error = bench.error
    assert isinstance(error, OffsetOutOfRangeError)
    assert not isinstance(error, LogTruncatedError)
    assert (error.partition, error.offset) == (P0, 5)
    assert (error.log_start_offset, error.end_offset) == (20, 31)
    assert error.seek_to == (20, None)


def test_a_log_that_has_grown_up_to_the_position_is_read_on() -> None:
    bench = Bench()
    bench.reader.seek(Offset(5), None)
    bench.out_of_range()
    bench.look_up(EARLIEST, 0)
    bench.look_up(LATEST, 6)
    bench.now_ms += 10
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(1))


def test_a_leader_that_goes_on_to_refuse_what_it_says_to_have_is_believed_in_the_end() -> None:
    bench = Bench()
    bench.reader.seek(Offset(5), None)
    for _ in range(DOUBTS_MAX + 1):
        bench.out_of_range()
        bench.look_up(EARLIEST, 0)
        if bench.reader.phase is Phase.LOOKING_UP:
            bench.look_up(LATEST, 6)
        bench.now_ms += 1_000
    assert isinstance(bench.error, OffsetOutOfRangeError)


@pytest.mark.parametrize(
    ("policy", "lookups", "end"),
    [(EARLIEST_POLICY, [(EARLIEST, 20)], 20), (LATEST_POLICY, [(LATEST, 30)], 30), (CLOSEST, [], 20)],
)
def test_retention_that_overtook_a_reader_is_reported_and_follows_the_policy(
    policy: ResetPolicy, lookups: list[tuple[int, int]], end: int
) -> None:
    bench = Bench(policy)
    bench.reader.seek(Offset(5), None)
    bench.out_of_range()
    bench.look_up(EARLIEST, 20)
    for timestamp, offset in lookups:
        bench.look_up(timestamp, offset)
    assert bench.need() == FetchFrom(Offset(end), 1_000, BrokerId(1))
    [reset] = bench.resets
    assert (reset.reason, reset.position.offset) == (ResetReason.OUT_OF_RANGE, 5)


def test_a_reader_that_stood_at_the_end_of_a_log_that_is_shorter_now_is_told_of_a_truncation() -> None:
    bench = Bench(LATEST_POLICY)
    bench.look_up(LATEST, 30, None)  # a broker that tells no epochs
    bench.out_of_range()
    bench.look_up(EARLIEST, 0)
    [reset] = bench.resets
    assert reset.reason is ResetReason.TRUNCATED
    bench.look_up(LATEST, 10)
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(1))


def test_a_seek_beyond_the_end_is_out_of_range_and_no_truncation() -> None:
    bench = Bench()
    bench.reader.seek(Offset(500), None)
    bench.out_of_range()
    bench.look_up(EARLIEST, 0)
    bench.look_up(LATEST, 30)
    error = bench.error
    assert isinstance(error, OffsetOutOfRangeError)
    assert not isinstance(error, LogTruncatedError)
    assert error.seek_to == (30, None)


def test_out_of_range_at_a_broker_that_turns_out_to_follow_is_asked_of_the_leader_and_is_no_loss() -> None:
    """A follower may lack what the leader has. Without epochs in the metadata nothing else tells it from the leader."""
    bench = Bench(LATEST_POLICY)
    bench.reader.seek(Offset(5), None)
    bench.out_of_range()
    assert bench.need() == LookUp(EARLIEST)
    bench.reader.on_refused(bench.reader.generation, KafkaError(code=Code.NOT_LEADER_OR_FOLLOWER), bench.now_ms)
    bench.metadata(leader=2)
    bench.now_ms += 10
    bench.look_up(EARLIEST, 0)
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(2))
    assert bench.resets == []
    bench.reader.on_out_of_range(bench.reader.generation)  # the leader says so too
    bench.look_up(EARLIEST, 0)
    assert [reset.reason for reset in bench.resets] == [ResetReason.OUT_OF_RANGE]


def preferring() -> Bench:
    """A reader of 10 records of epoch 0, whose leader has named broker 7."""
    bench = Bench()
    bench.read_up_to(10)
    assert isinstance(bench.need(), FetchFrom)
    bench.reader.on_preferred(bench.reader.generation, BrokerId(7), bench.now_ms + 1_000)
    return bench


def test_records_come_from_the_replica_that_the_leader_named_for_a_while() -> None:
    bench = preferring()
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(7))
    bench.reader.in_flight = None
    bench.now_ms += 1_000
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(1))


def test_a_replica_that_does_not_answer_or_lacks_the_offset_is_left_for_the_leader() -> None:
    bench = preferring()
    bench.reader.on_failure(bench.reader.generation, bench.now_ms)
    bench.now_ms += 10
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(1))
    bench = preferring()
    bench.out_of_range()
    bench.epoch_end(0, (0, 20))  # the leader has it
    bench.look_up(EARLIEST, 0)
    assert bench.need() == FetchFrom(Offset(10), 1_000, BrokerId(1))
    assert bench.resets == []


def test_who_reads_from_a_replica_nearby_is_told_of_a_truncation_by_the_leader() -> None:
    """The replica lags behind, and still has what is lost."""
    bench = preferring()
    assert isinstance(bench.need(), FetchFrom)
    bench.metadata(epoch=1)
    bench.epoch_end(0, (0, 6))
    error = bench.error
    assert isinstance(error, LogTruncatedError)
    assert (error.position, error.divergent_offset) == (10, 6)


def test_out_of_range_at_a_follower_of_what_the_leader_has_is_no_loss() -> None:
    bench = Bench()
    bench.read_up_to(5)
    bench.out_of_range()
    bench.metadata(epoch=1, leader=2)
    bench.epoch_end(0, (0, 9))
    bench.look_up(EARLIEST, 0)
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(2))
    assert bench.reader.error is None


def test_out_of_range_after_reading_is_validated_first() -> None:
    bench = Bench()
    bench.read_up_to(5)
    bench.out_of_range()
    bench.epoch_end(0, (0, 3))
    assert isinstance(bench.error, LogTruncatedError)
    assert bench.error.divergent_offset == 3


def test_a_leader_that_contradicts_itself_is_asked_again_a_few_times_only() -> None:
    bench = Bench()
    bench.read_up_to(5)
    rounds = 0
    while bench.reader.error is None:
        rounds += 1
        assert rounds < 20
        bench.out_of_range()
        bench.epoch_end(0, (0, 5))
        bench.look_up(EARLIEST, 0)
        bench.now_ms += 10
    assert isinstance(bench.error, LogTruncatedError)


def test_a_recreated_topic_loses_the_position_and_says_so() -> None:
    bench = Bench()
    bench.read_up_to(5, epoch=9)
    bench.metadata(epoch=0, topic_id=2)
    error = bench.error
    assert isinstance(error, TopicRecreatedError)
    assert isinstance(error, LogTruncatedError)
    assert (error.position, error.divergent_offset) == (5, 0)
    assert bench.reader.leader_epoch == 0, "with the old one, every leader of the new topic would refuse to answer"
    assert "its id was AAAAAAAAAAAAAAAAAAAAAQ, and is AAAAAAAAAAAAAAAAAAAAAg" in str(error)
    bench.reader.seek(Offset(0), None)
    assert bench.need() == FetchFrom(Offset(0), 1_000, BrokerId(1))


@pytest.mark.parametrize("policy", [EARLIEST_POLICY, LATEST_POLICY, CLOSEST])
def test_a_recreated_topic_is_read_from_its_start_whatever_the_policy(policy: ResetPolicy) -> None:
    bench = Bench(policy)
    bench.reader.seek(Offset(5), None)
    bench.metadata(epoch=0, topic_id=2)
    [reset] = bench.resets
    assert (reset.reason, reset.divergent_offset) == (ResetReason.RECREATED, 0)
    bench.look_up(EARLIEST, 0)
    assert bench.need() == FetchFrom(Offset(0), 1_000, BrokerId(1))


def test_before_there_is_a_position_a_new_topic_id_is_no_loss() -> None:
    bench = Bench(LATEST_POLICY)
    assert bench.need() == LookUp(LATEST)
    bench.metadata(topic_id=2)
    assert bench.resets == []
    bench.look_up(LATEST, 4)
    assert bench.need() == FetchFrom(Offset(4), 1_000, BrokerId(1))


@pytest.mark.parametrize(
    ("refuse", "stops"),
    [
        (Code.FENCED_LEADER_EPOCH, False),
        (Code.UNKNOWN_LEADER_EPOCH, False),
        (Code.NOT_LEADER_OR_FOLLOWER, False),
        (Code.TOPIC_AUTHORIZATION_FAILED, True),
    ],
)
def test_refusals_that_pass_are_tried_again_after_a_while_and_others_stop(refuse: Code, stops: bool) -> None:
    bench = Bench()
    bench.reader.seek(Offset(5), None)
    bench.need()
    bench.reader.on_refused(bench.reader.generation, KafkaError(code=refuse), 0)
    if stops:
        assert bench.error.code is refuse  # type: ignore[attr-defined]
        return
    assert bench.need() is None
    bench.now_ms = 10
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(1))


def test_a_batch_larger_than_the_fetch_size_is_asked_for_with_more_room() -> None:
    bench = Bench()
    bench.reader.seek(Offset(0), None)
    builder = BatchBuilder()
    builder.append(0, None, b"v" * 100)
    need = bench.need()
    assert isinstance(need, FetchFrom)
    cut = read_fetched(
        builder.build()[:80], 0, aborted=None, check_crcs=True,
        high_watermark=1, last_stable_offset=1, log_start_offset=0,
    )  # fmt: skip
    bench.reader.on_fetched(bench.reader.generation, cut)
    assert bench.need() == FetchFrom(Offset(0), 2_000, BrokerId(1))


def test_epochs_that_go_back_show_a_truncation_where_no_leader_fences() -> None:
    bench = Bench()
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 4, 5))
    bench.fetch((5, 3, 5))
    assert isinstance(bench.error, LogTruncatedError)
    assert bench.error.divergent_offset is None


def test_seeking_elsewhere_forgets_what_was_read_elsewhere() -> None:
    bench = Bench()
    bench.metadata(epoch=3)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 1, 10))
    bench.deliver()
    bench.reader.seek(Offset(100), None)
    bench.fetch((100, 3, 5))
    bench.deliver()
    bench.metadata(epoch=4)
    bench.epoch_end(3, (1, 60))
    # What lay between 10 and 100 was never read: nobody here knows where the logs part.
    assert isinstance(bench.error, LogTruncatedError)
    assert bench.error.divergent_offset is None


MAKE: list[Callable[[PartitionReader], None]] = [
    lambda reader: reader.on_looked_up(99, Offset(0), None, 0),
    lambda reader: reader.on_epoch_end(99, LeaderEpoch(0), None, 0),
    lambda reader: reader.on_out_of_range(99),
    lambda reader: reader.on_diverging(99),
    lambda reader: reader.stop(99, TidelogError("x")),
    lambda reader: reader.on_failure(99, 0),
]


@pytest.mark.parametrize("late", MAKE)
def test_answers_of_another_generation_do_nothing(late: Callable[[PartitionReader], None]) -> None:
    bench = Bench()
    bench.read_up_to(5)
    late(bench.reader)
    assert bench.stands() == (5, 0)
    assert bench.need() == FetchFrom(Offset(5), 1_000, BrokerId(1))


def test_an_epoch_that_spans_two_answers_moves_no_older_one() -> None:
    bench = Bench()
    bench.metadata(epoch=3)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 0, 5), (5, 1, 5))
    bench.deliver()
    bench.fetch((10, 1, 5), (15, 3, 5))
    bench.deliver()
    bench.metadata(epoch=4)
    bench.epoch_end(3, (0, 8))  # the new leader went on in epoch 0 where what was read is of epoch 1
    assert isinstance(bench.error, LogTruncatedError)
    assert bench.error.divergent_offset == 5


def test_what_compaction_left_out_between_two_epochs_may_be_anothers_by_now() -> None:
    bench = Bench()
    bench.metadata(epoch=1)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 0, 5), (8, 1, 2))
    bench.deliver()
    bench.metadata(epoch=2)
    bench.epoch_end(1, (0, 7))  # at 5 and 6 there are records of epoch 0, which the reader was never given
    assert isinstance(bench.error, LogTruncatedError)
    assert bench.error.divergent_offset == 5


def test_a_second_truncation_below_the_divergence_is_seen_before_anything_is_read_again() -> None:
    bench = Bench(LATEST_POLICY)
    bench.metadata(epoch=4)
    bench.reader.seek(Offset(50), LeaderEpoch(2))
    bench.epoch_end(2, (2, 40))
    assert bench.stands() == (40, 2)
    bench.metadata(epoch=5)
    bench.epoch_end(2, (2, 35))
    assert [reset.divergent_offset for reset in bench.resets] == [40, 35]


# What it says of itself.


def test_a_high_watermark_that_goes_back_is_counted_and_no_lag_is_negative() -> None:
    """A new leader cannot know that of the old one, and goes on from its own."""
    bench = Bench()
    bench.reader.seek(Offset(379), None)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False) == (379, None, None, None, None, 0, 0)
    bench.fetch((379, 0, 3), high_watermark=383)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False) == (379, 0, 383, 382, 4, 0, 0)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=True).lag == 3
    bench.deliver()
    bench.metadata(epoch=1)
    bench.epoch_end(0, (0, 382))
    bench.fetch(high_watermark=380)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False) == (382, 0, 380, 379, 0, 1, 0)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=True).lag == 0
    bench.fetch(high_watermark=382)
    bench.fetch(high_watermark=382)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False) == (382, 0, 382, 381, 0, 1, 0)


def test_the_high_watermark_of_a_topic_that_was_made_anew_is_another_one() -> None:
    bench = Bench(EARLIEST_POLICY)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 0, 3), high_watermark=3)
    bench.metadata(topic_id=2)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False) == (None, None, None, None, None, 0, 0)
    bench.look_up(EARLIEST, 0, 0)
    bench.fetch(high_watermark=0)
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False) == (0, 0, 0, -1, 0, 0, 0)


def test_truncations_are_counted() -> None:
    bench = Bench(EARLIEST_POLICY)
    bench.reader.seek(Offset(0), None)
    bench.fetch((0, 0, 3), high_watermark=3)
    bench.deliver()
    bench.metadata(epoch=1)
    bench.epoch_end(0, (0, 2))
    assert bench.reader.statistics(bench.reader.offset, is_committed_only=False).truncations == 1
