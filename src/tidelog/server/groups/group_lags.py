"""How far groups lag behind the partitions that they read, by group and topic, as their coordinators here know it.

    committed offset ── records ──► end of what is committed      what of it the group has not read
    time of the record at the committed offset ── seconds ──► now      how old what it reads next is

A partition of which this broker has a replica is looked at here: its high watermark, which a follower hears of a fetch
after its leader, and the header of the batch that is read next. Of any other the leader is asked where it ends; no
request tells when the record was made that is read next, so that is concluded from when the end was where.

The offsets of a node may be a million. So they are measured when somebody asks, in turns that others do not notice, and
no sooner again than is a hundred times as long as that took.

Kafka: no counterpart at a broker; consumers tell `records-lag`, tools compute the rest from outside.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import Offset, PartitionIndex, TopicPartition
from tidelog.base.ports import Clock
from tidelog.log import NotCachedError, without_waiting
from tidelog.server.broker.broker import Broker
from tidelog.server.groups.partition_ends import PartitionEnds, Place

if TYPE_CHECKING:
    from tidelog.metadata import TopicImage
    from tidelog.server.groups.group_coordinators import GroupCoordinators
    from tidelog.server.replication.partition import Partition

INTERVAL_SECONDS = 10.0
COST_INVERSE = 100
"""Measuring takes at most a hundredth of the loop's time: it rests for so many times as long as it took."""
TURN_SECONDS = 0.003
ASKED_AT_ONCE_MAX = 1_000
ASKED_MAX = 20_000
"""Partitions, at other brokers, each time; what lies beyond is not known."""
ASK_TIMEOUT_MS = 2_000
ENDS_MAX = 16
"""Of one partition at another broker, that are remembered: the older ones become fewer."""
COLD_MAX = 16
"""Places, each time, that are read from the disk: each takes a thread and a megabyte. The next time there are fewer."""
TIMES_MAX = 50_000
"""Places whose time is remembered until the next time: a group that stands still is not looked up again."""

GroupTopic = tuple[str, str]
"""A group, and a topic that it has committed offsets in."""


class TopicLag(NamedTuple):
    """Of one group in one topic.

    Attributes:
        records: that it has not read, in all partitions whose end is known; None if none is.
        seconds: how old the oldest of these is, and 0 without any; None if it is not known of one of them.
    """

    records: int | None
    seconds: float | None


@dataclass(slots=True)
class MeasuredLags:
    """What was found at one time.

    Attributes:
        by_topic: of the pairs that have a lag of their own.
        others_records: of all other pairs together; `others_seconds`: of the one that lags longest.
        others_count: how many these are.
        unknown_records: partitions with a committed offset whose end is not known.
        unknown_seconds: partitions with a lag of which it is not known since when.
        busy_seconds: of the processor that it took, and `turn_seconds_max` of those at once.
    """

    by_topic: dict[GroupTopic, TopicLag] = field(default_factory=dict)
    others_records: int = 0
    others_seconds: float = 0
    others_count: int = 0
    unknown_records: int = 0
    unknown_seconds: int = 0
    busy_seconds: float = 0
    turn_seconds_max: float = 0


