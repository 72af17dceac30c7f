"""What drives a follower's machine, beside what takes its time and what comes to an end meanwhile."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import pytest

from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import txn_batch
from tidelog.base.errors import DiskError
from tidelog.base.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.log import Log, LogConfig
from tidelog.log.follower_append import EpochsToWrite
from tidelog.metadata import PartitionImage
from tidelog.records import BatchBuilder
from tidelog.records.lineage import EpochEntry
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.replica import (
    EpochEndRequest,
    FollowerReplica,
    FollowerRequest,
    FollowerSettings,
    RecordsRequest,
    Truncation,
)
from tidelog.server.replication.follower_driver import FollowerDriver, FollowingHost, LostOffsets, TruncatedRecords
from tidelog.server.replication.partition import Partition
from tidelog.wire.primitives import ZERO_UUID

PARTITION = TopicPartition("flights", PartitionIndex(0))
BROKER, LEADER = BrokerId(1), BrokerId(2)
NOW_MS = 1_700_000_000_000


class Host:
    """Notes what it is asked for, and begins nothing by itself."""

    backoff_ms_max = 1_000

    def __init__(self) -> None:
        self.asked: list[FollowerRequest] = []
        self.started: list[Coroutine[object, object, None]] = []
        self.cuts: list[Truncation] = []
        self.lost: list[LostOffsets | None] = []
        self.noted: list[EpochEntry] = []
        self.truncated: list[TruncatedRecords] = []
        self.refusal: DiskError | None = None
        self.failures: list[Exception] = []
        self.due_ms: list[int] = []
        self.unwritten: list[FollowerDriver] = []

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return NOW_MS

    def due_at(self, who: FollowerDriver, due_ms: int) -> None:
        self.due_ms.append(due_ms)

    def on_log_failed(self, partition: Partition, error: Exception) -> None:
        self.failures.append(error)

    def send(self, following: FollowerDriver, request: FollowerRequest) -> None:
        self.asked.append(request)

    def write_soon(self, following: FollowerDriver) -> None:
        self.unwritten.append(following)

    def forget(self, following: FollowerDriver) -> None:
        pass

    def on_truncating(self, counts: TruncatedRecords) -> None:
        self.truncated.append(counts)

    def start(self, partition: Partition, work: Coroutine[object, object, None]) -> Any:
        self.started.append(work)
        return work

    async def note_leader_epochs(self, partition: Partition, entries: Sequence[EpochEntry]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.noted += entries
        EpochsToWrite(partition.log, entries).on_written()

    async def flush(self, partition: Partition) -> None:
        partition.log.flush()

    async def truncate(self, partition: Partition, truncation: Truncation, lost: LostOffsets | None = None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.lost.append(lost)
        self.cuts.append(truncation)
        partition.log.truncate_to(truncation.end_offset)


def followed(
    host: Host,
    *,
    high_watermark: int | None = None,
    unclean_epoch: int | None = None,
    batches: Sequence[bytearray] = (),
    flush_messages: int | None = None,
    disk: MemoryDisk | None = None,
) -> FollowerDriver:
    """The role of a partition of three records of epoch 0 and some batches, which follows the leader of epoch 1."""
    config = LogConfig(flush_messages=flush_messages)
    disk = MemoryDisk() if disk is None else disk
    log = Log.open(disk, "logs/flights-0", PARTITION, config, topic_id=None, clean_shutdown=True, now_ms=NOW_MS)
    log.assign_leader_epoch(LeaderEpoch(0))
    for _ in range(3):
        builder = BatchBuilder()
        builder.append(NOW_MS, None, b"x")
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    for batch in batches:
        log.append_as_leader(memoryview(batch), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS, origin="coordinator")
    checkpointed = None if high_watermark is None else Offset(high_watermark)
    partition = Partition(PARTITION, TopicId(ZERO_UUID), log, high_watermark=checkpointed)
    state = PartitionImage(
        (LEADER, BROKER),
        (LEADER,),
        LEADER,
        LeaderEpoch(1),
        PartitionEpoch(1),
        unclean_epoch=None if unclean_epoch is None else LeaderEpoch(unclean_epoch),
    )
    machine = FollowerReplica(
        PARTITION, BROKER, state, partition.bounds, log.lineage, settings=FollowerSettings(fetch_backoff_ms=20)
    )
    following = FollowerDriver(partition, machine, cast(FollowingHost, host))
    partition.follow(following)
    return following


def test_what_a_leader_had_cut_is_not_cut_in_the_next_epoch() -> None:
    """The epoch may end before the truncation has begun: by then the log is the next role's, which may be to lead."""

    async def story(is_stopped: bool) -> tuple[Offset, list[Truncation]]:
        host = Host()
        following = followed(host)
        following.on_epoch_end(host.asked[0].number, (LeaderEpoch(0), Offset(1)))
        if is_stopped:
            following.partition.stop(LeaderEpoch(2))
        for work in host.started:
            await work
        return following.partition.log.log_end_offset, host.cuts

    assert asyncio.run(story(is_stopped=False)) == (1, [Truncation(Offset(1))])
    assert asyncio.run(story(is_stopped=True)) == (3, [])


