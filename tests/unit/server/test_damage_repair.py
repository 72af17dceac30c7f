"""The chore of repairs: what it survives, and what it leaves alone."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.fixtures.cleaning import clean
from support.fixtures.logs import NOW_MS, append, batches_of
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, commit, send
from support.fixtures.waiting import until
from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError, refusal
from tidelog.base.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.io.executor import InlineExecutor, ThreadExecutor
from tidelog.log import Log, LogConfig, segment_rebuild
from tidelog.log.damage import DamagedRecordsError
from tidelog.log.segment import Segment
from tidelog.metadata import PartitionImage
from tidelog.replica import LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.broker import damage_repair
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.damage_repair import RETRY_MS, DamageRepair
from tidelog.server.replication.damage_notes import DamageNotes
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.role import PartitionRole
from tidelog.wire.primitives import ZERO_UUID

SELF, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
FLIGHTS = TopicPartition("flights", PartitionIndex(0))
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
BATCHES, RECORDS = 10, 10
SEGMENTS = 3


class FakeClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return NOW_MS + self.ms


def make_log(disk: MemoryDisk, config: LogConfig, *, active: int = 1) -> Log:
    """Closed segments of equal batches, and an active one. The later half of a segment has the keys of the first."""
    log = Log.open(disk, "data/flights-0", FLIGHTS, config, topic_id=None, clean_shutdown=True, now_ms=NOW_MS)
    for segment in range(SEGMENTS):
        for index in range(BATCHES):
            key = b"%d-%d" % (segment, index % (BATCHES // 2))
            append(log, *(f"{segment}-{index}-{each}" for each in range(RECORDS)), key=key)
        log.roll(NOW_MS)
    for index in range(active):
        append(log, f"active-{index}")
    log.flush()
    return log


def open_again(disk: MemoryDisk, log_start_offset: Offset = Offset(0)) -> Log:  # noqa: B008
    return Log.open(
        disk,
        "data/flights-0",
        FLIGHTS,
        LogConfig(),
        topic_id=None,
        clean_shutdown=True,
        now_ms=NOW_MS,
        log_start_offset=log_start_offset,
    )


class World:
    """A broker that leads a partition, of which others have replicas too, and the chore."""

    broker_id = SELF

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        executor: Any = None,
        *,
        others: int = 1,
        lost: int | None = None,
        active: int = 1,
        config: LogConfig = LogConfig(),  # noqa: B008
    ) -> None:
        """`lost`: the segment that starts there is gone. `active`: how many batches the last one has."""
        self.disk = MemoryDisk()
        self.log = make_log(self.disk, config, active=active)
        if lost is not None:
            self.log.close()
            for path in [path for path in self.disk.files if f"/{lost:020}." in path]:
                del self.disk.files[path]
            self.log = open_again(self.disk)
        self.others = {BrokerId(2 + index): make_log(MemoryDisk(), config, active=active) for index in range(others)}
        self.refusals: dict[tuple[BrokerId, int], KafkaError] = {}
        self.on_fetch: Callable[[], None] = lambda: None
        self.fetched: list[tuple[BrokerId, Offset]] = []
        self.offline: list[DiskError] = []
        self.read_errors = 0
        self.notes = DamageNotes()
        replicas = (SELF, *self.others)
        self.state = PartitionImage(replicas, replicas, SELF, LeaderEpoch(0), PartitionEpoch(0))
        self.replica = Partition(FLIGHTS, TopicId(ZERO_UUID), self.log)
        end_offset = self.log.log_end_offset
        bounds = LogBounds(self.log.log_start_offset, end_offset, end_offset)
        alone = PartitionImage((SELF,), (SELF,), SELF, LeaderEpoch(0), PartitionEpoch(0))
        self.replica.lead(
            LeaderReplica(FLIGHTS, SELF, alone, bounds, self.log.lineage, settings=ReplicationSettings(), now_ms=0)
        )
        monkeypatch.setattr(damage_repair, "fetch_records", self.fetch)
        self.clock = FakeClock()
        self.repair = DamageRepair(
            cast(Broker, self),
            disk=self.disk,
            clock=self.clock,
            executor=InlineExecutor() if executor is None else executor,
        )

    # What the chore asks of a broker.

    @property
    def image(self) -> Any:
        return SimpleNamespace(partition=lambda topic, index: self.state)

    @property
    def replication(self) -> Any:
        active = dict.fromkeys(self.state.replicas, 0)
        return SimpleNamespace(damage_notes=self.notes, active_brokers=active, peers=None)

    @property
    def failures(self) -> World:
        return self

    def partition(self, topic: str, index: int) -> Partition:
        return self.replica

    def replica_of(self, topic_partition: TopicPartition) -> Partition:
        return self.replica

    def on_disk_error(self, partition: Partition, error: DiskError) -> None:
        self.offline.append(error)

    def on_read_error(self, partition: Partition) -> None:
        self.read_errors += 1

    async def fetch(self, peers: Any, source: BrokerId, partition: Partition, offset: Offset) -> bytes:
        self.fetched.append((source, offset))
        self.on_fetch()
        for (refusing, refused_offset), error in self.refusals.items():
            if refusing == source and refused_offset <= offset < refused_offset + RECORDS:
                raise error
        other = self.others[source]
        return other.read(offset, size_bytes_max=300, end_offset=other.log_end_offset).read_all()

    # What a test does.

    def segments(self) -> list[Segment]:
        return list(self.log.segments)

    def rot(self, offset: int) -> Segment:
        """A record of the batch with this offset."""
        segment = self.log.segments.overlapping(offset, offset + 1)[0]
        position = segment.position_of(offset)
        self.disk.files[segment.path].data[position + 70] ^= 1
        return segment

    def see_to(self) -> None:
        """Look through all, and repair."""
        self.replica.suspect(None)
        asyncio.run(self.repair.see_to(self.replica))

    def leftovers(self) -> list[str]:
        return [name for name in self.disk.list("data/flights-0") if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_what_rotted_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    before = batches_of(world.log)
    world.rot(130)
    world.see_to()
    assert batches_of(world.log) == before
    assert (world.notes.repaired, world.notes.open_count) == (1, 0)
    assert world.leftovers() == []


def test_a_segment_that_retention_deletes_meanwhile_takes_nothing_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.rot(30)
    world.rot(130)

    def delete() -> None:
        world.log.advance_log_start_offset(Offset(200))
        world.log.delete_segments_before(Offset(200))
        world.log.segments.remove_deleted_files()

    world.on_fetch = delete
    world.see_to()
    assert (world.offline, world.read_errors) == ([], 0)
    assert world.notes.open_count == 0
    assert world.leftovers() == []


def test_a_place_that_cannot_be_read_takes_nothing_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    segment = world.rot(130)
    world.disk.broken.add(segment.path)
    world.see_to()
    assert world.offline == []
    assert world.read_errors == 1
    world.disk.broken.clear()
    world.see_to()
    assert world.notes.repaired == 1


def test_what_was_deleted_since_is_counted_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice for what is lost is to delete it; the alert is to end then, though the segment is still there."""
    world = World(monkeypatch, others=0)
    world.rot(130)
    world.see_to()
    assert world.notes.lost_count == 1
    world.log.advance_log_start_offset(Offset(140))
    world.see_to()
    assert world.notes.open_count == 0


