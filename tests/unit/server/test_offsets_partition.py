"""The shell around one coordinator: when it answers, what it does while it loads, and what a bad disk or log costs."""

from __future__ import annotations

import asyncio
from contextlib import closing
from random import Random
from typing import Any

import pytest

from support.fixtures.led_offsets import DIRECTORY, GatedExecutor, Led, WaitingReader, state_of
from support.fixtures.memory_disk import MemoryDisk
from support.load.group_member import commit_request
from tidelog.base.errors import Code, DiskError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.coordinator.groups import GroupCoordinator
from tidelog.coordinator.groups.records import encode_offset, offset_key
from tidelog.log import LogConfig
from tidelog.records import BatchBuilder, ControlType, end_transaction_batch, read_records, split_batches
from tidelog.records.control import control_key
from tidelog.server.coordinators.coordinator_partition import ROOM_CHECK_SECONDS, Command
from tidelog.server.coordinators.coordinator_partitions import partition_of
from tidelog.server.coordinators.log_replay import READ_SIZE_BYTES_MAX
from tidelog.sim.world.loop import SimulatedLoop
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol


def join(member_id: str = "") -> Command[GroupCoordinator]:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, member_id=member_id, protocol_type="consumer", protocols=protocols
    )
    return lambda coordinator, request_id, now_ms, wall_ms: coordinator.classic_groups.on_join(
        request_id, request, api_version=3, client_id="c", client_host="/h", now_ms=now_ms, wall_ms=wall_ms
    )


def code_of(answer: Any) -> Code:
    if isinstance(answer, KafkaError):
        return answer.code
    return Code(answer.topics[0].partitions[0].error_code)


