"""The `range` assignor: each topic is cut into ranges, one for each subscriber. Kafka: `RangeAssignor`.

Topics with the same subscribers and the same number of partitions are cut alike: a member that joins two of them gets
the same partitions of both. A first assignment consists of whole ranges. A later one moves as few partitions as it can
and still be even, so ranges may have gaps then.
Racks are not looked at, as in Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import (
    PIECE,
    Assignment,
    Members,
    Pieces,
    assigned_parts,
    kept_owners,
)


def range_(members: Members, partition_counts: Mapping[TopicId, int]) -> Pieces[dict[str, Assignment]]:
    """See `Assignor`."""
    ids = sorted(members, key=lambda one: _place(one, members[one].instance_id))
    subscribers: dict[TopicId, list[int]] = {}
    work = 0
    for index, member_id in enumerate(ids):
        for topic in members[member_id].topics:
            if partition_counts.get(topic, 0) > 0:
                subscribers.setdefault(topic, []).append(index)
        work += 1 + len(members[member_id].topics)
        if work >= PIECE:
            work = 0
            yield
    alike: dict[tuple[int, tuple[int, ...]], list[TopicId]] = {}
    for topic in sorted(subscribers):
        alike.setdefault((partition_counts[topic], tuple(subscribers[topic])), []).append(topic)
        work += len(subscribers[topic])
        if work >= PIECE:
            work = 0
            yield
    owners = yield from kept_owners(ids, members, {topic: partition_counts[topic] for topic in subscribers})
    cut: dict[TopicId, list[int]] = {}
    for (_, indexes), topics in alike.items():
        kept_counts = {}
        for topic in topics:
            kept_counts[topic] = sum(owner >= 0 for owner in owners[topic])
            work += len(owners[topic]) // 4
            if work >= PIECE:
                work = 0
                yield
        cut |= dict.fromkeys(topics, _cut(owners[max(topics, key=lambda one: kept_counts[one])], indexes))
        yield
    return (yield from assigned_parts(ids, cut))


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    """Static members come first, in the order of their names, which stay."""
    return (instance_id is None, member_id if instance_id is None else instance_id)


def _cut(owners: list[int], indexes: tuple[int, ...]) -> list[int]:
    """The new owners of the partitions of a topic."""
    share, extra = divmod(len(owners), len(indexes))
    held = dict.fromkeys(indexes, 0)
    for owner in owners:
        if owner >= 0:
            held[owner] += 1
    quotas = dict.fromkeys(indexes, share)
    for index in sorted(indexes, key=lambda one: held[one] <= share):  # who has more already keeps one more
        if extra:
            quotas[index] += 1
            extra -= 1
    kept = []
    for owner in owners:
        stays = owner >= 0 and quotas[owner] > 0
        kept.append(owner if stays else -1)
        if stays:
            quotas[owner] -= 1
    missing = (index for index in indexes for _ in repeat(None, quotas[index]))
    return [owner if owner >= 0 else next(missing) for owner in kept]
