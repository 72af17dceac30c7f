"""What drives a leader's machine: when it looks at the time again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, CorruptLogError, DiskError, InvariantBrokenError, KafkaError
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.log import Log, LogConfig
from tidelog.metadata import PartitionImage
from tidelog.records import BatchBuilder
from tidelog.replica import FollowerFetch, IsrProposal, LeaderReplica, ReplicationSettings
from tidelog.server.replication.leader_driver import LeaderDriver
from tidelog.server.replication.partition import Partition
from tidelog.wire.primitives import ZERO_UUID

PARTITION = TopicPartition("flights", PartitionIndex(0))
LEADER, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MS_MAX = 1_000
SILENCE_MS_MAX = 600
NOW_MS = 1_700_000_000_000


class Host:
    """Notes when it is to look at the time, and which ISRs were proposed."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.due_ms: list[int] = []
        self.proposed: list[list[BrokerId]] = []
        self.cut_off: list[bool] = []
        self.may_sync = asyncio.Event()

    def now_ms(self) -> int:
        return self.time_ms

    def due_at(self, who: LeaderDriver, due_ms: int) -> None:
        self.due_ms.append(due_ms)

    def propose(self, leading: LeaderDriver, proposal: IsrProposal) -> None:
        self.proposed.append(sorted(proposal.isr))

    def on_isr_changed(self, before: int, after: int) -> None:
        pass

    def on_cut_off(self, leading: LeaderDriver, is_cut_off: bool) -> None:
        self.cut_off.append(is_cut_off)

    def start(self, partition: Partition, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    async def flush(self, partition: Partition) -> None:
        await self.may_sync.wait()
        partition.log.flush()

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None:
        raise error

    def on_read_error(self, partition: Partition) -> None:
        pass

    def on_damage(self, partition: Partition) -> None:
        pass

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None:
        raise error


def state_of(isr: Sequence[BrokerId], partition_epoch: int) -> PartitionImage:
    return PartitionImage((LEADER, TWO, THREE), tuple(isr), LEADER, LeaderEpoch(0), PartitionEpoch(partition_epoch))


def led(
    host: Host,
    state: PartitionImage,
    *,
    min_insync: int = 1,
    config: LogConfig | None = None,
    disk: MemoryDisk | None = None,
    was_clean: bool = True,
) -> Partition:
    log = Log.open(
        MemoryDisk() if disk is None else disk,
        "logs/flights-0",
        PARTITION,
        LogConfig() if config is None else config,
        topic_id=None,
        clean_shutdown=was_clean,
        now_ms=NOW_MS,
    )
    log.assign_leader_epoch(LeaderEpoch(0))
    partition = Partition(PARTITION, TopicId(ZERO_UUID), log, host=host)
    settings = ReplicationSettings(min_insync, lag_ms_max=LAG_MS_MAX, silence_ms_max=SILENCE_MS_MAX)
    replica = LeaderReplica(
        PARTITION,
        LEADER,
        state,
        partition.bounds,
        log.lineage,
        settings=settings,
        now_ms=0,
        is_held=not partition.is_sync_awaited,
    )
    replica.on_brokers({TWO: BrokerEpoch(20), THREE: BrokerEpoch(30)})
    partition.lead(replica)
    return partition


def fetch(partition: Partition, follower: BrokerId, host: Host) -> None:
    broker_epoch = BrokerEpoch(10 * follower)
    asked = FollowerFetch(follower, Offset(0), LeaderEpoch(0), None, broker_epoch, host.time_ms)
    assert partition.on_fetched(asked, log_start_offset=0) is None


def append(partition: Partition) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"x")
    partition.append(memoryview(bytearray(builder.build())), acks_all=True, now_ms=NOW_MS)


def test_who_lags_is_found_out_though_a_producer_waits_for_longer() -> None:
    """While an ISR is asked for nobody can be proposed to leave; once that is granted, their time runs again."""

    async def story() -> None:
        host = Host()
        partition = led(host, state_of([LEADER, TWO], 1))
        for follower in (TWO, THREE):
            fetch(partition, follower, host)
        assert host.proposed == [[LEADER, TWO, THREE]]
        host.time_ms = LAG_MS_MAX + 1
        leading = partition.role.leading()
        leading.on_due(host.time_ms)  # of the start: nobody lags
        append(partition)
        waiting = partition.committed(1, 1_000_000)
        assert host.due_ms[-1] == host.time_ms + 1_000_000
        partition.role.on_state(state_of([LEADER, TWO, THREE], 2))
        assert host.due_ms[-1] == host.time_ms + LAG_MS_MAX + 1
        host.time_ms = host.due_ms[-1]
        leading.on_due(host.time_ms)
        assert host.proposed[-1] == [LEADER]
        partition.role.on_state(state_of([LEADER], 3))
        assert await waiting is Code.NONE

    asyncio.run(story())


