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

from collections.abc import Callable
from dataclasses import replace

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment
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
) -> CurrentAssignment:
    """Move a member on.

    Args:
        owned: what it says that it reads; None if it did not say.
        wanted: the topics that it is subscribed to, where the target may be older than its subscription: nothing else
            is given to it. None: the target is right.

    Returns:
        `current` itself if it stays.
    """
    if wanted is not None:
        target = {topic: partitions for topic, partitions in target.items() if topic in wanted}
    if current.state is ConsumerMemberState.UNREVOKED_PARTITIONS and _owns(owned, current.revoking):
        if wanted is None:
            return current
        kept, given_up = _split(
            current.assigned, {topic: frozenset(current.assigned.get(topic, ())) for topic in wanted}
        )
        return replace(current, assigned=kept, revoking=_merged(current.revoking, given_up)) if given_up else current
    if (
        current.state is ConsumerMemberState.STABLE
        and current.member_epoch == target_epoch
        and (wanted is None or wanted.issuperset(current.assigned))
    ):
        return current
    return _moved(current, target_epoch, target, owned, is_free)


def _moved(
    current: CurrentAssignment, target_epoch: int, target: Assignment, owned: Assignment | None, is_free: IsFree
) -> CurrentAssignment:
    kept, given_up = _split(current.assigned, target)
    if given_up and _owns(owned, given_up):
        return replace(current, state=ConsumerMemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=given_up)
    assigned: dict[TopicId, dict[int, int]] = {topic: dict(partitions) for topic, partitions in kept.items()}
    is_waiting = False
    for topic, partitions in target.items():
        for partition in partitions.difference(kept.get(topic, ())):
            if is_free(topic, partition):
                assigned.setdefault(topic, {})[partition] = target_epoch
            else:
                is_waiting = True
    return CurrentAssignment(
        member_epoch=target_epoch,
        previous_epoch=current.previous_epoch if current.member_epoch == target_epoch else current.member_epoch,
        state=ConsumerMemberState.UNRELEASED_PARTITIONS if is_waiting else ConsumerMemberState.STABLE,
        assigned=assigned,
        revoking=NOTHING_HELD,
    )


def _split(holding: Holding, target: Assignment) -> tuple[Holding, Holding]:
    """What of it is in the target, and what is not."""
    kept: dict[TopicId, dict[int, int]] = {}
    given_up: dict[TopicId, dict[int, int]] = {}
    for topic, partitions in holding.items():
        wanted = target.get(topic, frozenset())
        for partition, epoch in partitions.items():
            (kept if partition in wanted else given_up).setdefault(topic, {})[partition] = epoch
    return kept, given_up


def _merged(one: Holding, other: Holding) -> Holding:
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in {**one, **other}}


def _owns(owned: Assignment | None, holding: Holding) -> bool:
    """Whether it may still read some of it."""
    if owned is None:
        return True
    return any(not owned.get(topic, frozenset()).isdisjoint(partitions) for topic, partitions in holding.items())
