"""Records on their way to the caller go one way: they are taken, or given back."""

from __future__ import annotations

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.core.fetched import read_fetched
from tidelog.client.core.handing import Handing
from tidelog.client.core.metadata_cache import CachedPartition
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import ResetPolicy
from tidelog.records.batch import BatchBuilder

P0 = TopicPartition("t", 0)


class Polled:
    """A reader whose records were delivered: of two epochs, with a gap before the second that compaction left."""

    def __init__(self) -> None:
        self.subscription = Subscription(ResetPolicy.NONE, 1_000, lambda failures: 10)
        self.reader = PartitionReader(P0, ResetPolicy.NONE, 1_000, lambda failures: 10, lambda reset: None)
        self.subscription.readers[P0] = self.reader
        view = CachedPartition(PartitionIndex(0), BrokerId(1), LeaderEpoch(1))
        self.reader.on_metadata(None, view, 0)
        self.reader.seek(Offset(0), None)
        self.fetch()

    def fetch(self) -> None:
        """From wherever it is."""
        data = b""
        for offset, epoch in ((0, 0), (1, 0), (6, 1), (7, 1)):
            builder = BatchBuilder()
            builder.append(offset, None, b"v")
            data += builder.build(offset, epoch)
        need = self.reader.need(0)
        assert need is not None
        self.reader.in_flight = self.reader.generation
        found = read_fetched(
            data,
            self.reader.offset or 0,
            aborted=None,
            check_crcs=True,
            high_watermark=8,
            last_stable_offset=8,
            log_start_offset=0,
        )
        self.reader.on_fetched(self.reader.generation, found)

    def hand(self, *, is_loop: bool) -> Handing[bytes | None, bytes | None]:
        return Handing(self.subscription.take_records(100), is_loop=is_loop)


def test_what_is_taken_at_once_is_not_given_back() -> None:
    polled = Polled()
    handing = polled.hand(is_loop=False)
    assert [record.offset for record in handing.take_all()] == [0, 1, 6, 7]
    assert not handing.give_back(polled.subscription.readers)
    assert handing.place_in(P0) is None
    assert polled.reader.offset == 8


def test_what_is_given_back_is_not_taken() -> None:
    for is_loop in (False, True):
        polled = Polled()
        handing = polled.hand(is_loop=is_loop)
        place = handing.place_in(P0)
        assert place is not None
        assert place.offset == 0
        assert handing.give_back(polled.subscription.readers)
        assert polled.reader.offset == 0
        assert handing.take_all() == []
        assert list(handing.one_by_one()) == []


def test_a_loop_goes_on_behind_the_last_record_that_it_took_with_its_epoch_and_time() -> None:
    polled = Polled()
    handing = polled.hand(is_loop=True)
    records = handing.one_by_one()
    assert [next(records).offset, next(records).offset] == [0, 1]
    place = handing.place_in(P0)
    assert place is not None
    assert place.position == (2, 0), "nothing of epoch 1 was taken, which the gap before it counts to"
    assert handing.give_back(polled.subscription.readers)
    assert list(records) == []
    assert polled.reader.position == (2, 0)
    assert place.last_timestamp == 1


def test_nothing_is_given_back_to_a_topic_of_the_same_name() -> None:
    polled = Polled()
    handing = polled.hand(is_loop=True)
    next(handing.one_by_one())
    polled.reader.topic_id = object()  # type: ignore[assignment]
    assert not handing.give_back(polled.subscription.readers)
    assert polled.reader.offset == 8


def test_what_is_assigned_no_more_is_given_back_to_nobody() -> None:
    polled = Polled()
    handing = polled.hand(is_loop=True)
    assert not handing.give_back({})
