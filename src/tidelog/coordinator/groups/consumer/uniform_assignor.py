"""The `uniform` assignor: members get equally many partitions, and keep what they have. Kafka: `UniformAssignor`.

Members that are all subscribed to the same topics differ by one partition at most. Where subscriptions differ, no
partition can be moved to another subscriber of its topic so that two members come closer to each other.
Racks are not looked at, as in Apache Kafka 4.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import (
    Assignment,
    Members,
    Pace,
    Pieces,
    assigned_parts,
    kept_owners,
    sorted_topics,
)

BALANCE_PASSES_MAX = 16
"""How often all topics are levelled at most where subscriptions differ. Two or three passes are usual."""

Owners = dict[TopicId, list[int]]
"""The index of the member that owns each partition of each topic; -1 for none."""


def uniform(members: Members, partition_counts: Mapping[TopicId, int]) -> Pieces[dict[str, Assignment]]:
    """See `Assignor`."""
    if not members:
        return {}
    ids = sorted(members)
    subscriptions = [members[one].topics for one in ids]
    distinct = set(subscriptions)
    pace = Pace()
    wanted: set[TopicId] = set()
    for topics in distinct:
        wanted |= topics
        if pace.counts(1 + len(topics) // 16):
            yield
    counts: dict[TopicId, int] = {}
    for topic in (yield from sorted_topics(wanted, pace)):
        if partition_counts.get(topic):
            counts[topic] = partition_counts[topic]
        if pace.counts(1):
            yield
    owners = yield from kept_owners(ids, members, counts, pace)
    loads = yield from _loads(len(ids), owners, pace)
    if len(distinct) == 1:
        yield from _level_all(owners, loads, pace)
    else:
        subscribers = yield from _subscribers(subscriptions, counts, pace)
        yield from _give_to_least_loaded(owners, loads, subscribers, pace)
        yield from _balance(owners, loads, subscribers, pace)
    return (yield from assigned_parts(ids, owners, pace))


def _loads(member_count: int, owners: Owners, pace: Pace) -> Pieces[list[int]]:
    """How much everybody keeps."""
    loads = [0] * member_count
    for owners_of_topic in owners.values():
        for owner in owners_of_topic:
            if owner >= 0:
                loads[owner] += 1
            if pace.counts(1):
                yield
    return loads


# The same subscription for all.


def _level_all(owners: Owners, loads: list[int], pace: Pace) -> Pieces[None]:
    """Take from those with more than their share, then fill up the others in turn."""
    share, extra = divmod(sum(map(len, owners.values())), len(loads))
    surplus = []
    for load in loads:
        has_extra = load > share and extra > 0
        extra -= has_extra
        surplus.append(max(load - share - has_extra, 0))
    if any(surplus):
        yield from _drop(owners, loads, surplus, pace)
    wanting = deque(index for index, load in enumerate(loads) if load < share)
    for owners_of_topic in owners.values():
        for partition, owner in enumerate(owners_of_topic):
            if pace.counts(1):
                yield
            if owner >= 0:
                continue
            if not wanting:
                wanting.extend(index for index, load in enumerate(loads) if load == share)
            index = wanting.popleft()
            owners_of_topic[partition] = index
            loads[index] += 1
            if loads[index] < share:
                wanting.append(index)


def _drop(owners: Owners, loads: list[int], surplus: list[int], pace: Pace) -> Pieces[None]:
    for owners_of_topic in reversed(owners.values()):
        for partition in range(len(owners_of_topic) - 1, -1, -1):
            if pace.counts(1):
                yield
            owner = owners_of_topic[partition]
            if owner >= 0 and surplus[owner]:
                surplus[owner] -= 1
                loads[owner] -= 1
                owners_of_topic[partition] = -1


# Different subscriptions.


def _subscribers(
    subscriptions: list[frozenset[TopicId]], counts: Mapping[TopicId, int], pace: Pace
) -> Pieces[dict[TopicId, tuple[int, ...]]]:
    """The indexes of the members that want each topic, the topic with fewest first."""
    found: dict[TopicId, list[int]] = {}
    for topic in counts:
        found[topic] = []
        if pace.counts(1):
            yield
    for index, topics in enumerate(subscriptions):
        for topic in topics:
            if topic in found:
                found[topic].append(index)
            if pace.counts(1):
                yield
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    by_count: dict[int, dict[TopicId, tuple[int, ...]]] = {}
    for topic, one in found.items():
        indexes = tuple(one)
        by_count.setdefault(len(indexes), {})[topic] = shared.setdefault(indexes, indexes)
        if pace.counts(1 + len(indexes) // 8):
            yield
    by_topic: dict[TopicId, tuple[int, ...]] = {}
    for count in sorted(by_count):
        by_topic |= by_count[count]  # in the order of `counts`
        if pace.counts(1 + len(by_count[count]) // 4):
            yield
    return by_topic


def _give_to_least_loaded(
    owners: Owners, loads: list[int], subscribers: Mapping[TopicId, tuple[int, ...]], pace: Pace
) -> Pieces[None]:
    for topic, indexes in subscribers.items():
        owners_of_topic = owners[topic]
        if pace.counts(1 + len(owners_of_topic) // 8):
            yield
        if -1 not in owners_of_topic:
            continue
        heap = [(loads[index], index) for index in indexes]
        heapify(heap)
        if pace.counts(len(heap)):
            yield
        for partition, owner in enumerate(owners_of_topic):
            if owner < 0:
                load, index = heap[0]
                owners_of_topic[partition] = index
                loads[index] = load + 1
                heapreplace(heap, (load + 1, index))
            if pace.counts(1):
                yield


def _balance(
    owners: Owners, loads: list[int], subscribers: Mapping[TopicId, tuple[int, ...]], pace: Pace
) -> Pieces[None]:
    for _ in range(BALANCE_PASSES_MAX):
        has_moved = False
        for topic, indexes in subscribers.items():
            has_moved = (yield from _level(owners[topic], loads, indexes, pace)) or has_moved
        if not has_moved:
            return


def _level(owners_of_topic: list[int], loads: list[int], indexes: tuple[int, ...], pace: Pace) -> Pieces[bool]:
    """Move partitions of one topic from its most to its least loaded subscriber. Returns whether one was moved."""
    load_of = loads.__getitem__
    most, least = max(map(load_of, set(owners_of_topic))), min(map(load_of, indexes))
    if pace.counts(2 + (len(owners_of_topic) + len(indexes)) // 8):
        yield
    if most - least < 2:
        return False
    held: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners_of_topic):
        held.setdefault(owner, []).append(partition)
        if pace.counts(1):
            yield
    givers = [(-loads[owner], owner) for owner in held]
    takers = [(loads[index], index) for index in indexes]
    heapify(givers)
    heapify(takers)
    if pace.counts(len(givers) + len(takers)):
        yield
    while givers:
        if pace.counts(2):
            yield
        giver, taker = givers[0][1], takers[0][1]  # who takes may have given since: then it has even less, and is first
        if -givers[0][0] != loads[giver] or not held[giver]:
            _refresh(givers, loads, held)
            continue
        if loads[giver] - loads[taker] < 2:
            break
        owners_of_topic[held[giver].pop()] = taker
        loads[giver] -= 1
        loads[taker] += 1
        heapreplace(givers, (-loads[giver], giver))
        heapreplace(takers, (loads[taker], taker))
    return True


def _refresh(givers: list[tuple[int, int]], loads: list[int], held: Mapping[int, list[int]]) -> None:
    """Correct the first of the givers, or forget it if it has nothing left."""
    owner = givers[0][1]
    if held[owner]:
        heapreplace(givers, (-loads[owner], owner))
    else:
        heappop(givers)