def test_who_waits_on_a_leader_that_is_cut_off_is_told_before_its_time_is_up() -> None:
    """The deadline of the start may lie far ahead: what is appended moves it up."""

    async def story() -> None:
        host = Host()
        partition = led(host, state_of([LEADER, TWO, THREE], 1), min_insync=2)
        leading = partition.role.leading()
        for follower in (TWO, THREE):
            fetch(partition, follower, host)
        append(partition)
        waiting = partition.committed(1, 30_000)
        assert host.due_ms[-1] == SILENCE_MS_MAX + 1
        host.time_ms = host.due_ms[-1]
        leading.on_due(host.time_ms)
        assert await waiting is Code.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            append(partition)
        assert refused.value.code is Code.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 1, "nothing was written"
        assert host.cut_off == [True]
        fetch(partition, TWO, host)
        append(partition)
        assert host.cut_off == [True, False]
        host.time_ms += SILENCE_MS_MAX + 1
        leading.on_due(host.time_ms)
        partition.stop()
        assert host.cut_off == [True, False, True, False]

    asyncio.run(story())


def test_a_leader_that_has_to_wait_for_more_of_them_looks_whether_it_is_cut_off() -> None:
    async def story() -> None:
        host = Host()
        partition = led(host, state_of([LEADER, TWO, THREE], 1))
        leading = partition.role.leading()
        leading.on_settings(ReplicationSettings(2, lag_ms_max=LAG_MS_MAX, silence_ms_max=SILENCE_MS_MAX))
        assert host.due_ms[-1] == SILENCE_MS_MAX + 1

    asyncio.run(story())


def test_a_deletion_that_nobody_waits_for_any_more_is_forgotten() -> None:
    """A follower that does not move may be asked to for long, and by many that gave up."""

    async def story() -> None:
        partition = led(Host(), state_of([LEADER, TWO], 1))
        leading = partition.role.leading()
        for offset in range(1, 4):
            leading.deleted(offset).cancel()
        last = leading.deleted(4)
        assert [future for _, future in leading._deletions] == [last]

    asyncio.run(story())


def test_what_the_leader_has_to_sync_is_not_committed_before_that() -> None:
    """`flush.messages`: else readers are given what a loss of power takes from the only replica in sync."""

    async def story() -> None:
        host = Host()
        partition = led(host, state_of([LEADER], 1), config=LogConfig(flush_messages=1))
        append(partition)
        waiting = partition.committed(1, 30_000)
        await asyncio.sleep(0)
        assert partition.high_watermark == 0
        assert not waiting.done()
        append(partition)
        host.may_sync.set()
        assert await waiting is Code.NONE
        assert partition.high_watermark == partition.log.recovery_point == 2

    asyncio.run(story())


def test_what_was_not_synced_when_it_began_to_lead_is_not_committed_before_that() -> None:
    """A process that was killed left records in the page cache; the next one leads with them."""

    async def story() -> None:
        host, disk = Host(), MemoryDisk()
        append(led(host, state_of([LEADER], 1), disk=disk))
        config = LogConfig(flush_messages=1)
        partition = led(host, state_of([LEADER], 1), config=config, disk=disk, was_clean=False)
        await asyncio.sleep(0)
        assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)
        waiting = partition.committed(1, 30_000)
        host.may_sync.set()
        assert await waiting is Code.NONE
        assert partition.log.recovery_point == 1

    asyncio.run(story())


def test_records_that_need_no_sync_any_more_are_committed_at_once() -> None:
    async def story() -> None:
        host = Host()
        partition = led(host, state_of([LEADER], 1), config=LogConfig(flush_messages=1))
        append(partition)
        partition.configure(LogConfig(), ReplicationSettings(lag_ms_max=LAG_MS_MAX, silence_ms_max=SILENCE_MS_MAX))
        assert partition.high_watermark == 1

    asyncio.run(story())
