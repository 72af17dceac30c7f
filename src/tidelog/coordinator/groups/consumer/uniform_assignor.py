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
    PIECE,
    Assignment,
    Members,
    Pieces,
    assigned_parts,
    kept_owners,
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
    counts = {
        topic: partition_counts[topic]
        for topic in sorted(frozenset().union(*distinct))
        if partition_counts.get(topic, 0) > 0
    }
    yield
    owners = yield from kept_owners(ids, members, counts)
    loads = yield from _loads(len(ids), owners)
    if len(distinct) == 1:
        yield from _level_all(owners, loads)
    else:
        subscribers = yield from _subscribers(subscriptions, counts)
        yield from _give_to_least_loaded(owners, loads, subscribers)
        yield from _balance(owners, loads, subscribers)
    return (yield from assigned_parts(ids, owners))


def _loads(member_count: int, owners: Owners) -> Pieces[list[int]]:
    """How much everybody keeps."""
    loads = [0] * member_count
    for owners_of_topic in owners.values():
        for number, owner in enumerate(owners_of_topic, start=1):
            if owner >= 0:
                loads[owner] += 1
            if number % PIECE == 0:
                yield
        yield
    return loads


# The same subscription for all.


def _level_all(owners: Owners, loads: list[int]) -> Pieces[None]:
    """Take from those with more than their share, then fill up the others in turn."""
    share, extra = divmod(sum(map(len, owners.values())), len(loads))
    surplus = []
    for load in loads:
        has_extra = load > share and extra > 0
        extra -= has_extra
        surplus.append(max(load - share - has_extra, 0))
    if any(surplus):
        yield from _drop(owners, loads, surplus)
    wanting = deque((index, share - load) for index, load in enumerate(loads) if load < share)
    work = 0
    for owners_of_topic in owners.values():
        for partition, owner in enumerate(owners_of_topic):
            work += 1
            if work % PIECE == 0:
                yield
            if owner >= 0:
                continue
            if not wanting:
                wanting.extend((index, 1) for index, load in enumerate(loads) if load == share)
            index, missing = wanting.popleft()
            owners_of_topic[partition] = index
            loads[index] += 1
            if missing > 1:
                wanting.append((index, missing - 1))


def _drop(owners: Owners, loads: list[int], surplus: list[int]) -> Pieces[None]:
    work = 0
    for owners_of_topic in reversed(owners.values()):
        for partition in range(len(owners_of_topic) - 1, -1, -1):
            work += 1
            if work % PIECE == 0:
                yield
            owner = owners_of_topic[partition]
            if owner >= 0 and surplus[owner]:
                surplus[owner] -= 1
                loads[owner] -= 1
                owners_of_topic[partition] = -1


# Different subscriptions.


def _subscribers(
    subscriptions: list[frozenset[TopicId]], counts: Mapping[TopicId, int]
) -> Pieces[dict[TopicId, tuple[int, ...]]]:
    """The indexes of the members that want each topic, the topic with fewest first."""
    found: dict[TopicId, list[int]] = {topic: [] for topic in counts}
    work = 0
    for index, topics in enumerate(subscriptions):
        for topic in topics:
            if topic in found:
                found[topic].append(index)
        work += len(topics)
        if work >= PIECE:
            work = 0
            yield
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    by_topic: dict[TopicId, tuple[int, ...]] = {}
    for topic, one in found.items():
        by_topic[topic] = shared.setdefault(tuple(one), tuple(one))
        work += len(one)
        if work >= PIECE:
            work = 0
            yield
    return dict(sorted(by_topic.items(), key=lambda item: (len(item[1]), item[0])))


def _give_to_least_loaded(
    owners: Owners, loads: list[int], subscribers: Mapping[TopicId, tuple[int, ...]]
) -> Pieces[None]:
    for topic, indexes in subscribers.items():
        owners_of_topic = owners[topic]
        if -1 not in owners_of_topic:
            continue
        heap = [(loads[index], index) for index in indexes]
        heapify(heap)
        yield
        for partition, owner in enumerate(owners_of_topic):
            if owner < 0:
                load, index = heap[0]
                owners_of_topic[partition] = index
                loads[index] = load + 1
                heapreplace(heap, (load + 1, index))
            if partition % PIECE == PIECE - 1:
                yield


def _balance(owners: Owners, loads: list[int], subscribers: Mapping[TopicId, tuple[int, ...]]) -> Pieces[None]:
    for _ in range(BALANCE_PASSES_MAX):
        has_moved = False
        for topic, indexes in subscribers.items():
            has_moved = (yield from _level(owners[topic], loads, indexes)) or has_moved
        if not has_moved:
            return


def _level(owners_of_topic: list[int], loads: list[int], indexes: tuple[int, ...]) -> Pieces[bool]:
    """Move partitions of one topic from its most to its least loaded subscriber. Returns whether one was moved."""
    load_of = loads.__getitem__
    most, least = max(map(load_of, set(owners_of_topic))), min(map(load_of, indexes))
    yield
    if most - least < 2:
        return False
    held: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners_of_topic):
        held.setdefault(owner, []).append(partition)
        if partition % PIECE == PIECE - 1:
            yield
    givers = [(-loads[owner], owner) for owner in held]
    takers = [(loads[index], index) for index in indexes]
    heapify(givers)
    heapify(takers)
    work = 0
    while givers:
        work += 2
        if work >= PIECE:
            work = 0
            yield
        giver = givers[0][1]
        taker_load, taker = takers[0]
        if taker_load != loads[taker]:  # it has given since
            heapreplace(takers, (loads[taker], taker))
            continue
        if -givers[0][0] != loads[giver] or not held[giver]:
            _refresh(givers, loads, held)
            continue
        if loads[giver] - taker_load < 2:
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
