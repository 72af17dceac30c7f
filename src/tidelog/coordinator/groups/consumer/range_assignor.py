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
    Assignment,
    Members,
    Pace,
    Pieces,
    assigned_parts,
    kept_owners,
    sorted_topics,
)


def range_(members: Members, partition_counts: Mapping[TopicId, int]) -> Pieces[dict[str, Assignment]]:
    """See `Assignor`."""
    ids = sorted(members, key=lambda one: _place(one, members[one].instance_id))
    subscribers: dict[TopicId, list[int]] = {}
    pace = Pace()
    for index, member_id in enumerate(ids):
        if pace.counts(1):
            yield
        for topic in members[member_id].topics:
            if partition_counts.get(topic):
                subscribers.setdefault(topic, []).append(index)
            if pace.counts(1):
                yield
    alike: dict[tuple[int, tuple[int, ...]], list[TopicId]] = {}
    counts: dict[TopicId, int] = {}
    for topic in (yield from sorted_topics(subscribers, pace)):
        counts[topic] = partition_counts[topic]
        alike.setdefault((counts[topic], tuple(subscribers[topic])), []).append(topic)
        if pace.counts(1 + len(subscribers[topic]) // 4):
            yield
    owners = yield from kept_owners(ids, members, counts, pace)
    cut: dict[TopicId, list[int]] = {}
    for (count, indexes), topics in alike.items():
        model, kept_most = topics[0], -1
        for topic in topics:
            kept_count = count - owners[topic].count(-1)
            if kept_count > kept_most:
                model, kept_most = topic, kept_count
            if pace.counts(1 + count // 8):
                yield
        cut |= dict.fromkeys(topics, _cut(owners[model], indexes))
        if pace.counts(len(topics) // 4 + 2 * count + 2 * len(indexes)):
            yield
    return (yield from assigned_parts(ids, cut, pace))


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
