"""The way of a member from what it has to its target assignment (KIP-848). Kafka: `CurrentAssignmentBuilder`.

```
               ┌── nothing to give up ────────────────────────────────┐
               │                                                      ▼
    Stable ────┼── something to give up ──► UnrevokedPartitions ──► has all that is free
       ▲       │                            until the member says      │  member epoch := target epoch
       │       └────────────────────────────  that it has not it any more  │
       │                                                               │
       └────────── all of the target was free ─────────────────────────┤
       ▲                                                               ▼
       └────────── others gave it up ──────────────────── UnreleasedPartitions
```

A partition is given to a member only while nobody else has it, so two members never read the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import NO_PARTITIONS, Assignment, Pace, Pieces
from tidelog.coordinator.groups.consumer.member import NOTHING_HELD, CurrentAssignment, Holding
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState

IsFree = Callable[[TopicId, int], bool]
"""Whether no other member has a partition."""


def reconciled(
    current: CurrentAssignment,
    target_epoch: int,
    target: Assignment,
    *,
    owned: Assignment | None,
    wanted: frozenset[TopicId] | None,
    is_free: IsFree,
    pace: Pace,
) -> Pieces[CurrentAssignment]:
    """Move a member on.

    Args:
        owned: what it says that it reads; None if it did not say.
        wanted: the topics that it is subscribed to, where the target may be older than its subscription: nothing else
            is given to it. None: the target is right.

    Returns:
        `current` itself if it stays.
    """
    if current.state is ConsumerMemberState.UNREVOKED_PARTITIONS and (yield from _owns(owned, current.revoking, pace)):
        if wanted is None:
            return current
        kept, given_up = yield from _split(
            current.assigned, lambda topic: current.assigned[topic] if topic in wanted else (), pace
        )
        return replace(current, assigned=kept, revoking=_merged(current.revoking, given_up)) if given_up else current
    if (
        current.state is ConsumerMemberState.STABLE
        and current.member_epoch == target_epoch
        and (wanted is None or wanted.issuperset(current.assigned))
    ):
        return current

    def part(topic: TopicId) -> frozenset[int]:
        return target.get(topic, NO_PARTITIONS) if wanted is None or topic in wanted else NO_PARTITIONS

    kept, given_up = yield from _split(current.assigned, part, pace)
    if given_up and (yield from _owns(owned, given_up, pace)):
        return replace(current, state=ConsumerMemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=given_up)
    assigned: dict[TopicId, Mapping[int, int]] = dict(kept)
    is_waiting = False
    for topic in target:
        partitions = part(topic)
        has = kept.get(topic, {})
        if pace.counts(2 + 2 * len(partitions)):
            yield
        if len(has) == len(partitions):
            continue  # it has them all: what it keeps is part of them
        more = dict(has)
        for partition in partitions.difference(has):
            if is_free(topic, partition):
                more[partition] = target_epoch
            else:
                is_waiting = True
        if more:
            assigned[topic] = more
    return CurrentAssignment(
        member_epoch=target_epoch,
        previous_epoch=current.previous_epoch if current.member_epoch == target_epoch else current.member_epoch,
        state=ConsumerMemberState.UNRELEASED_PARTITIONS if is_waiting else ConsumerMemberState.STABLE,
        assigned=assigned,
        revoking=NOTHING_HELD,
    )


def _split(holding: Holding, part: Callable[[TopicId], Collection[int]], pace: Pace) -> Pieces[tuple[Holding, Holding]]:
    """What of it is in a part, and what is not."""
    kept: dict[TopicId, Mapping[int, int]] = {}
    given_up: dict[TopicId, Mapping[int, int]] = {}
    for topic, partitions in holding.items():
        wanted = part(topic)
        if pace.counts(1 + len(partitions)):
            yield
        stays = {partition: epoch for partition, epoch in partitions.items() if partition in wanted}
        if len(stays) == len(partitions):
            kept[topic] = partitions
            continue
        if stays:
            kept[topic] = stays
        given_up[topic] = {partition: epoch for partition, epoch in partitions.items() if partition not in wanted}
    return kept, given_up


def _merged(one: Holding, other: Holding) -> Holding:
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in {**one, **other}}


def _owns(owned: Assignment | None, holding: Holding, pace: Pace) -> Pieces[bool]:
    """Whether it may still read some of it."""
    if owned is None:
        return True
    for topic, partitions in holding.items():
        if not owned.get(topic, NO_PARTITIONS).isdisjoint(partitions):
            return True
        if pace.counts(1 + len(partitions) // 8):
            yield
    return False