def test_what_lies_below_the_log_start_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    before = batches_of(world.log)
    for offset in (130, 140, 150):
        world.rot(offset)
    for log in (world.log, world.others[OTHER]):
        log.advance_log_start_offset(Offset(145))
    world.see_to()
    assert (world.notes.repaired, world.notes.open_count, world.notes.lost_count) == (1, 0, 0)
    assert batches_of(world.log) == [(header, data) for header, data in before if header.last_offset >= 145]
    world.log.close()
    again = open_again(world.disk, log_start_offset=Offset(145))
    assert batches_of(again) == batches_of(world.others[OTHER])


def test_a_full_disk_keeps_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.rot(130)
    world.disk.free_write_bytes = 100
    world.see_to()
    assert world.log.segments.failure is None
    assert world.leftovers() == []
    assert world.notes.open_count == 1
    world.disk.free_write_bytes = None
    world.see_to()
    assert world.notes.repaired == 1


def test_a_name_that_cannot_be_synced_leaves_nothing_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is announced takes the place of the segment at the next start, whatever that is by then."""
    world = World(monkeypatch)
    world.rot(130)

    def refuse() -> None:
        raise DiskError("data/flights-0", "refused to sync", errno=errno.EIO)

    monkeypatch.setattr(type(world.log.compaction), "sync_names", lambda self: refuse())
    world.see_to()
    assert world.leftovers() == []


def test_what_rots_here_meanwhile_is_not_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    before = batches_of(world.log)
    world.rot(130)

    def rot_more() -> None:
        if len(world.fetched) == 1:
            world.rot(150)

    world.on_fetch = rot_more
    world.see_to()
    assert world.notes.lost_count == 0
    world.see_to()
    assert batches_of(world.log) == before


def test_a_node_that_stops_in_the_midst_of_a_step_tells_of_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ThreadExecutor()
    world = World(monkeypatch, executor)
    world.rot(130)
    is_reading, may_go_on = threading.Event(), threading.Event()
    open_file = world.disk.open

    def slow_open(path: str, *, create: bool = False) -> Any:
        is_reading.set()
        may_go_on.wait(10)
        return open_file(path, create=create)

    async def story() -> None:
        world.replica.suspect(None)
        monkeypatch.setattr(world.disk, "open", slow_open)
        job = asyncio.ensure_future(world.repair.see_to(world.replica))
        await asyncio.get_running_loop().run_in_executor(None, is_reading.wait, 10)
        job.cancel()
        await asyncio.wait([job], timeout=0.1)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await job

    try:
        asyncio.run(story())
    finally:
        may_go_on.set()
        executor.close()


def refused(code: Code) -> KafkaError:
    return refusal(code, "refused")


def test_where_a_reader_failed_is_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.rot(30)
    world.rot(130)
    world.replica.suspect(170)
    asyncio.run(world.repair.see_to(world.replica))
    assert (world.notes.repaired, world.replica.suspected) == (1, None)
    assert world.notes.scrubbed_bytes == world.segments()[1].size_bytes


def test_what_a_reader_could_not_look_up_in_the_last_segment_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed can be written anew; until then nobody would look there."""
    world = World(monkeypatch, active=600)
    before = batches_of(world.log)
    segment = world.log.segments.active
    world.disk.files[segment.path].data[segment.position_of(350) + 7] ^= 64
    with pytest.raises(CorruptLogError):
        world.log.read(Offset(352), size_bytes_max=1, end_offset=Offset(900))
    assert segment.damages == ()
    world.replica.suspect(352)
    asyncio.run(world.repair.see_to(world.replica))
    assert world.notes.repaired == 1
    assert batches_of(world.log) == before


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("is_behind", [True, False])
def test_a_replica_that_is_compacted_otherwise_repairs_nothing_whose_marks_may_be_gone(
    is_old: bool, is_behind: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that was deleted long ago came back from one that is behind, where the mark of that is gone; the mark
    was lost with one that is ahead, where the record still is.
    """
    world = World(monkeypatch, config=COMPACT)
    assert clean(world.log if is_behind else world.others[OTHER]) == 300
    world.rot(160)
    world.clock.ms = COMPACT.delete_retention_ms + (1 if is_old else -1)
    world.see_to()
    assert (world.notes.repaired, world.notes.open_count, world.notes.lost_count) == (
        (0, 1, 0) if is_old else (1, 0, 0)
    )
    assert ("broker 2: it is compacted otherwise" in caplog.text) is is_old


def test_no_aborted_record_comes_from_a_replica_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second compaction forgets that it was aborted."""
    world = World(monkeypatch, config=COMPACT)
    for log in (world.log, world.others[OTHER]):
        send(log, 1, "aborted", key=b"a")
        append(log, "kept", key=b"b")
        abort(log, 1)
        send(log, 1, "committed", key=b"c")
        commit(log, 1)
        log.producers.on_high_watermark(log.log_end_offset)
        log.roll(NOW_MS)
        append(log, "active")
        log.flush()
    for _ in range(2):
        clean(world.log, first_dirty_offset=0)
    machine = world.replica.replica
    assert machine is not None
    machine.on_appended(world.log.log_end_offset, 0)
    machine.take_ready()
    segment = world.log.segments.overlapping(302, 303)[0]
    world.disk.files[segment.path].data[segment.position_of(302) + 66] ^= 1
    world.see_to()
    assert (world.notes.repaired, world.notes.open_count, world.notes.lost_count) == (0, 1, 0)
    (damage,) = segment.damages
    rest = world.log.read(damage.end_offset, size_bytes_max=1 << 20, end_offset=world.log.log_end_offset)
    assert b"aborted" not in rest.read_all()


def test_a_replica_that_is_compacted_alike_repairs_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, config=COMPACT)
    for log in (world.log, world.others[OTHER]):
        assert clean(log) == 300
    before = batches_of(world.log)
    world.rot(160)
    world.clock.ms = COMPACT.delete_retention_ms + 1
    world.see_to()
    assert batches_of(world.log) == before
    assert (world.notes.repaired, world.notes.open_count) == (1, 0)


