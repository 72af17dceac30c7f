"""The `simple` assignor of share groups (KIP-932): who reads which partitions together. Kafka: `SimpleAssignor`.

```
 members   1  2  3  4  5        each partition is read by as many members as it takes to employ all of them,
 partition 0  1  0  1  0,1      and the members have as many partitions as each other, or one more
```

Where all members want the same topics, that holds for all partitions together; else for each topic by itself. As much
as possible of what members had stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from tidelog.base.ids import TopicId
from tidelog.base.invariant import invariant
from tidelog.coordinator.groups.consumer.assignment import Assignment, Members, Pace, Pieces, sorted_topics

Place = tuple[TopicId, int]
"""A partition."""


def simple(members: Members, partitions: Mapping[TopicId, Collection[int]]) -> Pieces[dict[str, Assignment]]:
    """From the members, and the partitions of each topic that may be assigned, to what each member is to read.

    Every partition of a topic with a subscriber goes to at least one of them; every member is in the result. It depends
    on its arguments only, not on the order of a mapping.
    """
    pace = Pace()
    ids = sorted(members)
    topics = yield from sorted_topics((topic for topic, some in partitions.items() if some), pace)
    there: set[TopicId] = set()
    for topic in topics:
        there.add(topic)
        if pace.counts(1):
            yield
    wanted: set[frozenset[TopicId]] = set()
    for some in {members[member_id].topics for member_id in ids}:
        wanted.add(some & there)
        if pace.counts(len(some)):
            yield
    groups: list[tuple[list[str], list[TopicId]]] = [(ids, topics)]
    if len(wanted) > 1:
        groups = []
        for topic in reversed(topics):
            groups.append(([one for one in ids if topic in members[one].topics], [topic]))
            if pace.counts(len(ids)):
                yield
    elif wanted:
        (shared_by_all,) = wanted
        groups = [(ids, [])]
        for topic in topics:
            if topic in shared_by_all:
                groups[0][1].append(topic)
            if pace.counts(1):
                yield
    assigned: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in ids}
    while groups:  # to free all at once would take long
        subscribers, shared = groups.pop()
        places = []
        for topic in shared:
            places += [(topic, partition) for partition in sorted(partitions[topic])]
            if pace.counts(len(partitions[topic])):
                yield
        if not subscribers or not places:
            continue
        held = yield from _spread(subscribers, shared, places, members, pace)
        for member_id, its in held.items():
            parts = assigned[member_id]
            for topic, partition in its:
                parts.setdefault(topic, set()).add(partition)
                if pace.counts(1):
                    yield
            if pace.counts(4):
                yield
    result: dict[str, Assignment] = {}
    for member_id in ids:
        parts = assigned.pop(member_id)
        result[member_id] = {topic: frozenset(its) for topic, its in parts.items()}
        if pace.counts(4 + 2 * len(parts)):
            yield
    return result


def _spread(
    ids: list[str], topics: list[TopicId], places: list[Place], members: Members, pace: Pace
) -> Pieces[dict[str, dict[Place, None]]]:
    """What each member has of some topics, all of whose partitions each of them may have. As before, where it can."""
    sharing = -(-len(ids) // len(places))
    slots = sharing * len(places)
    counts = {
        member_id: -(-slots * (index + 1) // len(ids)) - -(-slots * index // len(ids))
        for index, member_id in enumerate(ids)
    }
    holders: dict[Place, dict[str, None]] = {}
    for place in places:
        holders[place] = {}
        if pace.counts(1):
            yield
    held: dict[str, dict[Place, None]] = {member_id: {} for member_id in ids}
    if pace.counts(3 * len(ids)):
        yield
    for member_id in ids:
        target = members[member_id].target
        for topic in topics if target else ():
            for place in [(topic, partition) for partition in sorted(target.get(topic, ()))]:
                if len(held[member_id]) == counts[member_id]:
                    break
                if place in holders and len(holders[place]) < sharing:
                    held[member_id][place] = None
                    holders[place][member_id] = None
            if pace.counts(1 + 2 * len(target.get(topic, ()))):
                yield
        if pace.counts(4):
            yield
    unfilled = deque(one for one in ids if len(held[one]) < counts[one])
    for place in places:
        while len(holders[place]) < sharing:
            lacking = _next(unfilled, holders[place])
            member_id = unfilled[0] if lacking is None else lacking
            if lacking is None:
                _swap(place, member_id, holders, held)
            else:
                held[member_id][place] = None
                holders[place][member_id] = None
            if len(held[member_id]) == counts[member_id]:
                unfilled.remove(member_id)
            if pace.counts(2):
                yield
    while holders:
        holders.popitem()
        if pace.counts(1):
            yield
    return held


def _next(unfilled: deque[str], holders: Mapping[str, object]) -> str | None:
    """The next member in turn that has not a partition yet; None if all have it that are not filled."""
    for _ in range(len(unfilled)):
        member_id = unfilled[0]
        unfilled.rotate(-1)
        if member_id not in holders:
            return member_id
    return None


def _swap(
    place: Place, unfilled: str, holders: Mapping[Place, dict[str, None]], held: Mapping[str, dict[Place, None]]
) -> None:
    """Give a partition to a member that is filled, and something of that to one that is not, which has it already.

    There is one: members have as many partitions as each other, or one more, so one that is filled and lacks this
    partition has another that the one that is not filled lacks.
    """
    for member_id, its in held.items():
        if place in its:
            continue
        other = next((one for one in its if one not in held[unfilled]), None)
        if other is not None:
            del its[other], holders[other][member_id]
            its[place] = holders[place][member_id] = None
            held[unfilled][other] = holders[other][unfilled] = None
            return
    invariant(False, "nobody can take partition {} over", place)
