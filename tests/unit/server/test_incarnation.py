"""What a broker can show of its last run: that nothing it wrote is lost, or that something may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from support.fixtures.logs import values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import LostLogError, TidelogError
from tidelog.base.ids import BrokerEpoch, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log import Log, LogConfig
from tidelog.log.files.incarnation import (
    NOTHING,
    SLOT_BYTES,
    Incarnation,
    Note,
    format_note,
    incarnation_of_all,
    parse_notes,
    slot_of,
)
from tidelog.log.files.replica_list import REPLICA_LIST_FILE
from tidelog.log.recovery import PARTITION_METADATA_FILE
from tidelog.metadata import MetadataImage
from tidelog.records import BatchBuilder
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_dir_assignment import WantedLog
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.storage.log_losses import LogLoss
from tidelog.server.tasks import Tasks

EPOCH = BrokerEpoch(17)
OURS = UUID(int=11)
IDS: frozenset[UUID] = frozenset()
PARTITION = TopicPartition("flights", PartitionIndex(0))
TOPIC_ID = TopicId(UUID(int=5))
REPLICA = TOPIC_ID, PARTITION.partition
INCARNATION = ".tidelog_incarnation"


def start(disk: MemoryDisk, directories: str = "a,b") -> LogFiles:
    """What a node does first, after whatever end the one before had."""
    disk.locked.clear()
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": directories,
    }
    config = NodeConfig.from_properties(properties)
    files = LogFiles(
        config,
        disk=disk,
        clock=SystemClock(),
        rng=SystemRng(),
        executor=InlineExecutor(),
        tasks=Tasks("node"),
        room_for_logs=lambda: None,
    )
    files.open()
    files.open_metadata_log()
    return files


def run_once(disk: MemoryDisk) -> LogFiles:
    files = start(disk)
    asyncio.run(files.incarnations.write_incarnation(EPOCH))
    return files


def open_log(held: LogDir) -> Log:
    return held.open_log(PARTITION, LogConfig(), topic_id=TOPIC_ID, now_ms=0)


def open_wanted(files: LogFiles, *, is_new: bool = False) -> Log | TidelogError | None:
    """As the broker does, which knows the replica from the metadata."""
    wanted = WantedLog(PARTITION, TOPIC_ID, is_new)
    [opened] = asyncio.run(files.opening.open([wanted], MetadataImage.empty()))
    return opened


def log_of_three_segments(log: Log) -> None:
    """A record in each."""
    for index in range(3):
        if index:
            log.roll(0)
        builder = BatchBuilder()
        builder.append(0, None, b"%d" % index)
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=0)


class Held(NamedTuple):
    """A replica whose follower knew no high watermark yet."""

    log: Log
    topic_partition: TopicPartition = PARTITION
    high_watermark: Offset = Offset(0)


def kill_while_it_writes(files: LogFiles, incarnation: Incarnation, written: int) -> None:
    """When some of the directories have it."""
    for held in files.directories[:written]:
        if incarnation.registers is None:
            held.evidence.write_incarnation(incarnation)
        else:
            held.evidence.write_registering(incarnation)


def test_a_first_start_has_nothing_to_show() -> None:
    assert start(MemoryDisk()).incarnations.previous_broker_epoch is None


def test_a_crash_of_the_process_loses_nothing() -> None:
    disk = MemoryDisk()
    run_once(disk)
    disk.crash()
    assert start(disk).incarnations.previous_broker_epoch == EPOCH
    assert start(disk).incarnations.previous_broker_epoch == EPOCH  # a crash before it registered again


def test_a_loss_of_power_may_lose_something() -> None:
    disk = MemoryDisk()
    run_once(disk)
    disk.lose_power(Random(1))
    assert start(disk).incarnations.previous_broker_epoch is None


def test_what_stopped_cleanly_survives_a_loss_of_power() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    assert asyncio.run(files.close([], EPOCH))
    disk.lose_power(Random(1))
    assert start(disk).incarnations.previous_broker_epoch == EPOCH


@pytest.mark.parametrize("fault", ["gone", "garbled", "of another run"])
def test_every_directory_has_to_show_it(fault: str) -> None:
    disk = MemoryDisk()
    run_once(disk)
    match fault:
        case "gone":
            disk.remove(f"b/{INCARNATION}")
        case "garbled":
            disk.write_atomically(f"b/{INCARNATION}", b"{}")
        case _:
            disk.write_atomically(
                f"b/{INCARNATION}", format_note(Note(Incarnation(BrokerEpoch(16)), disk.boot_id(), 0))
            )
    assert start(disk).incarnations.previous_broker_epoch is None


def test_a_directory_that_is_left_out_shows_nothing() -> None:
    disk = MemoryDisk()
    run_once(disk)
    disk.broken.add("b")
    assert start(disk).incarnations.previous_broker_epoch is None


def test_after_an_error_of_a_disk_a_crash_may_lose_something() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    files.on_directory_failed(files.directories[1], "its sync was refused")
    disk.crash()
    assert start(disk).incarnations.previous_broker_epoch is None


def test_after_the_failure_of_a_log_a_crash_may_lose_something() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    files.directories[1].on_failed(PARTITION)
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(EPOCH + 1)))  # it had to register again
    disk.crash()
    assert start(disk).incarnations.previous_broker_epoch is None


def test_a_log_that_lacks_what_was_committed_is_lost_and_the_others_are_what_they_were() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    held = files.directories[1]
    log = open_log(held)
    builder = BatchBuilder()
    builder.append(0, None, b"committed")
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=0)
    held.checkpoints._high_watermarks[PARTITION] = log.log_end_offset
    held.checkpoints.write_high_watermarks([])
    disk.crash()

    files = start(disk)
    held = files.directories[1]
    log = open_log(held)
    assert (log.log_end_offset, held.losses.of(log, REPLICA)) == (1, None)
    disk.crash()

    del disk.files[f"b/{PARTITION}/00000000000000000000.log"].data[40:]
    for _ in range(2):  # until the loss is committed, each start finds it
        files = start(disk)
        held = files.directories[1]
        log = open_log(held)
        assert held.losses.of(log, REPLICA) == LogLoss("it ends at offset 0, and 1 was committed")
        assert files.incarnations.previous_broker_epoch == EPOCH
        disk.crash()
    held.losses.accept([REPLICA])
    assert held.losses.of(log, REPLICA) is None


@pytest.mark.parametrize("is_list_lost", [False, True])
def test_a_log_that_may_have_been_listed_and_has_no_records_file_is_lost(is_list_lost: bool) -> None:
    """Until that is committed, however often the process is killed before."""
    disk = MemoryDisk()
    files = run_once(disk)
    assert isinstance(open_wanted(files, is_new=True), Log), "it is made just now"
    held = files.directory_of(PARTITION)
    assert held is not None
    path = f"{held.path}/{PARTITION}"
    disk.crash()
    assert isinstance(open_wanted(start(disk)), Log)
    disk.crash()
    for name in disk.list(path):
        if name != PARTITION_METADATA_FILE:
            disk.remove(f"{path}/{name}")
    if is_list_lost:
        disk.remove(f"{held.path}/{REPLICA_LIST_FILE}")
    for _ in range(2):
        files = start(disk)
        assert isinstance(open_wanted(files), LostLogError)
        disk.crash()
    asyncio.run(files.opening.accept_losses([REPLICA]))
    for _ in range(2):
        assert isinstance(open_wanted(files), Log)
        disk.crash()
        files = start(disk)


@pytest.mark.parametrize("list_lost_at", [None, 0, 1])
def test_a_log_that_is_cut_where_it_cannot_be_read_is_lost_until_that_is_committed(list_lost_at: int | None) -> None:
    """What told of the loss is gone with the first start; what it set aside is there."""
    disk = MemoryDisk()
    files = run_once(disk)
    log = open_wanted(files, is_new=True)
    held = files.directory_of(PARTITION)
    assert isinstance(log, Log)
    assert held is not None
    for _ in range(3):
        builder = BatchBuilder()
        builder.append(0, None, b"acknowledged")
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=0)
    disk.crash()
    data = disk.files[f"{held.path}/{PARTITION}/{0:020d}.log"].data
    data[len(data) // 2] ^= 1
    for number in range(3):
        if number == list_lost_at:
            disk.remove(f"{held.path}/{REPLICA_LIST_FILE}")
        files = start(disk)
        assert isinstance(open_wanted(files), LostLogError)
        disk.crash()
    asyncio.run(files.opening.accept_losses([REPLICA]))
    for _ in range(2):
        again = open_wanted(files)
        assert isinstance(again, Log)
        assert again.log_end_offset == 1
        disk.crash()
        files = start(disk)


def test_a_log_that_comes_after_the_list_was_lost_has_lost_nothing() -> None:
    """Though nothing but its directory is there: nobody can have written to it."""
    disk = MemoryDisk()
    run_once(disk)
    disk.crash()
    for directory in "ab":
        disk.remove(f"{directory}/{REPLICA_LIST_FILE}")
    assert isinstance(open_wanted(start(disk), is_new=True), Log)


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_log_that_lacks_any_of_its_segments_is_lost(lost: int, is_stopped: bool) -> None:
    """Whatever its high watermark was when that was last written."""
    disk = MemoryDisk()
    files = run_once(disk)
    held = files.directories[1]
    log = open_log(held)
    held.listed.add([REPLICA])
    log_of_three_segments(log)
    if is_stopped:
        log.close()
        held.checkpoints.write_recovery_points([Held(log)])
        held.leave([Held(log)], EPOCH)
        files.directories[0].leave([], EPOCH)
    disk.crash()
    disk.remove(f"b/{PARTITION}/{lost:020d}.log")
    files = start(disk)
    assert files.incarnations.previous_broker_epoch == EPOCH
    held = files.directories[1]
    assert held.losses.before_opening(PARTITION, REPLICA) == LogLoss(
        f"the file of records from offset {lost} on is gone"
    )
    held.listed.note_lost(REPLICA)
    open_log(held)  # recovery removes what told of it
    disk.crash()
    held = start(disk).directories[1]
    assert held.losses.before_opening(PARTITION, REPLICA) == LogLoss(
        "records of it were found to be gone", is_whole=True
    )
    held.losses.accept([REPLICA])
    held.losses.end_before(PARTITION, is_only_replica=False)
    open_log(held)
    disk.crash()
    assert start(disk).directories[1].losses.before_opening(PARTITION, REPLICA) is None


@pytest.mark.parametrize(
    ("lost", "values", "kept"),
    [([1], "0", "2"), ([0], "", "12"), ([2], "01", ""), ([0, 2], "", "1")],
)
def test_what_follows_a_hole_is_kept_and_no_part_of_the_log(lost: list[int], values: str, kept: str) -> None:
    """It would be in sync by its end."""
    disk = MemoryDisk()
    held = run_once(disk).directories[1]
    log_of_three_segments(open_log(held))
    disk.crash()
    for offset in lost:
        disk.remove(f"b/{PARTITION}/{offset:020d}.log")
    held = start(disk).directories[1]
    for _ in range(2):  # and so it stays
        held.losses.end_before(PARTITION, is_only_replica=False)
        log = open_log(held)
        assert "".join(values_of(log)) == values
        assert sorted(name for name in disk.list(f"b/{PARTITION}") if name.endswith(".cut")) == [
            f"{int(offset):020d}.cut" for offset in kept
        ]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_log_whose_beginning_is_gone_without_a_trace_is_lost(is_stopped: bool) -> None:
    """It is no log that begins later."""
    disk = MemoryDisk()
    files = run_once(disk)
    held = files.directories[1]
    log = open_log(held)
    held.checkpoints.note_log_starts([log])
    held.listed.add([REPLICA])
    log_of_three_segments(log)
    if is_stopped:
        log.close()
        held.leave([Held(log)], EPOCH)
        files.directories[0].leave([], EPOCH)
    disk.crash()
    lose_segment(disk, 0)
    held = start(disk).directories[1]
    assert held.losses.before_opening(PARTITION, REPLICA) == LogLoss("the file of records from offset 0 on is gone")
    held.losses.end_before(PARTITION, is_only_replica=True)
    assert values_of(open_log(held)) == ["1", "2"], "nobody else has what is left"
    disk.crash()
    held = start(disk).directories[1]
    held.losses.end_before(PARTITION, is_only_replica=False)
    assert values_of(open_log(held)) == []


class DiedError(Exception):
    """The process ended here."""


def die_before(change: int) -> Callable[[str, str, Buffer], None]:
    """What ends the process before the change of that number is made."""
    left = change

    def on_change(operation: str, path: str, data: Buffer) -> None:
        nonlocal left
        if not left:
            raise DiedError
        left -= 1

    return on_change


def lose_segment(disk: MemoryDisk, base_offset: int) -> None:
    for suffix in ("log", "index", "timeindex"):
        disk.remove(f"b/{PARTITION}/{base_offset:020d}.{suffix}")


def test_a_log_that_starts_later_by_its_own_doing_has_lost_nothing() -> None:
    """Whenever it is killed: segments go once their log's start is noted, and before it starts anew none is."""
    written = 0
    while True:
        disk = MemoryDisk()
        held = run_once(disk).directories[1]
        log = open_log(held)
        held.checkpoints.note_log_starts([log])
        held.listed.add([REPLICA])
        log_of_three_segments(log)
        disk.on_change = die_before(written)
        try:
            log.advance_log_start_offset(Offset(1))
            log.delete_segments_before(held.checkpoints.noted_log_start(log))
            held.checkpoints.write_recovery_points([Held(log)])
            log.delete_segments_before(held.checkpoints.noted_log_start(log))
            held.checkpoints.start_anew(log, Offset(70))
            held.checkpoints.write_recovery_points([Held(log)])
            is_done = True
        except DiedError:
            is_done = False
        disk.on_change = lambda operation, path, data: None
        disk.crash()
        held = start(disk).directories[1]
        assert held.losses.before_opening(PARTITION, REPLICA) is None
        if is_done:
            assert open_log(held).log_start_offset == 70
            return
        written += 1