class SyncsCounted(MemoryDisk):
    """How often something was synced."""

    syncs = 0

    def write_atomically(self, path: str, data: bytes) -> None:
        self.syncs += 1
        super().write_atomically(path, data)


def following_in_new_epoch(host: Host, disk: MemoryDisk | None = None, *, begun_at: int = 3) -> FollowerDriver:
    """It has asked the leader of epoch 1, which began at that offset, for records."""
    following = followed(host, disk=disk)
    while not isinstance(host.asked[-1], RecordsRequest):
        following.on_epoch_end(host.asked[-1].number, (LeaderEpoch(0), Offset(begun_at)))
    return following


def fetched(following: FollowerDriver, host: Host, *batches: tuple[int, int]) -> None:
    """The leader answers with batches of one record, each of a base offset and a leader epoch."""
    data = bytearray()
    for base_offset, leader_epoch in batches:
        builder = BatchBuilder()
        builder.append(NOW_MS, None, b"y")
        batch = bytearray(builder.build())
        batch[:8] = base_offset.to_bytes(8)
        batch[12:16] = leader_epoch.to_bytes(4)
        data += batch
    following.on_fetched(host.asked[-1].number, records=bytes(data), high_watermark=3)


def test_a_new_leader_epoch_is_noted_off_the_loop_before_its_first_record_is_appended() -> None:
    """To sync the lineage takes the disk milliseconds, and after an election thousands of partitions do."""

    async def story() -> None:
        host, disk = Host(), SyncsCounted()
        following = following_in_new_epoch(host, disk)
        log, syncs, asked = following.partition.log, disk.syncs, len(host.asked)
        fetched(following, host, (3, 1), (4, 1))
        assert (log.log_end_offset, len(host.asked)) == (3, asked)
        await host.started.pop()
        assert host.noted[0] == (1, 3)
        assert (log.log_end_offset, log.lineage.entries) == (5, ((0, 0), (1, 3)))
        fetched(following, host, (5, 1))
        assert (log.log_end_offset, host.started, len(host.asked)) == (6, [], asked + 2)
        assert disk.syncs == syncs

    asyncio.run(story())


def test_a_leader_epoch_is_noted_behind_records_of_an_older_one() -> None:
    async def story() -> None:
        host, disk = Host(), SyncsCounted()
        following = following_in_new_epoch(host, disk, begun_at=4)
        syncs = disk.syncs
        fetched(following, host, (3, 0), (4, 1))
        await host.started.pop()
        assert host.noted == [(1, 4)]
        assert following.partition.log.lineage.entries == ((0, 0), (1, 4))
        assert (following.partition.log.log_end_offset, disk.syncs) == (5, syncs)

    asyncio.run(story())