async def settle(led: Led) -> None:
    """Let what is under way come to its end."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert led.one.refusal is None or led.one.refusal.code != Code.COORDINATOR_LOAD_IN_PROGRESS


def test_a_commit_is_answered_within_the_call_and_wakes_who_waits_for_records() -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()
        reader = WaitingReader(led.partition)
        assert code_of(led.commit(5)) is Code.NONE
        assert reader.seen == [1]
        assert led.committed() == {"t": 5}

    asyncio.run(run())


def test_what_was_committed_is_loaded_by_the_next_leader() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        for offset in range(50):
            assert code_of(led.commit(offset)) is Code.NONE
        again = Led(disk, leader_epoch=1)
        assert again.committed() is Code.COORDINATOR_LOAD_IN_PROGRESS
        again.start()
        await settle(again)
        assert again.committed() == {"t": 49}
        assert code_of(again.commit(50)) is Code.NONE

    asyncio.run(run())


def test_a_new_leader_serves_nobody_before_it_knows_that_all_it_loaded_is_committed() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        assert code_of(led.commit(3)) is Code.NONE
        again = Led(disk, leader_epoch=1, isr=(1, 2))
        again.start()
        for _ in range(100):
            await asyncio.sleep(0)
        assert again.committed() is Code.COORDINATOR_LOAD_IN_PROGRESS
        again.partition.role.on_state(state_of((1,), leader_epoch=1, partition_epoch=1))  # broker 2 is out of sync
        await settle(again)
        assert again.committed() == {"t": 3}

    asyncio.run(run())


def test_topics_that_were_deleted_meanwhile_or_before_take_their_offsets_along() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        for topic in ("t", "u", "v"):
            assert code_of(led.commit(3, topic)) is Code.NONE
        executor = GatedExecutor()
        again = Led(disk, executor=executor, leader_epoch=1)
        again.start(known=frozenset(("t", "u")))
        await asyncio.sleep(0)
        again.delete_topics({"u"})
        assert code_of(again.commit(4)) is Code.COORDINATOR_LOAD_IN_PROGRESS
        executor.gate.set()
        await settle(again)
        assert again.committed() == {"t": 3}
        third = Led(disk, leader_epoch=2)
        third.start(known=frozenset(("t", "u", "v")))
        await settle(third)
        assert third.committed() == {"t": 3}  # it was written down, too

    asyncio.run(run())


def test_a_leadership_that_ends_while_it_loads_serves_nobody() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        led.commit(3)
        executor = GatedExecutor()
        again = Led(disk, executor=executor, leader_epoch=1)
        again.start()
        await asyncio.sleep(0)
        again.partition.stop()
        again.one.stop()
        executor.gate.set()
        await settle(again)
        assert again.committed() is Code.NOT_COORDINATOR

    asyncio.run(run())


@pytest.mark.parametrize("damage", ["checksum", "value"])
def test_a_damaged_log_is_refused_with_the_offset(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        for offset in range(3):
            led.commit(offset)
        if damage == "value":
            data = led.partition.log.read(Offset(2), size_bytes_max=1000, end_offset=Offset(3)).read_all()
            ((position, header),) = split_batches(data)
            (record,) = read_records(data, position, header)
            builder = BatchBuilder()
            assert record.value is not None
            builder.append(0, record.key, record.value[:-1])
            led.partition.append_as_coordinator(
                memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=0
            )
        else:
            led.commit(3)
        again = Led(disk, leader_epoch=1)
        if damage == "checksum":
            (path,) = [path for path in disk.files if path.endswith(".log")]
            disk.files[path].data[-5] ^= 1  # of the time of a commit: nothing but the checksum tells
        again.start()
        await settle(again)
        assert again.committed() is Code.COORDINATOR_NOT_AVAILABLE
        assert code_of(again.commit(9)) is Code.COORDINATOR_NOT_AVAILABLE
        again.delete_topics({"t"})
        again.one.stop()
        assert again.troubles == []

    asyncio.run(run())
    assert "__consumer_offsets-7 cannot be read" in caplog.text
    assert "offset 3" in caplog.text
    assert DIRECTORY in caplog.text


def test_a_disk_that_fails_ends_the_leadership_and_everybody_is_told() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        first = led.one.submit(join())
        assert not isinstance(first, asyncio.Future)
        waiting = led.one.submit(join())  # for the first to join again
        assert isinstance(waiting, asyncio.Future)
        disk.free_write_bytes = 10
        assert code_of(led.one.submit(commit_beside)) is Code.NOT_COORDINATOR
        assert [type(error) for error in led.troubles] == [DiskError]
        answer = await waiting
        assert isinstance(answer, KafkaError)
        assert answer.code is Code.NOT_COORDINATOR
        assert led.committed() is Code.NOT_COORDINATOR

    def commit_beside(coordinator: Any, request_id: Any, now_ms: int, wall_ms: int) -> None:
        request = commit_request("another", {("t", 0): 4})
        coordinator.on_offset_commit(request_id, request, api_version=9, now_ms=now_ms, wall_ms=wall_ms)

    asyncio.run(run())


def test_a_full_disk_has_the_groups_loaded_anew_once_there_is_room() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        led.commit(4)
        disk.free_write_bytes, led.is_full = 10, True
        assert code_of(led.commit(5)) is Code.NOT_COORDINATOR
        assert (led.reloads, led.partition.replica is not None) == (1, True)

        disk.free_write_bytes = None
        again = Led(disk, leader_epoch=1)
        again.is_full = True
        again.start()
        await asyncio.sleep(0)
        assert again.committed() is Code.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(10 * ROOM_CHECK_SECONDS)
        assert again.committed() is Code.COORDINATOR_LOAD_IN_PROGRESS
        again.is_full = False
        await asyncio.sleep(ROOM_CHECK_SECONDS)
        await settle(again)
        assert again.committed() == {"t": 4}
        assert again.commit(6)
        assert again.committed() == {"t": 6}

    with closing(SimulatedLoop()) as loop:
        loop.run(run())


@pytest.mark.parametrize("limit", [{"message_size_bytes_max": 70}, {"segment_size_bytes": 70}])
def test_a_commit_that_the_log_would_not_take_is_refused_and_what_is_over_is_forgotten(limit: dict[str, Any]) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        assert code_of(led.commit(5)) is Code.NONE
        led.partition.log.configure(LogConfig(**limit))
        assert code_of(led.commit(6)) is Code.INVALID_COMMIT_OFFSET_SIZE
        assert led.committed() == {"t": 5}
        led.delete_topics({"t"})
        assert (led.reloads, led.troubles, led.committed()) == (0, [], {})
        again = Led(disk, leader_epoch=1)
        again.start()
        await settle(again)
        assert again.committed() == {}

    asyncio.run(run())


def test_a_log_that_refuses_a_batch_has_the_groups_loaded_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()
        assert code_of(led.commit(5)) is Code.NONE
        led.partition.log.configure(LogConfig(message_size_bytes_max=70, compression_codec=1))
        led.delete_topics({"t"})
        assert (led.reloads, led.troubles) == (1, [])
        assert led.committed() is Code.NOT_COORDINATOR

    asyncio.run(run())
    assert "max.message.bytes=70" in caplog.text


def test_a_bug_stops_the_partition() -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        with pytest.raises(ZeroDivisionError):
            led.one.submit(broken)
        assert ["ZeroDivisionError" in str(error) for error in led.troubles] == [True]
        assert led.committed() is Code.NOT_COORDINATOR

    asyncio.run(run())


def test_who_hangs_up_is_not_waited_for() -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()
        led.one.submit(join())
        waiting = led.one.submit(join())
        assert isinstance(waiting, asyncio.Future)
        waiting.cancel()
        await asyncio.sleep(0)
        led.one.stop()
        assert waiting.cancelled()

    asyncio.run(run())


def test_what_is_to_be_synced_first_is_answered_afterwards() -> None:
    async def run() -> None:
        led = Led(MemoryDisk(), flush_messages=1)
        led.start()
        answer = led.commit(5)
        assert isinstance(answer, asyncio.Future)
        second = led.commit(6)
        assert isinstance(second, asyncio.Future)
        assert led.partition.log.recovery_point == 0
        assert [code_of(await answer), code_of(await second)] == [Code.NONE, Code.NONE]
        assert led.partition.log.recovery_point == 2
        await settle(led)
        assert led.committed() == {"t": 6}

    asyncio.run(run())


def test_a_record_that_somebody_else_wrote_does_no_harm() -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()
        led.commit(5)
        builder = BatchBuilder()
        builder.append(0, b"\0\x63", b"of an unknown kind")
        led.partition.append(memoryview(bytearray(builder.build())), acks_all=True, now_ms=0)
        assert code_of(led.commit(6)) is Code.NONE
        assert led.committed() == {"t": 6}
        assert led.partition.log.log_end_offset == 3

    asyncio.run(run())


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("hello", 99_162_322 % 50),
        ("polygenelubricants", 0),  # its hash is the one that has no positive
        ("\N{GRINNING FACE}", 1_772_899 % 50),  # two units of UTF-16
    ],
)
def test_a_group_belongs_where_java_says(group_id: str, partition: int) -> None:
    assert partition_of(group_id, 50) == partition


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_power_gives_no_topic_the_offsets_of_its_predecessor(seed: int) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        assert code_of(led.commit(5)) is Code.NONE
        led.partition.log.flush()
        led.delete_topics({"t"})
        assert led.one.syncing_events is not None
        await led.one.syncing_events
        disk.lose_power(Random(seed))
        again = Led(disk, leader_epoch=1, clean=False)
        again.start(known=frozenset(("t",)))  # it was made again
        await settle(again)
        assert again.committed() == {}

    asyncio.run(run())


def test_offsets_of_transactions_count_once_they_are_committed() -> None:
    """As an Apache Kafka may have left them: in one of its directories, a stock transactional consumer-producer's."""

    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        assert code_of(led.commit(1, "t")) is Code.NONE

        def append(batch: bytes) -> None:
            led.partition.append_as_coordinator(memoryview(bytearray(batch)), leader_epoch=LeaderEpoch(0), now_ms=0)

        def commit(offset: int, topic: str, producer_id: int) -> None:
            builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=True)
            builder.append(0, offset_key("g", topic, 0), encode_offset(offset, 0, "", 0))
            append(builder.build())

        def end(producer_id: int, *, committed: bool) -> None:
            append(
                end_transaction_batch(
                    committed=committed, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
                )
            )

        commit(2, "t", producer_id=7)  # aborted
        commit(3, "u", producer_id=8)  # committed
        other = BatchBuilder(producer_id=8, producer_epoch=0, transactional=True, control=True)
        other.append(0, control_key(ControlType.SNAPSHOT_HEADER), b"\0\0")
        append(other.build())  # no end of a transaction
        commit(4, "v", producer_id=8)  # committed, but something newer was said meanwhile
        end(7, committed=False)
        assert code_of(led.commit(5, "v")) is Code.NONE
        end(8, committed=True)
        commit(6, "u", producer_id=9)  # still open
        again = Led(disk, leader_epoch=1)
        again.start(known=frozenset(("t", "u", "v")))
        await settle(again)
        assert again.committed() == {"t": 1, "u": 3, "v": 5}

    asyncio.run(run())


def test_a_log_whose_start_moves_while_it_is_loaded_is_no_damage() -> None:
    """With `cleanup.policy=compact,delete` the oldest segments go whenever it is time."""

    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        while led.partition.log.segments.size_bytes <= READ_SIZE_BYTES_MAX:  # so that it takes two steps
            assert code_of(led.commit(3, metadata="m" * 4_000)) is Code.NONE
        assert code_of(led.commit(4)) is Code.NONE
        executor = GatedExecutor()
        again = Led(disk, executor=executor, leader_epoch=1)
        again.start()
        await asyncio.sleep(0)
        again.partition.log.advance_log_start_offset(Offset(again.partition.log.log_end_offset - 1))
        executor.gate.set()
        await settle(again)
        assert again.committed() == {"t": 4}

    asyncio.run(run())


def test_what_is_due_sooner_is_not_late() -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()  # the retention of offsets is looked at in ten minutes
        looked_at_ms = led.one._timer_ms
        led.one.submit(join())
        assert led.one._timer_ms == led.clock.time_ms + 10_000 < looked_at_ms

    asyncio.run(run())