def test_what_loses_its_role_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    before = batches_of(world.log)
    world.rot(130)
    role = world.replica.role

    def lose_role() -> None:
        world.replica.role = PartitionRole(FLIGHTS, world.replica.high_watermark, None)

    world.on_fetch = lose_role
    world.see_to()
    assert world.notes.open_count == 1
    world.replica.role, world.on_fetch = role, lambda: None

    async def wait() -> None:
        running = asyncio.ensure_future(world.repair.run())
        await until(lambda: world.notes.repaired > 0)
        running.cancel()

    world.clock.ms += RETRY_MS
    asyncio.run(wait())
    assert batches_of(world.log) == before


def test_two_damages_of_a_segment_come_from_two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, others=2)
    before = batches_of(world.log)
    world.rot(130)
    world.rot(170)
    world.refusals = {(OTHER, 130): refused(Code.KAFKA_STORAGE_ERROR), (THIRD, 170): refused(Code.KAFKA_STORAGE_ERROR)}
    world.see_to()
    assert batches_of(world.log) == before
    assert (world.notes.repaired, world.notes.open_count) == (2, 0)


def test_a_damage_that_is_lost_keeps_no_other_from_being_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    before = {header.base_offset: data for header, data in batches_of(world.log)}
    world.rot(130)
    world.rot(170)
    world.refusals = {(OTHER, 130): refused(Code.KAFKA_STORAGE_ERROR)}
    world.see_to()
    assert (world.notes.repaired, world.notes.open_count, world.notes.lost_count) == (1, 1, 1)
    (damage,) = world.segments()[1].damages
    assert (damage.start_offset, damage.end_offset, damage.is_lost) == (130, 140, True)
    for offset in (0, 100, 140, 170, 290):
        data = world.log.read(Offset(offset), size_bytes_max=1, end_offset=Offset(300)).read_all()
        assert data == before[offset]
    with pytest.raises(DamagedRecordsError):
        world.log.read(Offset(135), size_bytes_max=1, end_offset=Offset(300))
    again = open_again(world.disk)
    assert again.log_end_offset == world.log.log_end_offset
    world.refusals = {}
    world.see_to()
    assert {header.base_offset: data for header, data in batches_of(world.log)} == before