def test_no_leader_epoch_is_noted_in_the_next_epoch() -> None:
    """By then the log is the next role's, which may be to lead."""

    async def story() -> None:
        host = Host()
        following = following_in_new_epoch(host)
        fetched(following, host, (3, 1))
        following.partition.stop(LeaderEpoch(2))
        await host.started.pop()
        assert (host.noted, following.partition.log.log_end_offset) == ([], 3)

    asyncio.run(story())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_leader_epoch_that_finds_no_room_is_fetched_once_more(number: int) -> None:
    async def story() -> None:
        host = Host()
        following = following_in_new_epoch(host)
        host.refusal = DiskError("leader-epoch-checkpoint", "cannot append", errno=number)
        fetched(following, host, (3, 1))
        await host.started.pop()
        assert (host.failures, following.partition.log.log_end_offset) == ([host.refusal], 3)
        if number == errno.EIO:
            assert host.due_ms == []
            return
        host.refusal = None
        following.on_due(host.due_ms[-1])
        fetched(following, host, (3, 1))
        await host.started.pop()
        assert following.partition.log.log_end_offset == 4

    asyncio.run(story())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_truncation_is_tried_again_if_the_disk_was_full_or_no_file_could_be_opened(number: int) -> None:
    """The checkpoint of the high watermark comes before it. It is counted once."""

    async def story() -> None:
        host = Host()
        following = followed(host)
        host.refusal = DiskError("replication-offset-checkpoint", "cannot append", errno=number)
        following.on_epoch_end(host.asked[0].number, (LeaderEpoch(0), Offset(1)))
        await host.started.pop()
        assert host.failures == [host.refusal]
        if number == errno.EIO:
            assert host.due_ms == []
            return
        host.refusal = None
        following.on_due(host.due_ms[-1])
        await host.started.pop()
        assert following.partition.log.log_end_offset == 1
        assert host.truncated == [TruncatedRecords(0, 0, 2)]
        assert len(host.asked) == 2

    asyncio.run(story())


def test_what_was_not_synced_when_it_began_to_follow_is_synced_before_the_first_fetch() -> None:
    """`flush.messages`: a fetch says what is held here, and a killed process left records in the page cache."""

    async def story() -> None:
        host = Host()
        following = followed(host, flush_messages=1)
        assert (host.asked, following.partition.log.recovery_point) == ([], 0)
        for work in host.started:
            await work
        assert (len(host.asked), following.partition.log.recovery_point) == (1, 3)

    asyncio.run(story())