class EndsOverTime:
    """Where a partition at another broker ended, and when: so when a record of it was made, if not exactly."""

    __slots__ = ("_ends", "_first_ms", "_times_ms")

    def __init__(self) -> None:
        self._first_ms = 0
        self._ends: list[Offset] = []
        self._times_ms: list[int] = []  # when each was seen last

    def note(self, end: Offset, wall_ms: int) -> None:
        """It ends there now. Where it was truncated since, what was beyond is forgotten."""
        ends, times_ms = self._ends, self._times_ms
        is_same = bool(ends) and ends[0] == end
        while ends and ends[-1] >= end:
            ends.pop()
            times_ms.pop()
        if not ends:
            self._first_ms = self._first_ms if is_same else wall_ms
        ends.append(end)
        times_ms.append(wall_ms)
        if len(ends) > ENDS_MAX:
            del ends[1 : ENDS_MAX // 2 : 2], times_ms[1 : ENDS_MAX // 2 : 2]

    @property
    def latest(self) -> Offset:
        return self._ends[-1]

    def made_after_ms(self, offset: int) -> int:
        """The latest time at which the record was not there; if there is none, the first at which it was."""
        index = bisect_right(self._ends, offset) - 1
        return self._first_ms if index < 0 else self._times_ms[index]


class GroupLags:
    """Measures, when asked to.

    Args:
        groups: whose groups are measured.
        pairs_max: how many pairs have a lag of their own: the first to come, for as long as they are there.

    Attributes:
        measured: the latest.
    """

    def __init__(self, groups: GroupCoordinators, broker: Broker, clock: Clock, pairs_max: int) -> None:
        self.measured = MeasuredLags()
        self._groups = groups
        self._broker = broker
        self._clock = clock
        self._pairs_max = pairs_max
        self._partition_ends = PartitionEnds(broker)
        self._remembered = _Remembered({}, {})
        self._due_at = 0.0

    async def measure(self) -> None:
        """Bring `measured` up to date, unless it is of late. Returns late where other brokers answer late."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._due_at:
            return
        measuring = _Measuring(self._groups, self._broker, self._clock.wall_ms(), self._remembered)
        await measuring.find_ends(self._partition_ends)
        named, found = self.measured.by_topic.keys(), MeasuredLags()
        newcomers_max = self._pairs_max - len(named)
        async for pair, lag in measuring.lags():
            if pair in named:
                found.by_topic[pair] = lag
            elif newcomers_max > 0:
                newcomers_max -= 1
                found.by_topic[pair] = lag
            else:
                found.others_count += 1
                found.others_records += lag.records or 0
                found.others_seconds = max(found.others_seconds, lag.seconds or 0)
        found.unknown_records, found.unknown_seconds = measuring.unknown_records, measuring.unknown_seconds
        measuring.turns.end()
        found.busy_seconds, found.turn_seconds_max = measuring.turns.busy_seconds, measuring.turns.longest_seconds
        self.measured, self._remembered = found, measuring.found
        self._due_at = loop.time() + max(INTERVAL_SECONDS, COST_INVERSE * found.busy_seconds)


class _Remembered(NamedTuple):
    """From one time to the next.

    Attributes:
        times: when the record was made that is read next, by the partition and its offset.
        ends: of the partitions that other brokers were asked about.
    """

    times: dict[tuple[TopicPartition, int], int]
    ends: dict[Place, EndsOverTime]


class _Turns:
    """Keeps short what runs between two `await`s.

    Attributes:
        busy_seconds: of the processor, all turns together.
        longest_seconds: likewise, of the longest turn.
    """

    def __init__(self) -> None:
        self.busy_seconds = self.longest_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self.begin()

    def end(self) -> None:
        """Before others run."""
        took_seconds = thread_time() - self._busy_since
        self.busy_seconds += took_seconds
        self.longest_seconds = max(self.longest_seconds, took_seconds)

    def begin(self) -> None:
        self._since, self._busy_since = self._loop.time(), thread_time()

    async def give_way(self) -> None:
        """Let others run, if this one has for long."""
        if self._loop.time() - self._since > TURN_SECONDS:
            self.end()
            await asyncio.sleep(0)
            self.begin()


class _Measuring:
    """One time."""

    def __init__(self, groups: GroupCoordinators, broker: Broker, wall_ms: int, known: _Remembered) -> None:
        self.found = _Remembered({}, {})
        self.unknown_records = self.unknown_seconds = 0
        self.turns = _Turns()
        self._groups = groups
        self._broker = broker
        self._wall_ms = wall_ms
        self._known = known
        self._cold_count = 0

    # Where partitions end that are not here.

    async def find_ends(self, partition_ends: PartitionEnds) -> None:
        """Ask for the ends of the partitions of which this broker has no replica, in all topics that groups read."""
        topics: dict[str, TopicImage] = {}
        async for _, topic, _ in self._committed():
            topics[topic.name] = topic
        places: list[Place] = []
        for topic in topics.values():
            await self.turns.give_way()
            places += [
                (topic.topic_id, PartitionIndex(index))
                for index in range(len(topic.partitions))
                if self._replica(topic.name, index) is None
            ]
        for start in range(0, min(len(places), ASKED_MAX), ASKED_AT_ONCE_MAX):
            self.turns.end()
            found = await partition_ends.of(places[start : start + ASKED_AT_ONCE_MAX], timeout_ms=ASK_TIMEOUT_MS)
            self.turns.begin()
            for place, end in found.items():
                if not isinstance(end, KafkaError):
                    ends = self.found.ends[place] = self._known.ends.get(place) or EndsOverTime()
                    ends.note(end, self._wall_ms)

    def _replica(self, topic: str, index: int) -> Partition | None:
        found = self._broker.replica_of(TopicPartition(topic, PartitionIndex(index)))
        return found if found is not None and found.role.is_active else None

    # How far groups are behind them.

    async def _committed(self) -> AsyncIterator[tuple[str, TopicImage, list[tuple[int, bytes]]]]:
        """Each group with each topic that is there, and the values of its offsets there."""
        for one in self._groups.here:
            if one.refusal is not None:
                continue
            for group_id in one.coordinator.groups_with_offsets:
                for name, values in one.coordinator.offsets_by_topic(group_id):
                    topic = self._broker.image.topics_by_name.get(name)
                    if topic is not None:
                        yield group_id, topic, values
                    await self.turns.give_way()

    async def lags(self) -> AsyncIterator[tuple[GroupTopic, TopicLag]]:
        """Of every pair."""
        async for group_id, topic, values in self._committed():
            records, seconds, is_known = 0, 0.0, False
            unknown_before = self.unknown_seconds
            for index, offset in _offsets(topic, values):
                lag = await self._lag(topic, index, offset)
                is_known |= lag.records is not None
                records += lag.records or 0
                seconds = max(seconds, lag.seconds or 0)
                await self.turns.give_way()
            has_times = is_known and self.unknown_seconds == unknown_before
            yield (group_id, topic.name), TopicLag(records if is_known else None, seconds if has_times else None)

    async def _lag(self, topic: TopicImage, index: int, offset: int) -> TopicLag:
        """In one partition."""
        replica = self._replica(topic.name, index)
        ends = None if replica is not None else self.found.ends.get((topic.topic_id, PartitionIndex(index)))
        time_ms: int | None
        if replica is not None:
            end = replica.high_watermark
            time_ms = await self._time(replica, offset) if offset < end else self._wall_ms
        elif ends is not None:
            end, time_ms = ends.latest, ends.made_after_ms(offset)
        else:
            self.unknown_records += 1
            return TopicLag(None, None)
        if offset >= end:
            return TopicLag(0, 0)
        if time_ms is None:
            self.unknown_seconds += 1
            return TopicLag(end - offset, None)
        return TopicLag(end - offset, max(self._wall_ms - time_ms, 0) / 1000)

    async def _time(self, replica: Partition, offset: int) -> int | None:
        """When the record was made that is read next; None if that is not known."""
        key = (replica.topic_partition, offset)
        time_ms = self._known.times.get(key)
        if time_ms is None:
            time_ms = await self._look_up(replica, offset)
        if time_ms is not None and len(self.found.times) < TIMES_MAX:
            self.found.times[key] = time_ms
        return time_ms

    async def _look_up(self, replica: Partition, offset: int) -> int | None:
        while True:
            try:
                return without_waiting(lambda: replica.log.timestamp_from(Offset(offset)))
            except NotCachedError as missing:
                if self._cold_count >= COLD_MAX:
                    return None
                self._cold_count += 1
                self.turns.end()
                await self._broker.bring_into_memory([missing])
                self.turns.begin()
            except (CorruptLogError, DiskError):
                return None  # whoever reads there is told


def _offsets(topic: TopicImage, values: list[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """The partitions with their committed offsets, of this topic and not of a former one of its name."""
    from tidelog.coordinator.groups.records import decode_offset

    for index, value in values:
        committed = decode_offset(value)
        if 0 <= index < len(topic.partitions) and committed.is_for(topic.topic_id):
            yield index, committed.offset
