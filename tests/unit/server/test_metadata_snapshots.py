"""Snapshots of the metadata: their files, when they are made, what goes then, and a node that needs one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest

from support.examples import examples
from support.fixtures.led_offsets import SetClock
from support.fixtures.logs import DIRECTORY, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.worlds.simulated_quorum import METADATA, Quorum, run_quorum
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import CLUSTER_METADATA, BrokerId, LeaderEpoch, Offset
from tidelog.log import Log
from tidelog.log.directory import RECOVERY_POINT_FILE, LogDirectory
from tidelog.metadata import MetadataImage
from tidelog.metadata.records import FeatureLevelRecord
from tidelog.quorum import format_quorum_state
from tidelog.quorum.values import ReplicaKey, SnapshotId, Voter, VoterSet
from tidelog.records import ControlType, read_control_record, read_records, split_batches, split_whole_batches
from tidelog.server.quorum.metadata_log import MetadataLog, encode_decision
from tidelog.server.quorum.snapshot_scheduler import SnapshotScheduler
from tidelog.server.storage.checkpoints import Checkpoints
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.metadata_files import MetadataFiles, OpenedMetadata
from tidelog.server.storage.metadata_snapshots import (
    MetadataSnapshots,
    Snapshot,
    file_name,
    format_snapshot,
    parse_snapshot,
    parse_snapshot_name,
)
from tidelog.sim.world.disk import SimulatedDisk
from tidelog.sim.world.rng import SeededRng

T = TypeVar("T")

SNAPSHOT_ID = SnapshotId(Offset(4_096), LeaderEpoch(7))
VOTERS = VoterSet((Voter(ReplicaKey(BrokerId(1), UUID(int=5)), (("CONTROLLER", "host", 9093),)),), version=1)
RECORDS = tuple(FeatureLevelRecord(name=f"feature-{number}", feature_level=number) for number in range(1, 1_200))
SMALL = {"metadata.log.max.record.bytes.between.snapshots": "400"}


def batches_of(log: Log) -> list[tuple[int, int]]:
    """The first offset and the leader epoch of each."""
    data = log.read(log.log_start_offset, size_bytes_max=1 << 20, end_offset=log.log_end_offset).read_all()
    return [(header.base_offset, header.leader_epoch) for _, header in split_batches(data)]


def checkpoints_of(log: Log, disk: MemoryDisk) -> Checkpoints:
    return Checkpoints(LogDirectory.open(disk, "logs"), {log.topic_partition: log})


def snapshot(voters: VoterSet | None = VOTERS) -> Snapshot:
    return Snapshot(SNAPSHOT_ID, RECORDS, voters, 1_700_000_000_000)


@pytest.mark.parametrize("voters", [None, VOTERS])
def test_a_snapshot_says_what_it_was_made_of(voters: VoterSet | None) -> None:
    assert parse_snapshot(format_snapshot(snapshot(voters)), SNAPSHOT_ID, path="s") == snapshot(voters)


def test_it_is_laid_out_as_kafkas() -> None:
    """Header, version of the quorum and voters in one control batch, records, and the footer in another."""
    data = format_snapshot(snapshot())
    batches = split_batches(data)
    assert [header.is_control for _, header in batches] == [True, False, False, False, True]
    assert [header.base_offset for _, header in batches] == [0, 3, 503, 1_003, 1_202]
    assert {header.leader_epoch for _, header in batches} == {7}
    types = []
    for position, header in batches:
        if header.is_control:
            found = [read_control_record(record) for record in read_records(data, position, header)]
            types.append([one[0] for one in found if one is not None])
    first = [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert types == [first, [ControlType.SNAPSHOT_FOOTER]]


def test_names_are_those_of_kafka() -> None:
    assert file_name(SNAPSHOT_ID) == "00000000000000004096-0000000007.checkpoint"
    assert parse_snapshot_name(file_name(SNAPSHOT_ID)) == SNAPSHOT_ID
    for name in ("leader-epoch-checkpoint", "00000000000000004096.checkpoint", "00000000000000004096-7.checkpoint"):
        assert parse_snapshot_name(name) is None


@pytest.mark.parametrize("cut", ["footer", "header", "bit"])
def test_one_that_is_damaged_or_not_whole_is_refused(cut: str) -> None:
    data = bytearray(format_snapshot(snapshot()))
    batches = split_batches(bytes(data))
    match cut:
        case "footer":
            del data[batches[-1][0] :]
        case "header":
            del data[: batches[1][0]]
        case _:
            data[len(data) // 2] ^= 1
    with pytest.raises(CorruptLogError, match="snapshot of the metadata"):
        parse_snapshot(bytes(data), SNAPSHOT_ID, path="s")


def test_one_that_comes_piece_by_piece_is_looked_at_before_it_counts() -> None:
    disk = MemoryDisk()
    disk.make_dirs("m")
    snapshots = MetadataSnapshots("m", disk=disk)
    data = format_snapshot(snapshot())
    snapshots.append_part(SNAPSHOT_ID, 0, data[:1_000])
    snapshots.append_part(SNAPSHOT_ID, 500, data[500:])  # again from there on
    assert snapshots.finish_part(SNAPSHOT_ID) == snapshot()
    snapshots.append_part(SNAPSHOT_ID, 0, data[:-1])
    with pytest.raises(CorruptLogError):
        snapshots.finish_part(SNAPSHOT_ID)
    snapshots.append_part(SNAPSHOT_ID, 0, b"what a crash left")
    snapshots.look()
    assert (snapshots.ids, disk.list("m")) == ((SNAPSHOT_ID,), [file_name(SNAPSHOT_ID)])
    assert snapshots.piece(SNAPSHOT_ID, 10, 5) == (len(data), data[10:15])


def test_what_never_became_one_takes_no_room_that_lasts() -> None:
    disk = MemoryDisk()
    disk.make_dirs("m")
    snapshots = MetadataSnapshots("m", disk=disk)
    disk.free_write_bytes = 1_000
    with pytest.raises(DiskError):
        snapshots.write(snapshot())
    assert disk.list("m") == []
    disk.free_write_bytes = None
    older = SnapshotId(Offset(9), LeaderEpoch(2))
    snapshots.append_part(older, 0, b"whose leader went away")
    snapshots.append_part(SNAPSHOT_ID, 0, format_snapshot(snapshot()))
    assert len(disk.list("m")) == 1
    assert snapshots.finish_part(SNAPSHOT_ID) == snapshot()


def snapshots_of(quorum: Quorum, node_id: int) -> list[str]:
    files = quorum.machine(node_id).disk.files
    return sorted(path.rpartition("/")[2] for path in files if path.endswith(".checkpoint"))


@pytest.mark.parametrize("seed", range(3))
def test_every_node_makes_its_own_and_forgets_what_lies_before(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        for value in range(2_000, 2_060):
            await quorum.set(value)
        await quorum.until_all_have(2_059)
        for node in quorum.running:
            log = node.quorum.storage.log
            await quorum.until(lambda log=log: log.log_start_offset > 20, "its log starts further on")  # type: ignore[misc]
            node_id = node.config.node_id
            kept = snapshots_of(quorum, node_id)
            assert 1 <= len(kept) <= 3
            assert len(quorum.log_of(node_id)) < 3_000
        await asyncio.sleep(1)
        for machine in quorum.nodes.values():
            machine.kill()
        await quorum.start()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)

    run_quorum(story, seed, SMALL)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_comes_back_empty_or_late_loads_a_snapshot(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        late, empty = sorted({1, 2, 3} - {leader})
        await quorum.set(1_999)
        await quorum.until_all_have(1_999)
        quorum.nodes[late].kill()
        for value in range(2_000, 2_040):
            await quorum.set(value)
        await quorum.until(
            lambda: quorum.node(leader).quorum.storage.log.log_start_offset > 10, "the leader's log starts later"
        )
        await quorum.nodes[late].start()
        await quorum.until_all_have(2_039)
        assert quorum.node(late).quorum.storage.log.log_start_offset > 10
        quorum.nodes[empty].kill()
        disk = quorum.machine(empty).disk
        disk.remove_tree(METADATA)
        await quorum.nodes[empty].start()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        assert quorum.node(empty).quorum.storage.log.log_start_offset > 10

    run_quorum(story, seed, SMALL)


def test_a_snapshot_that_rotted_is_made_up_for_by_an_older_one_and_the_log() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        for value in range(2_000, 2_030):
            await quorum.set(value)
        await quorum.until_all_have(2_029)
        await asyncio.sleep(1)
        quorum.nodes[leader].kill()
        disk = quorum.machine(leader).disk
        latest = snapshots_of(quorum, leader)[-1]
        disk.files[f"{METADATA}/{latest}"].data[100] ^= 1
        await quorum.nodes[leader].start()
        await quorum.until_all_have(2_029)
        assert len(quorum.running) == 3

    run_quorum(story, settings=SMALL)


def test_without_a_snapshot_that_can_be_read_the_start_is_refused() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        for value in range(2_000, 2_030):
            await quorum.set(value)
        await quorum.until(lambda: quorum.node(leader).quorum.storage.log.log_start_offset > 10, "its log starts later")
        await asyncio.sleep(1)
        quorum.nodes[leader].kill()
        disk = quorum.machine(leader).disk
        for name in snapshots_of(quorum, leader):
            disk.files[f"{METADATA}/{name}"].data[100] ^= 1
        with pytest.raises(CorruptLogError, match="put back a copy of this directory that is whole"):
            await quorum.nodes[leader].start()

    run_quorum(story, settings=SMALL)


def test_one_that_came_from_the_leader_meanwhile_stays_the_latest() -> None:
    """To whoever lacks what lies before the log, an older one would not help."""
    disk = MemoryDisk()
    snapshots = MetadataSnapshots(DIRECTORY, disk=disk)
    clock = SetClock()
    held = open_log(disk)
    log = MetadataLog(held, snapshots, checkpoints_of(held, disk), clock=clock)
    log.append(encode_decision(RECORDS[:3], 0), LeaderEpoch(1))
    loaded = SnapshotId(Offset(9), LeaderEpoch(2))

    class LoadsMeanwhile:
        async def run(self, work: Callable[[], T]) -> T:
            done = work()
            if loaded not in snapshots.ids:
                log.start_at(loaded)
                snapshots.add(loaded)
            return done

        compute = run

    told: list[tuple[Offset, SnapshotId]] = []

    async def story() -> None:
        scheduler = SnapshotScheduler(
            log,
            snapshots,
            log_lock=asyncio.Lock(),
            clock=clock,
            executor=LoadsMeanwhile(),
            after_bytes=1,
            after_ms=None,
        )
        await scheduler.make(MetadataImage(last_offset=Offset(2)), None, lambda *fact: told.append(fact))

    asyncio.run(story())
    assert told == [(9, loaded)]


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_loss_of_power_leaves_no_hole_before_the_segment_that_a_snapshot_begins(seed: int) -> None:
    """What a leader has appended and not synced yet is in the segment that the snapshot closes."""
    disk, clock = SimulatedDisk(), SetClock()
    snapshots = MetadataSnapshots(DIRECTORY, disk=disk)
    held = open_log(disk)
    log = MetadataLog(held, snapshots, checkpoints_of(held, disk), clock=clock)

    class AtOnce:
        async def run(self, work: Callable[[], T]) -> T:
            return work()

        compute = run

    async def story() -> None:
        scheduler = SnapshotScheduler(
            log, snapshots, log_lock=asyncio.Lock(), clock=clock, executor=AtOnce(), after_bytes=1, after_ms=None
        )
        log.append(encode_decision(RECORDS[:3], 0), LeaderEpoch(1))
        log.sync(log.log_end_offset)
        log.append(encode_decision(RECORDS[3:6], 0), LeaderEpoch(1))
        await scheduler.make(MetadataImage(last_offset=Offset(2)), None, lambda start, latest: None)
        log.append(encode_decision(RECORDS[6:9], 0), LeaderEpoch(1))

    asyncio.run(story())
    assert held.segments.base_offsets == (0, 6)
    held.release()
    disk.lose_power(Random(seed))
    closed = f"{DIRECTORY}/{0:020}.log"
    assert [header.next_offset for _, header in split_whole_batches(disk.read_bytes(closed))] == [3, 6]


def test_after_long_enough_one_is_made_whatever_its_size() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        await asyncio.sleep(4)
        assert not any(snapshots_of(quorum, node_id) for node_id in (1, 2, 3))
        await asyncio.sleep(3)
        assert all(snapshots_of(quorum, node_id) for node_id in (1, 2, 3))
        made = snapshots_of(quorum, 1)
        await asyncio.sleep(20)
        assert snapshots_of(quorum, 1) == made  # nothing changed since

    run_quorum(story, settings={"metadata.log.max.snapshot.interval.ms": "5000"})


@pytest.mark.parametrize(
    ("written", "is_kept"),
    [([(1, 5)], True), ([(1, 4), (3, 1)], False), ([(1, 4)], False), ([(1, 5), (2, 2)], True), ([(3, 7)], False)],
)
def test_a_log_beside_a_snapshot_is_kept_if_it_has_the_last_record_of_that(
    written: list[tuple[int, int]], is_kept: bool
) -> None:
    """A process that was killed while it loaded a snapshot leaves its old log, which may reach as far."""
    disk, clock = MemoryDisk(), SetClock()
    directory = LogDirectory.open(disk, "logs")
    held = LogDir(directory, UUID(int=1), disk=disk, rng=SeededRng(1))
    files = MetadataFiles(held, disk=disk)
    opened = files.open(now_ms=0)
    log = MetadataLog(opened.log, opened.snapshots, opened.checkpoints, clock=clock)
    for leader_epoch, count in written:
        for _ in range(count):
            log.append(encode_decision(RECORDS[:1], 0), LeaderEpoch(leader_epoch))
    end_offset = log.log_end_offset
    opened.log.close()
    del held.logs[CLUSTER_METADATA]
    latest = SnapshotId(Offset(5), LeaderEpoch(1))
    opened.snapshots.write(Snapshot(latest, RECORDS[:1], None, 0))

    again = files.open(now_ms=0).log
    assert again.log_start_offset == 5
    assert again.log_end_offset == (end_offset if is_kept else 5)
    assert again.lineage.latest_leader_epoch == (written[-1][0] if is_kept else 1)


class KilledError(BaseException):
    """The process, or the machine, stops here. Nobody catches it."""


class CutDisk(MemoryDisk):
    """Stops at the `stop_at`-th change of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.stop_at: int | None = None

    def admit(self, path: str, operation: str) -> None:
        super().admit(path, operation)
        self.changes += 1
        if self.changes == self.stop_at:
            raise KilledError(path, operation)