def test_transactions_whose_end_or_records_are_truncated_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Producer 7 committed its transaction, 8 has one open: both are cut where the marker of 7 begins."""
    marker = TransactionMarker(ProducerId(7), ProducerEpoch(0), True, LeaderEpoch(0), 0)
    batches = [txn_batch(7, "a"), txn_batch(8, "b"), bytearray(marker.batch(NOW_MS)), txn_batch(8, "c", sequence=1)]

    async def story() -> None:
        host = Host()
        following = followed(host, batches=batches)
        following.on_epoch_end(host.asked[0].number, (LeaderEpoch(0), Offset(5)))
        for work in host.started:
            await work

    asyncio.run(story())
    reopened, shortened = [line for line in caplog.messages if "transactions" in line.lower()]
    assert "THE ENDS OF TRANSACTIONS ARE TRUNCATED, of producers 7 (from offset 3 on)" in reopened
    assert "lack records that are truncated, of producers 8 (from offset 4 on)" in shortened


@pytest.mark.parametrize(
    ("high_watermark", "unclean_epoch", "level", "said", "counts"),
    [
        (3, 1, "ERROR", "COMMITTED RECORDS ARE LOST: flights-0: offsets 1 to 2 (leader epochs 0 to 0)", (2, 0, 0)),
        (2, 1, "ERROR", "All below 2 were committed: leader epoch 1 began with an unclean election", (1, 1, 0)),
        (1, 1, "WARNING", "RECORDS ARE LOST: flights-0: offsets 1 to 2 (leader epochs 0 to 0)", (0, 2, 0)),
        (1, 0, "INFO", "flights-0: offsets 1 to 2 (leader epochs 0 to 0) are truncated", (0, 0, 2)),
        (None, None, "INFO", "they were not committed", (0, 0, 2)),
    ],
)
def test_what_a_truncation_removes_is_said_as_loudly_as_it_deserves(
    *,
    high_watermark: int | None,
    unclean_epoch: int | None,
    level: str,
    said: str,
    counts: tuple[int, int, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        host = Host()
        following = followed(host, high_watermark=high_watermark, unclean_epoch=unclean_epoch)
        with caplog.at_level("INFO"):
            following.on_epoch_end(host.asked[0].number, (LeaderEpoch(0), Offset(1)))
            for work in host.started:
                await work
        assert [line.levelname for line in caplog.records] == [level]
        assert said in caplog.messages[0]
        assert host.truncated == [counts]

    asyncio.run(story())


def fetched_batch(offset: int) -> bytes:
    """One record, as the leader of epoch 1 sends it."""
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"x")
    return builder.build(base_offset=offset, leader_epoch=1)


def fetching(host: Host) -> FollowerDriver:
    """It knows that its three records are the leader's first of a hundred, and asks for the next.

    Its lineage says already where the epoch begins.
    """
    following = followed(host)
    while isinstance(request := host.asked.pop(), EpochEndRequest):
        epoch = request.leader_epoch
        following.on_epoch_end(request.number, (epoch, Offset(100 if epoch else 3)))
    host.asked.append(request)
    following.partition.log.assign_leader_epoch(LeaderEpoch(1))
    return following


def fetches_of(host: Host) -> list[int]:
    """The offsets that were fetched from."""
    return [one.fetch_offset for one in host.asked if isinstance(one, RecordsRequest)]


def test_what_is_committed_is_asked_on_before_the_last_records_are_written() -> None:
    async def story() -> None:
        host = Host()
        following = fetching(host)
        log = following.partition.log
        following.on_fetched(host.asked[-1].number, records=fetched_batch(3), high_watermark=100)
        assert (fetches_of(host), log.log_end_offset, host.unwritten) == ([3, 4], 3, [following])
        following.on_fetched(host.asked[-1].number, records=fetched_batch(4), high_watermark=100)
        assert (fetches_of(host), log.log_end_offset) == ([3, 4], 3), "the next answer waits for the write"
        following.write()
        assert (fetches_of(host), log.log_end_offset) == ([3, 4, 5], 4), "and is taken after it"
        following.write()
        assert (log.log_end_offset, following.high_watermark) == (5, 5)
        following.write()  # nothing is left
        following.on_fetched(host.asked[-1].number, records=fetched_batch(5), high_watermark=6)
        assert (fetches_of(host), log.log_end_offset, len(host.unwritten)) == ([3, 4, 5, 6], 6, 2)

    asyncio.run(story())


def test_what_cannot_be_written_is_fetched_once_more_whatever_came_behind_it() -> None:
    async def story() -> None:
        host = Host()
        following = fetching(host)
        damaged = bytearray(fetched_batch(3))
        damaged[-1] ^= 1
        following.on_fetched(host.asked[-1].number, records=bytes(damaged), high_watermark=100)
        following.on_fetched(host.asked[-1].number, records=fetched_batch(4), high_watermark=100)
        following.write()
        assert (following.partition.log.log_end_offset, fetches_of(host)) == (3, [3, 4])
        following.on_due(host.due_ms[-1])
        assert (following.partition.log.log_end_offset, fetches_of(host)) == (3, [3, 4, 3])
        assert not host.failures

    asyncio.run(story())


def test_an_answer_to_a_fetch_that_went_ahead_waits_until_the_leader_epoch_is_noted() -> None:
    async def story() -> None:
        host = Host()
        following = fetching(host)
        log = following.partition.log
        log._lineage_file.truncate_from_end(Offset(3))
        following.on_fetched(host.asked[-1].number, records=fetched_batch(3), high_watermark=100)
        following.write()
        following.on_fetched(host.asked[-1].number, records=fetched_batch(4), high_watermark=100)
        assert (fetches_of(host), log.log_end_offset) == ([3, 4], 3)
        await host.started.pop()
        assert (host.noted, fetches_of(host), log.log_end_offset) == ([(1, 3)], [3, 4, 5], 4)
        following.write()
        assert (log.log_end_offset, log.lineage.entries, host.started) == (5, ((0, 0), (1, 3)), [])

    asyncio.run(story())


def test_an_answer_to_a_fetch_that_went_ahead_waits_for_the_sync() -> None:
    """`flush.messages`: the next records come while the last ones are synced."""

    async def story() -> None:
        host = Host()
        following = fetching(host)
        following.partition.log.configure(LogConfig(flush_messages=1))
        following.on_fetched(host.asked[-1].number, records=fetched_batch(3), high_watermark=100)
        following.write()
        following.on_fetched(host.asked[-1].number, records=fetched_batch(4), high_watermark=100)
        assert (fetches_of(host), following.high_watermark) == ([3, 4], 0)
        await host.started.pop()
        assert (fetches_of(host), following.high_watermark) == ([3, 4, 5], 4)
        following.write()
        await host.started.pop()
        assert following.partition.log.recovery_point == 5

    asyncio.run(story())


def test_a_write_that_was_put_off_is_dropped_with_the_epoch() -> None:
    async def story() -> None:
        host = Host()
        following = fetching(host)
        following.on_fetched(host.asked[-1].number, records=fetched_batch(3), high_watermark=100)
        following.on_unanswered(host.asked[-1].number)
        following.partition.stop(LeaderEpoch(2))
        following.write()
        assert following.partition.log.log_end_offset == 3

    asyncio.run(story())
