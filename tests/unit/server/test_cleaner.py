"""The chore of compaction: which log comes first, what it does not touch, and what it leaves when it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from support.fixtures.cleaning import key_values
from support.fixtures.logs import NOW_MS
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, DiskError, refusal
from tidelog.base.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.io.executor import InlineExecutor
from tidelog.log import Log, LogConfig
from tidelog.metadata import PartitionImage
from tidelog.metadata.configs import BrokerSettings
from tidelog.records import BatchBuilder
from tidelog.replica import LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.cleaner import Cleaner, CleanerSettings
from tidelog.server.replication.damage_notes import DamageNotes
from tidelog.server.replication.partition import Partition
from tidelog.wire.primitives import ZERO_UUID

BROKER = BrokerId(1)
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_size_bytes=300, message_timestamp_after_ms_max=None)
SETTINGS = CleanerSettings.of(BrokerSettings.of({}))
T = TypeVar("T")


class FakeClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return NOW_MS + self.ms


class FakeBroker:
    """What the chore asks of a broker."""

    broker_id = BROKER

    def __init__(self) -> None:
        self.partitions: list[Partition] = []
        self.failed: list[DiskError] = []
        self.image = SimpleNamespace(configs={}, partition=lambda topic, index: True)
        self.replication = SimpleNamespace(damage_notes=DamageNotes())

    def partition(self, topic: str, index: int) -> Partition:
        for partition in self.partitions:
            if partition.topic_partition == (topic, index):
                return partition
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, topic)

    @property
    def failures(self) -> FakeBroker:
        return self

    def on_disk_error(self, partition: Partition, error: DiskError) -> None:
        self.failed.append(error)


class World:
    """A broker of logs in memory, and the chore."""

    def __init__(self, executor: Any = None) -> None:
        self.disk = MemoryDisk()
        self.broker = FakeBroker()
        self.clock = FakeClock()
        self.cleaner = Cleaner(
            cast(Broker, self.broker),
            BrokerSettings.of({}),
            disk=self.disk,
            clock=self.clock,
            executor=InlineExecutor() if executor is None else executor,
        )

    def partition(self, topic: str, keys: str, config: LogConfig = COMPACT, *, is_synced: bool = True) -> Partition:
        name = TopicPartition(topic, PartitionIndex(0))
        log = Log.open(self.disk, f"data/{topic}-0", name, config, topic_id=None, clean_shutdown=True, now_ms=NOW_MS)
        log.assign_leader_epoch(LeaderEpoch(0))
        for key in keys:
            put(log, key)
        log.roll(NOW_MS)
        if is_synced:
            log.flush()
        partition = Partition(name, TopicId(ZERO_UUID), log)
        state = PartitionImage((BROKER,), (BROKER,), BROKER, LeaderEpoch(0), PartitionEpoch(0))
        bounds = LogBounds(log.log_start_offset, log.log_end_offset, log.log_end_offset)
        partition.lead(
            LeaderReplica(name, BROKER, state, bounds, log.lineage, settings=ReplicationSettings(), now_ms=0)
        )
        self.broker.partitions.append(partition)
        return partition

    def turn(self, settings: CleanerSettings = SETTINGS) -> bool:
        return asyncio.run(self.cleaner.clean_dirtiest(settings))

    def leftovers(self, topic: str) -> list[str]:
        return [name for name in self.disk.list(f"data/{topic}-0") if name.endswith((".cleaned", ".swap", ".deleted"))]


def put(log: Log, key: str) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, key.encode(), b"%d" % log.log_end_offset)
    log.append_as_leader(bytearray(builder.build()), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)


def test_the_dirtiest_log_comes_first_until_none_is_dirty_enough() -> None:
    world = World()
    first = world.partition("first", "abababab")
    assert world.turn()
    assert first.log.compaction.mark.end_offset == 8
    for key in "ababababababababab":
        put(first.log, key)
    first.log.roll(NOW_MS)
    first.log.flush()
    assert first.replica is not None
    first.replica.on_appended(first.log.log_end_offset, 0)
    first.replica.take_ready()
    second = world.partition("second", "abababab")
    deleted = world.partition("deleted", "abababab", LogConfig(segment_size_bytes=300))
    assert world.turn()
    assert (second.log.compaction.mark.end_offset, first.log.compaction.mark.end_offset) == (8, 8)
    assert world.turn()
    assert first.log.compaction.mark.end_offset == 26
    assert not world.turn()
    assert deleted.log.compaction.mark.end_offset == 0
    assert world.disk.read_bytes("data/cleaner-offset-checkpoint") == b"0\n2\nfirst 0 26\nsecond 0 8\n"


def test_it_ends_at_the_high_watermark_and_at_what_is_synced() -> None:
    world = World()
    partition = world.partition("t", "abababab")
    for key in "abababab":
        put(partition.log, key)
    partition.log.roll(NOW_MS)
    partition.log.flush()
    assert world.turn()
    assert partition.high_watermark == 8
    assert partition.log.compaction.mark.end_offset == 8


class HeldSync(InlineExecutor):
    """Lets no log be synced before it is told to."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.others = 0
        self.refuses = False

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        if getattr(work, "func", work).__name__ != "maybe_flush":
            self.others += 1
            return super().run(work)

        async def later() -> T:
            await self.let_go.wait()
            if self.refuses:
                raise DiskError("data/t-0", "no")
            return work()

        return later()