@pytest.mark.parametrize("power_seed", [None, *range(4)])
@pytest.mark.parametrize("end_offset", [3, 5, 50])
def test_a_voter_that_is_killed_while_it_loads_a_snapshot_has_lost_nothing(
    end_offset: int, power_seed: int | None
) -> None:
    """Whatever it had is there, or the snapshot that takes its place: it may vote, as it might before."""
    snapshot_id = SnapshotId(Offset(end_offset), LeaderEpoch(2))
    stop_at, is_loaded = 1, False
    while not is_loaded:
        disk, clock = CutDisk(), SetClock()
        opened = open_metadata(disk)
        log = MetadataLog(opened.log, opened.snapshots, opened.checkpoints, clock=clock)
        for _ in range(5):
            log.append(encode_decision(RECORDS[:1], 0), LeaderEpoch(1))
        log.sync(log.log_end_offset)
        state = replace(opened.state, leader_epoch=LeaderEpoch(1), has_records=True)
        disk.write_atomically(f"{log.directory}/quorum-state", format_quorum_state(state))
        data = format_snapshot(Snapshot(snapshot_id, RECORDS[:1], None, 0))
        disk.changes, disk.stop_at = 0, stop_at
        try:
            opened.snapshots.append_part(snapshot_id, 0, data[:100])
            opened.snapshots.append_part(snapshot_id, 100, data[100:])
            opened.snapshots.finish_part(snapshot_id)
            log.start_at(snapshot_id)
            is_loaded = True
        except KilledError:
            pass
        disk.stop_at = None
        disk.crash()
        if power_seed is not None:
            disk.lose_power(Random(100 * stop_at + power_seed))
        again = open_metadata(disk)
        assert not again.state.is_lost, f"killed at change {stop_at}"
        starts_at, ends_at = again.log.log_start_offset, again.log.log_end_offset
        assert (starts_at, ends_at) in ((0, 5), (end_offset, end_offset)), f"killed at change {stop_at}"
        assert (again.snapshot is None) == (starts_at == 0)
        assert not is_loaded or starts_at == end_offset
        stop_at += 1
    assert stop_at > 20


