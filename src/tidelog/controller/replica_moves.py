"""One partition on its way from some replicas to others. Values in, values out.

```
 replicas 1 2 3 ── reassign to 3 4 5 ──► 1 2 3 4 5 ── 3, 4 and 5 in sync ──► 3 4 5
                                         adding 4 5
                                         removing 1 2 ── cancel ──► 1 2 3
```

In between all of them are replicas, and the metadata says which come and which go. It is done in the very change that
brings the last of those it is to have into the ISR, be it that its leader asks (`completed`) or that it is elected
(`partition_changes.arrived`). Whatever changes the set moves the leader epoch (rule 8).

Kafka: `PartitionReassignmentReplicas`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId, PartitionEpoch
from tidelog.controller.leaders import NO_DIRECTORY, directory_of
from tidelog.controller.partition_changes import IsActive, with_replicas
from tidelog.metadata.image import PartitionImage


def is_moving(partition: PartitionImage) -> bool:
    """Whether a reassignment is under way."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def target_of(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Who holds it once it has moved; whoever holds it where nothing moves."""
    return tuple(broker for broker in partition.replicas if broker not in partition.removing_replicas)


def origin_of(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Who held it before it began to move, in their order then unless the target orders them otherwise."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding_replicas)


def reassigned(
    partition: PartitionImage,
    target: Sequence[BrokerId],
    *,
    min_insync_replicas: int | None,
    is_active: IsActive,
    directories: Mapping[BrokerId, UUID],
) -> PartitionImage | None:
    """The partition on its way to `target`, or there, if all of that is in sync already. None where nothing changes.

    One that is on its way elsewhere turns: what it was before it began to move stays what a cancel brings back. Whom
    only the former target named is dropped, unless too few would hold what is committed: then it goes at the end.

    Args:
        target: the preferred leader first; no broker twice.
        directories: where a new replica comes to lie at each broker, as far as that is known.
    """
    origin = origin_of(partition)
    dropped = [broker for broker in partition.adding_replicas if broker not in target]
    if not _can_do_without(partition, dropped, origin, min_insync_replicas, is_active):
        holders = {*partition.isr, *partition.eligible_leader_replicas}
        origin = (*origin, *(broker for broker in dropped if broker in holders))
    replicas, adding, removing = tuple(target), tuple[BrokerId, ...](), tuple[BrokerId, ...]()
    if not set(target) <= set(partition.isr) or partition.is_recovering:
        replicas = _merged(origin, target)
        adding = tuple(broker for broker in target if broker not in origin)
        removing = tuple(broker for broker in origin if broker not in target)
    if (replicas, adding, removing) == (partition.replicas, partition.adding_replicas, partition.removing_replicas):
        return None
    return _held_by(
        partition,
        replicas,
        adding,
        removing,
        min_insync_replicas=min_insync_replicas,
        is_active=is_active,
        directories=directories,
    )


def cancelled(partition: PartitionImage, *, min_insync_replicas: int | None, is_active: IsActive) -> PartitionImage:
    """The partition with the replicas that it had before it began to move.

    Raises:
        KafkaError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT where what is committed would be left with
            fewer replicas than `min.insync.replicas` promises, be an unclean election allowed or not.
    """
    if not is_moving(partition):
        raise refusal(Code.NO_REASSIGNMENT_IN_PROGRESS, f"it stays with {list(partition.replicas)}")
    origin = origin_of(partition)
    if not _can_do_without(partition, partition.adding_replicas, origin, min_insync_replicas, is_active):
        left = [broker for broker in partition.isr if broker in origin]
        raise refusal(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"of the replicas {list(origin)} that it would go back to, {left} are in sync, which is too few to hold "
            f"what is committed (min.insync.replicas is {min_insync_replicas or 1}): wait for more of them, or let it "
            "move on",
        )
    return _held_by(partition, origin, (), (), min_insync_replicas=min_insync_replicas, is_active=is_active)


def completed(
    partition: PartitionImage, *, min_insync_replicas: int | None, is_active: IsActive
) -> PartitionImage | None:
    """The partition where it was to go, once all that shall hold it are in sync; None before that.

    So it never has fewer replicas in sync than it shall have in all, and `min.insync.replicas` of them hold whatever
    was acknowledged. Who leads and goes gives the leadership to one that stays.
    """
    target = target_of(partition)
    if not is_moving(partition) or partition.is_recovering or not set(target) <= set(partition.isr):
        return None
    if partition.leader not in target and not any(map(is_active, target)):
        return None
    return _held_by(partition, target, (), (), min_insync_replicas=min_insync_replicas, is_active=is_active)


def _can_do_without(
    partition: PartitionImage,
    gone: Collection[BrokerId],
    stay: Collection[BrokerId],
    min_insync_replicas: int | None,
    is_active: IsActive,
) -> bool:
    """Whether what is committed is held by as many as was promised, and somebody can lead, without some replicas."""
    if {*partition.isr, *partition.eligible_leader_replicas}.isdisjoint(gone):
        return True
    in_sync = [broker for broker in partition.isr if broker not in gone]
    can_be_led = any(broker == partition.leader or is_active(broker) for broker in in_sync)
    return can_be_led and len(in_sync) >= min(min_insync_replicas or 1, len(stay))


def _merged(origin: Sequence[BrokerId], target: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    """All of both. Without those that go it reads as the target does, without those that come as the origin did, unless
    the target has those that stay in another order.
    """
    replicas: list[BrokerId] = []
    leaving = [broker for broker in origin if broker not in target]
    for broker in target:
        if broker in origin:
            before = origin[: origin.index(broker)]
            replicas += [one for one in leaving if one in before and one not in replicas]
        replicas.append(broker)
    return (*replicas, *(broker for broker in leaving if broker not in replicas))


def _held_by(
    partition: PartitionImage,
    replicas: Sequence[BrokerId],
    adding: Sequence[BrokerId],
    removing: Sequence[BrokerId],
    *,
    min_insync_replicas: int | None,
    is_active: IsActive,
    directories: Mapping[BrokerId, UUID] | None = None,
) -> PartitionImage:
    new = directories or {}
    at = [
        directory_of(partition, broker) if broker in partition.replicas else new.get(broker, NO_DIRECTORY)
        for broker in replicas
    ]
    where = tuple(at) if any(one != NO_DIRECTORY for one in at) else ()
    if set(replicas) == set(partition.replicas):
        return replace(
            partition,
            replicas=tuple(replicas),
            adding_replicas=tuple(adding),
            removing_replicas=tuple(removing),
            directories=where,
            partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        )
    return with_replicas(
        partition,
        replicas,
        min_insync_replicas=min_insync_replicas,
        is_active=is_active,
        directories=where,
        adding=adding,
        removing=removing,
    )