def test_where_kafka_noted_the_starts_of_logs_they_prove_nothing() -> None:
    """It deletes segments, and notes where the log starts a minute later."""
    disk = MemoryDisk()
    files = run_once(disk)
    held = files.directories[1]
    log = open_log(held)
    held.checkpoints.note_log_starts([log])
    log_of_three_segments(log)
    disk.crash()
    lose_segment(disk, 0)
    properties = disk.files["b/meta.properties"].data
    properties[:] = properties.replace(b"tidelog.replica.list=1\n", b"")
    held = start(disk).directories[1]
    assert held.losses.before_opening(PARTITION, REPLICA) is None
    log = open_log(held)
    held.checkpoints.note_log_starts([log])
    assert held.checkpoints.noted_log_start(log) == 1
    disk.crash()
    lose_segment(disk, 1)
    assert start(disk).directories[1].losses.before_opening(PARTITION, REPLICA) is not None


def test_a_log_that_is_shorter_than_when_it_was_closed_is_lost() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    held = files.directories[1]
    log = open_log(held)
    builder = BatchBuilder()
    builder.append(0, None, b"acknowledged by its leader")
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=0)
    log.close()
    held.leave([Held(log)], EPOCH)
    del disk.files[f"b/{PARTITION}/00000000000000000000.log"].data[:]
    held = start(disk).directories[1]
    assert held.losses.of(open_log(held), REPLICA) == LogLoss("it ends at offset 0, and was closed at 1")