def open_metadata(disk: MemoryDisk) -> OpenedMetadata:
    directory = LogDirectory.open(disk, "logs")
    return MetadataFiles(LogDir(directory, UUID(int=1), disk=disk, rng=SeededRng(1)), disk=disk).open(now_ms=0)


@pytest.mark.parametrize("power_seed", range(4))
def test_what_a_voter_has_after_it_was_killed_survives_a_loss_of_power(power_seed: int) -> None:
    """What it has counts for a majority. Its log was cut where more of it had been synced, and said so in a file."""
    opened = open_metadata(MemoryDisk())
    leader = MetadataLog(opened.log, opened.snapshots, opened.checkpoints, clock=SetClock())
    for leader_epoch in (1, 1, 1, 2, 2):
        leader.append(encode_decision(RECORDS[:1], 0), LeaderEpoch(leader_epoch))
    fetched = bytes(leader.records_from(Offset(3)).read_all())
    stop_at, is_appended = 1, False
    while not is_appended:
        disk, clock = CutDisk(), SetClock()
        held = LogDir(LogDirectory.open(disk, "logs"), UUID(int=1), disk=disk, rng=SeededRng(1))
        opened = MetadataFiles(held, disk=disk).open(now_ms=0)
        log = MetadataLog(opened.log, opened.snapshots, opened.checkpoints, clock=clock)
        for _ in range(5):
            log.append(encode_decision(RECORDS[:1], 0), LeaderEpoch(1))
        log.sync(log.log_end_offset)
        held.checkpoints.write_recovery_points([])
        disk.changes, disk.stop_at = 0, stop_at
        try:
            log.truncate_to(Offset(3))
            log.append_fetched(fetched)
            is_appended = True
        except KilledError:
            pass
        disk.stop_at = None
        disk.crash()
        has = batches_of(open_metadata(disk).log)
        disk.crash()
        disk.lose_power(Random(100 * stop_at + power_seed))
        assert batches_of(open_metadata(disk).log)[: len(has)] == has, f"killed at change {stop_at}"
        stop_at += 1
    assert stop_at > 5


def test_a_log_that_damage_made_shorter_is_not_said_to_be_synced_beyond_its_end() -> None:
    disk, clock = MemoryDisk(), SetClock()
    opened = open_metadata(disk)
    log = MetadataLog(opened.log, opened.snapshots, opened.checkpoints, clock=clock)
    for _ in range(2):
        log.append(encode_decision(RECORDS[:1], 0), LeaderEpoch(1))
    log.sync(Offset(2))
    size_bytes = len(disk.read_bytes(f"{log.directory}/{0:020}.log"))
    for _ in range(3):
        log.append(encode_decision(RECORDS[:1], 0), LeaderEpoch(1))
    log.sync(Offset(5))
    opened.checkpoints.write_recovery_points([])
    disk.crash()
    damaged = disk.open(f"{log.directory}/{0:020}.log")
    damaged.truncate(size_bytes)
    damaged.sync()
    assert open_metadata(disk).log.log_end_offset == 2
    disk.crash()
    assert LogDirectory.open(disk, "logs").read_offsets(RECOVERY_POINT_FILE) == {CLUSTER_METADATA: 2}