def test_what_a_replica_has_wrong_is_asked_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, others=2)
    before = batches_of(world.log)
    world.rot(130)
    other = world.others[OTHER]
    segment = other.segments.overlapping(130, 131)[0]
    segment.file.write_at(segment.position_of(130) + 75, b"?")
    world.see_to()
    assert batches_of(world.log) == before
    assert [source for source, _ in world.fetched][-1] == THIRD


def test_what_the_others_answered_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch)
    world.rot(130)
    world.refusals = {(OTHER, 130): refused(Code.NOT_LEADER_OR_FOLLOWER)}
    world.see_to()
    world.see_to()
    told = [line for line in caplog.messages if "damaged records are not repaired yet" in line]
    assert len(told) == 1
    assert "offsets 130 to 139" in told[0]
    assert "broker 2: refused" in told[0]
    assert world.notes.lost_count == 0


def test_what_lies_in_a_directory_that_is_offline_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers as one that is damaged there does; it is in no ISR, and has the records once its disk is back."""
    world = World(monkeypatch)
    world.rot(130)
    world.refusals = {(OTHER, 130): refused(Code.KAFKA_STORAGE_ERROR)}
    world.state = replace(world.state, isr=(SELF,))
    world.see_to()
    assert (world.notes.open_count, world.notes.lost_count) == (1, 0)
    world.state = replace(world.state, isr=(SELF, OTHER))
    world.see_to()
    assert world.notes.lost_count == 1


def test_nothing_is_written_while_nobody_has_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.rot(130)
    world.refusals = {(OTHER, 130): refused(Code.CORRUPT_MESSAGE)}
    before = world.disk.append_count
    world.see_to()
    assert world.notes.lost_count == 1
    assert world.disk.append_count == before


def test_a_segment_that_is_gone_comes_back_in_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, lost=100)
    assert len(world.segments()) == SEGMENTS
    world.see_to()
    assert batches_of(world.log) == batches_of(world.others[OTHER])
    assert (world.notes.repaired, world.notes.open_count) == (1, 0)


def test_what_finds_no_room_in_its_segment_is_fetched_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An index tells 31 bits, of offsets and of positions."""
    world = World(monkeypatch, lost=100)
    monkeypatch.setattr(segment_rebuild, "SEGMENT_SIZE_BYTES_MAX", world.segments()[0].size_bytes + 300)
    world.see_to()
    fetched = len(world.fetched)
    world.see_to()
    assert 0 < fetched == len(world.fetched)
    assert (world.notes.open_count, world.notes.lost_count) == (1, 0)
    assert "has no room for offset" in caplog.text
    with pytest.raises(DamagedRecordsError):
        world.log.read(Offset(150), size_bytes_max=1, end_offset=Offset(300))
