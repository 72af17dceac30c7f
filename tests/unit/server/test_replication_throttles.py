"""Throttles of replication: what goes in a second, who is held back, and what the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from support.fixtures.replicated_brokers import TOPIC, ReplicatedBroker, ReplicatedCluster, run, until
from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.configs import BrokerSettings, validate
from tidelog.metadata.configs.key import INT64_MAX
from tidelog.server.replication.deadlines import Due
from tidelog.server.replication.replication_throttles import Limit, Throttle, moves_limit, replication_limits
from tidelog.server.settings.in_force import SettingsInForce

EVERY = {TOPIC: None}
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
VALUE_SIZE_BYTES = 1000
BROKER = BrokerId(1)


class Waiting:
    """Tries to send pieces of a size whenever it is told that there is room."""

    def __init__(self, clock: Clock, throttle: Throttle, piece_bytes: int) -> None:
        self._clock = clock
        self._throttle = throttle
        self._piece_bytes = piece_bytes
        self.sent: list[tuple[int, int]] = []

    def on_room(self) -> None:
        while self._throttle.room_bytes > 0:
            self._throttle.record(self._piece_bytes)
            self.sent.append((self._clock.now_ms(), self._piece_bytes))
        self._throttle.wait(self)


class Clock:
    """Goes from one deadline to the next."""

    def __init__(self) -> None:
        self.ms = 1_000
        self._due: list[tuple[int, Due]] = []

    def now_ms(self) -> int:
        return self.ms

    def due_at(self, who: Due, due_ms: int) -> None:
        self._due.append((due_ms, who))

    def run_until(self, end_ms: int) -> None:
        while self._due and min(due_ms for due_ms, _ in self._due) <= end_ms:
            first = min(self._due, key=lambda entry: entry[0])
            self._due.remove(first)
            self.ms = max(self.ms, first[0])
            first[1].on_due(self.ms)
        self.ms = end_ms


@pytest.mark.parametrize(
    ("rate", "piece_bytes"),
    [
        *((3, 1), (3, 900), (1_000, 1), (1_000, 900), (1_000, 1 << 20)),
        *((1_000_000, 900), (1_000_000, 10 << 20), (200_000_000, 1 << 20), (200_000_000, 10 << 20)),
    ],
)
def test_the_rate_holds_over_time_whatever_the_size_of_a_piece(rate: int, piece_bytes: int) -> None:
    clock = Clock()
    throttle = Throttle(clock.now_ms, clock.due_at)
    throttle.configure(Limit(rate, EVERY))
    waiting = Waiting(clock, throttle, piece_bytes)
    throttle.wait(waiting)
    seconds = max(20, 20 * piece_bytes // rate)
    clock.run_until(clock.ms + seconds * 1000)
    sent = sum(size_bytes for _, size_bytes in waiting.sent)
    assert abs(sent - rate * seconds) <= 0.1 * rate * seconds


def test_what_did_not_go_for_a_while_does_not_go_in_one_burst() -> None:
    clock = Clock()
    throttle = Throttle(clock.now_ms, clock.due_at)
    throttle.configure(Limit(1_000_000, EVERY))
    clock.ms += 3_600_000
    assert throttle.room_bytes <= 250_000


def test_nothing_goes_at_a_rate_of_nothing_until_it_is_changed() -> None:
    clock = Clock()
    throttle = Throttle(clock.now_ms, clock.due_at)
    throttle.configure(Limit(0, EVERY))
    waiting = Waiting(clock, throttle, 1)
    throttle.wait(waiting)
    clock.run_until(clock.ms + 10_000_000)
    assert not waiting.sent
    throttle.configure(Limit(1_000_000, EVERY))
    clock.run_until(clock.ms + 100)
    assert waiting.sent


@pytest.mark.parametrize("rate", [1, 100])
def test_a_rate_that_is_raised_counts_at_once(rate: int) -> None:
    clock = Clock()
    throttle = Throttle(clock.now_ms, clock.due_at)
    throttle.configure(Limit(rate, EVERY))
    waiting = Waiting(clock, throttle, 10_000_000)
    throttle.wait(waiting)
    clock.run_until(clock.ms + 3000)
    assert len(waiting.sent) == 1
    throttle.configure(Limit(100_000_000, EVERY))
    clock.run_until(clock.ms + 1000)
    assert len(waiting.sent) > 1


def test_who_gave_up_is_not_told() -> None:
    clock = Clock()
    throttle = Throttle(clock.now_ms, clock.due_at)
    throttle.configure(Limit(1000, EVERY))
    waiting = Waiting(clock, throttle, 1)
    throttle.wait(waiting)
    throttle.forget(waiting)
    clock.run_until(clock.ms + 10_000)
    assert not waiting.sent


def settings(**rates: str) -> BrokerSettings:
    return BrokerSettings.of({name.replace("_", "."): rate for name, rate in rates.items()})


def topics(key: str, values: Mapping[str, str]) -> dict[ResourceKey, Mapping[str, str]]:
    return {ResourceKey(ResourceType.TOPIC, name): {key: value} for name, value in values.items()}


def test_a_list_names_replicas_by_partition_and_broker_and_a_star_all() -> None:
    configs = topics("leader.replication.throttled.replicas", {"a": "0:1,0:2,3:1, 4:2", "b": "*", "c": "", "d": "1:7"})
    in_force = SettingsInForce(settings(leader_replication_throttled_rate="5"), configs)
    leader, follower = replication_limits(in_force, BROKER)
    assert leader == Limit(5, {"a": frozenset({0, 3}), "b": None, "d": frozenset()})
    assert follower == Limit(None, {})
    assert moves_limit(in_force.broker) == Limit(None, {})
    throttle = Throttle(lambda: 0, lambda who, due_ms: None)
    throttle.configure(leader)
    covered = [(t, p) for t in "abcd" for p in range(5) if throttle.covers(TopicPartition(t, PartitionIndex(p)))]
    assert covered == [("a", 0), ("a", 3), *(("b", p) for p in range(5))]


def test_no_limit_is_the_default_and_covers_nothing() -> None:
    configs = topics("follower.replication.throttled.replicas", {"a": "*"})
    _, follower = replication_limits(SettingsInForce(settings(), configs), BROKER)
    assert follower.bytes_per_second is None
    throttle = Throttle(lambda: 0, lambda who, due_ms: None)
    throttle.configure(follower)
    assert not throttle.covers(TopicPartition("a", PartitionIndex(0)))
    assert throttle.room_bytes == INT64_MAX


@pytest.mark.parametrize("text", ["1", "1:", ":1", "a:b", "1:2:3", "-1:2", "1:2,,", "**", "1-2"])
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_list_of_anything_else_is_refused(side: str, text: str) -> None:
    with pytest.raises(ConfigError, match="PARTITION:BROKER"):
        validate("topic", f"{side}.replication.throttled.replicas", text)


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,1:2", " 0:1 , 1:2 "])
def test_lists_that_are_taken(text: str) -> None:
    validate("topic", "leader.replication.throttled.replicas", text)


def throttle_of(broker: ReplicatedBroker, side: str) -> Throttle:
    replication = broker.broker.replication
    return replication.leader_throttle if side == "leader" else replication.follower_throttle


async def fill(cluster: ReplicatedCluster, count: int) -> None:
    for _ in range(count):
        await cluster.produce("x" * VALUE_SIZE_BYTES, acks=1)


def ends(broker: ReplicatedBroker) -> int:
    return broker.partition().log.log_end_offset


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_has_to_catch_up_does_so_at_the_rate(side: str) -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        late = cluster.followers[0]
        late.kill()
        cluster.controller.fence(late.broker_id)
        await cluster.caught_up()
        await fill(cluster, 60)
        size_bytes = cluster.leader.partition().log.segments.size_bytes
        limit = Limit(size_bytes // 10, EVERY)
        if side == "leader":
            throttle_of(cluster.leader, side).configure(limit)
            await late.start()
        else:
            starting = asyncio.ensure_future(late.start())
            await until(lambda: late._is_up)
            throttle_of(late, side).configure(limit)
            await starting
        started_us = cluster.world.loop.now_us
        await until(lambda: ends(late) >= 6)
        began_us = cluster.world.loop.now_us
        assert late.broker_id not in cluster.state().isr
        await until(lambda: ends(late) == 60)
        took_seconds = (cluster.world.loop.now_us - started_us) / 1e6
        assert began_us - started_us < took_seconds * 0.5e6
        assert 8.5 <= took_seconds <= 11.5, "a tenth of it each second"
        await cluster.in_sync(1, 2, 3)

    run(story)


def test_who_is_in_sync_is_not_held_back() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        for broker in cluster.brokers.values():
            throttle_of(broker, "leader").configure(Limit(1, EVERY))
            throttle_of(broker, "follower").configure(Limit(1, EVERY))
        started_us = cluster.world.loop.now_us
        for _ in range(20):
            await cluster.produce("x" * VALUE_SIZE_BYTES)
        assert cluster.world.loop.now_us - started_us < 10_000_000
        assert set(cluster.state().isr) == {1, 2, 3}

    run(story)


def test_the_other_partitions_of_a_session_go_on() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.create(topic="other")
        leader = cluster.leader
        late = cluster.followers[0]
        late.kill()
        cluster.controller.fence(late.broker_id)
        await cluster.caught_up()
        await fill(cluster, 10)
        throttle_of(leader, "leader").configure(Limit(1, EVERY))
        await late.start()
        await cluster.produce("y", topic="other", broker=cluster.state(topic="other").leader)
        await until(lambda: late.partition(0, "other").log.log_end_offset == 1)
        assert ends(late) <= 1
        throttle_of(leader, "leader").configure(Limit())
        await cluster.in_sync(1, 2, 3)
        await cluster.alike()

    run(story)