def test_what_a_loss_of_power_took_does_not_count_once_more_at_the_next_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed nothing, and has lost its seats: those that it has by then it won with what it fetched since."""
    disk = MemoryDisk()
    files = run_once(disk)
    open_log(files.directories[1])
    files.directories[1].checkpoints._high_watermarks[PARTITION] = Offset(1)
    files.directories[1].checkpoints.write_high_watermarks([])
    disk.crash()
    monkeypatch.setattr(disk, "boot_id", lambda: "another")
    files = start(disk)
    assert files.incarnations.previous_broker_epoch is None
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(EPOCH + 1)))
    assert open_log(files.directories[1]).log_end_offset == 0
    disk.crash()
    assert start(disk).incarnations.previous_broker_epoch == EPOCH + 1


def test_where_the_machine_does_not_tell_of_its_runs_only_a_clean_stop_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    run_once(disk)
    monkeypatch.setattr(disk, "boot_id", lambda: None)
    assert start(disk).incarnations.previous_broker_epoch is None
    run_once(disk)
    assert not disk.exists(f"a/{INCARNATION}")


def test_a_disk_that_refuses_the_note_keeps_nobody_from_serving() -> None:
    disk = MemoryDisk()
    run_once(disk)
    files = start(disk)
    disk.refusals.add("write")
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(18)))
    disk.refusals.clear()
    disk.crash()
    assert start(disk).incarnations.previous_broker_epoch is None


@pytest.mark.parametrize("is_stopped", [False, True])
def test_on_a_full_disk_it_can_be_said_who_registers(is_stopped: bool) -> None:
    """A node may fail to start, again and again, while there is no room: it has written nothing by then."""
    disk = MemoryDisk()
    files = run_once(disk)
    if is_stopped:
        asyncio.run(files.close([], EPOCH))
    for _ in range(3):
        files = start(disk)
        disk.free_write_bytes = 0
        asyncio.run(files.incarnations.write_registering(EPOCH, OURS))
        disk.crash()
        disk.free_write_bytes = None
        previous = start(disk).incarnations.previous
        assert (previous.broker_epoch, previous.registers) == (EPOCH, OURS)
    disk.free_write_bytes = 0
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(18), OURS))
    disk.crash()
    disk.free_write_bytes = None
    assert start(disk).incarnations.previous_broker_epoch == 18


@pytest.mark.parametrize("is_stopped", [False, True])
def test_who_has_no_room_to_say_that_it_registers_has_lost_nothing(is_stopped: bool) -> None:
    """The file of a release before, which has no room for a second note."""
    disk = MemoryDisk()
    files = run_once(disk)
    for directory in "ab":
        old = b'{"version":0,"brokerEpoch":%d,"bootId":"%s"}' % (EPOCH, disk.boot_id().encode())
        disk.write_atomically(f"{directory}/{INCARNATION}", old)
    if is_stopped:
        asyncio.run(files.close([], EPOCH))
    for _ in range(2):
        files = start(disk)
        disk.free_write_bytes = 0
        asyncio.run(files.incarnations.write_registering(EPOCH, OURS))
        disk.crash()
        disk.free_write_bytes = None
        assert start(disk).incarnations.previous == Incarnation(EPOCH)
    disk.free_write_bytes = 0
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(18)))
    disk.crash()
    disk.free_write_bytes = None
    assert start(disk).incarnations.previous_broker_epoch is None, "it may have served"


def test_a_clean_stop_outlasts_starts_that_come_to_nothing_and_losses_of_power() -> None:
    disk = MemoryDisk()
    assert asyncio.run(run_once(disk).close([], EPOCH))
    for _ in range(2):
        disk.lose_power(Random(1))
        assert start(disk).incarnations.previous_broker_epoch == EPOCH
    files = start(disk)
    asyncio.run(files.incarnations.write_registering(EPOCH, OURS))
    disk.lose_power(Random(1))
    files = start(disk)
    assert files.incarnations.previous == Incarnation(EPOCH)
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(18)))
    disk.lose_power(Random(1))
    assert start(disk).incarnations.previous_broker_epoch is None


def test_what_cannot_be_read_proves_nothing() -> None:
    for one in (
        Incarnation(EPOCH),
        Incarnation(EPOCH, incarnation_id=OURS),
        Incarnation(EPOCH, OURS, frozenset({UUID(int=1), UUID(int=2)})),
        Incarnation(None, OURS, frozenset(UUID(int=number) for number in range(400))),
    ):
        assert parse_notes(format_note(Note(one, "boot-1", 7))) == Note(one, "boot-1", 7)
    known = b'{"version":0,"brokerEpoch":1,"bootId":"b"'
    assert parse_notes(known + b"}") == Note(Incarnation(BrokerEpoch(1)), "b", 0), "as releases before wrote it"
    for data in (
        b"", b"\xff", b"[]", b'{"version":2,"brokerEpoch":1,"bootId":"b"}', b'{"version":0,"brokerEpoch":-1}',
        b'{"version":0,"brokerEpoch":-1,"bootId":"b"}', known + b',"registers":"x"}', known + b',"registers":7}',
        known + b',"directories":["x"]}', known + b',"directories":7}', known + b',"number":"7"}',
        known + b"} 00000000", bytes(2 * SLOT_BYTES),
    ):  # fmt: skip
        assert parse_notes(data) is None


@pytest.mark.parametrize("size", [0, 1, 30, SLOT_BYTES])
def test_of_two_notes_the_newer_one_that_is_whole_counts(size: int) -> None:
    file = bytearray(2 * SLOT_BYTES)
    for number in (4, 5):
        file[slot_of(number) : slot_of(number) + SLOT_BYTES] = format_note(Note(Incarnation(EPOCH), "b", number))
    file[:size] = format_note(Note(Incarnation(BrokerEpoch(18)), "b", 6))[:size]
    newest = parse_notes(bytes(file))
    assert newest is not None
    assert newest.number == (6 if size == SLOT_BYTES else 5)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_who_is_killed_before_it_asks_to_register_presents_what_the_last_one_left(written: int) -> None:
    disk = MemoryDisk()
    run_once(disk)
    kill_while_it_writes(start(disk), Incarnation(EPOCH, OURS, IDS), written)
    previous = start(disk).incarnations.previous
    assert previous.broker_epoch == EPOCH
    assert previous.registers == (OURS if written == 2 else None)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_who_is_killed_before_it_serves_is_the_same_incarnation_or_presents_the_new_epoch(written: int) -> None:
    disk = MemoryDisk()
    run_once(disk)
    kill_while_it_writes(start(disk), Incarnation(EPOCH, OURS, IDS), 2)
    kill_while_it_writes(start(disk), Incarnation(BrokerEpoch(EPOCH + 5), incarnation_id=OURS), written)
    previous = start(disk).incarnations.previous
    if written == 0:
        assert (previous.broker_epoch, previous.registers) == (EPOCH, OURS)
    else:
        assert (previous.broker_epoch, previous.registers) == (EPOCH + 5, None)


def test_a_loss_of_power_ends_a_registration_that_was_begun() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    asyncio.run(files.incarnations.write_registering(EPOCH, OURS))
    disk.lose_power(Random(1))
    assert start(disk).incarnations.previous == NOTHING


def test_who_has_nothing_to_show_is_the_same_incarnation_too() -> None:
    """Else it would wait for the end of its own session."""
    disk = MemoryDisk()
    asyncio.run(start(disk).incarnations.write_registering(None, OURS))
    previous = start(disk).incarnations.previous
    assert (previous.broker_epoch, previous.registers) == (None, OURS)


def test_a_registration_does_not_go_on_with_a_directory_less() -> None:
    """What it would be told counts on all of them."""
    disk = MemoryDisk()
    asyncio.run(run_once(disk).incarnations.write_registering(EPOCH, OURS))
    assert start(disk, "a").incarnations.previous == Incarnation(EPOCH)


def test_directories_that_speak_of_different_runs_show_nothing() -> None:
    other, later = UUID(int=12), BrokerEpoch(EPOCH + 5)
    begun = Incarnation(EPOCH, OURS)
    for found in (
        [],
        [begun, NOTHING],
        [begun, Incarnation(EPOCH, other)],
        [begun, Incarnation(BrokerEpoch(3), OURS)],
        [begun, Incarnation(later)],
        [begun, Incarnation(later, incarnation_id=other)],
        [begun, Incarnation(EPOCH), Incarnation(later, incarnation_id=OURS)],
        [Incarnation(None, OURS), Incarnation(later, incarnation_id=other)],
    ):
        assert incarnation_of_all(found) == NOTHING
        assert incarnation_of_all(found[::-1]) == NOTHING


def test_a_disk_that_would_keep_an_old_note_is_out_of_use() -> None:
    disk = MemoryDisk()
    files = run_once(disk)
    asyncio.run(files.incarnations.write_registering(EPOCH, OURS))
    disk.refusals |= {f"b/{INCARNATION}", f"b/{INCARNATION}.tmp"}
    asyncio.run(files.incarnations.write_incarnation(BrokerEpoch(EPOCH + 5), OURS))
    assert [each.failure is None for each in files.directories] == [True, False]
    disk.refusals.clear()
    disk.crash()
    assert start(disk).incarnations.previous == NOTHING


def test_the_real_machine_names_its_run() -> None:
    from tidelog.io.disk import RealDisk

    assert RealDisk().boot_id() == RealDisk().boot_id()