@pytest.mark.parametrize("is_refused", [False, True])
def test_keys_are_read_while_the_log_is_synced_and_nothing_is_replaced_before(is_refused: bool) -> None:
    executor = HeldSync()
    world = World(executor)
    partition = world.partition("t", "abababab", is_synced=False)
    expected = key_values(partition.log)

    async def story() -> None:
        turn = asyncio.create_task(world.cleaner.clean_dirtiest(SETTINGS))
        before = -1
        while executor.others > before:  # until nothing moves but the sync
            before = executor.others
            for _ in range(50):
                await asyncio.sleep(0)
        assert before > 1
        assert partition.log.compaction.mark.end_offset == 0
        assert [name for name in world.leftovers("t") if name.endswith((".swap", ".deleted"))] == []
        executor.refuses = is_refused
        executor.let_go.set()
        assert await turn

    asyncio.run(story())
    assert partition.log.compaction.mark.end_offset == (0 if is_refused else 8)
    assert bool(world.broker.failed) == is_refused
    assert world.leftovers("t") == []
    if not is_refused:
        assert key_values(partition.log) == expected
        assert partition.log.recovery_point == 8


@pytest.mark.parametrize("why", ["deleted", "not led"])
def test_a_log_that_is_not_ours_any_more_is_left_as_it_is(why: str) -> None:
    world = World()

    class Interrupting(InlineExecutor):
        count = 0

        def run(self, work: Callable[[], T]) -> Awaitable[T]:
            self.count += 1
            if self.count == 5:
                if why == "deleted":
                    world.broker.partitions.clear()
                else:
                    partition.stop()
            return super().run(work)

    executor = Interrupting()
    world = World(executor)
    partition = world.partition("t", "abababab")
    expected = key_values(partition.log)
    assert world.turn()
    assert executor.count > 5
    assert world.leftovers("t") == []
    assert key_values(partition.log) == expected
    assert not world.disk.exists("data/cleaner-offset-checkpoint")


def test_a_damaged_log_is_named_once_and_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    damaged, whole = world.partition("damaged", "abababababab"), world.partition("whole", "abababab")
    first = damaged.log.segments.base_offsets[0]
    world.disk.files[f"data/damaged-0/{first:020d}.log"].data[60] ^= 1
    while world.turn():
        pass
    assert whole.log.compaction.mark.end_offset == 8
    assert damaged.log.compaction.mark.end_offset == 0
    named = [record.message for record in caplog.records if "damaged-0 is not compacted any more" in record.message]
    assert len(named) == 1
    assert "data/damaged-0/00000000000000000000.log: damaged at position 0" in named[0]
    assert world.leftovers("damaged") == []


def test_a_disk_that_refuses_is_asked_again_in_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    partition = world.partition("t", "abababab")
    expected = key_values(partition.log)
    world.disk.free_write_bytes = 10
    assert world.turn()
    assert not world.turn()
    assert world.leftovers("t") == []
    world.clock.ms = 60_000
    assert world.turn()
    world.disk.free_write_bytes = None
    world.clock.ms = 120_000
    assert world.turn()
    assert partition.log.compaction.mark.end_offset == 8
    assert key_values(partition.log) == expected
    assert len([record for record in caplog.records if "t-0 was not compacted" in record.message]) == 1


def test_a_disk_that_fails_in_the_swap_takes_the_partition_offline() -> None:
    world = World()
    world.partition("t", "abababab")
    world.disk.refusals.add(".timeindex")
    world.turn()
    assert len(world.broker.failed) == 1


def test_the_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.partition("t", "abababab" * 10)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        world.clock.ms += int(seconds * 1000)

    monkeypatch.setattr("tidelog.server.broker.cleaner.asyncio.sleep", sleep)
    size_bytes = world.broker.partitions[0].log.segments.size_bytes
    assert world.turn(SETTINGS._replace(bytes_per_second_max=1000.0))
    assert sum(slept) == pytest.approx(3 * size_bytes / 1000, rel=0.05)  # read twice, and as much again to write


def test_the_settings_are_kafkas() -> None:
    assert SETTINGS[:3] == (True, 15_000, 128 << 20)
    changed = BrokerSettings(
        {"log.cleaner.enable": "false", "log.cleaner.backoff.ms": "7"}, {"log.cleaner.backoff.ms": "8"}, {}
    )
    assert CleanerSettings.of(changed)[:2] == (False, 8)


def test_a_topic_of_the_same_name_begins_anew() -> None:
    world = World()
    world.partition("t", "abababab")
    assert world.turn()
    world.broker.partitions.clear()
    world.disk.remove_tree("data/t-0")
    again = world.partition("t", "cdcdcd")
    assert world.turn()
    assert again.log.compaction.mark.end_offset == Offset(6)
