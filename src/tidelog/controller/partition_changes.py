"""What becomes of one partition: who is in sync, who may lead, and who leads next. Values in, values out.

```
 in-sync replicas ──── leaves while fewer than min.insync.replicas stay ────► eligible leader replicas
        ▲                                                                              │
        └── the leader asks (AlterPartition), or it is elected                         │ registers after an unclean
                                                                                       ▼ shutdown
 any replica ◄──── only an unclean election, and it is reported ──── last known eligible leader replicas
```

The high watermark stands still while fewer are in sync than must be (rule 4). So whoever leaves then keeps all that is
committed, and may lead as any member of the ISR may, which may become empty: the last replica that was standing need
not be the first one to come back (KIP-966).

Every change of a leader, to whom or to nobody, moves the leader epoch by one, and so does every change of the replicas.

Kafka: `PartitionChangeBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId
from tidelog.base.invariant import invariant
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.records.topics import NO_LEADER, PartitionChangeRecord
from tidelog.replica import isr_size_min

IsActive = Callable[[BrokerId], bool]

T = TypeVar("T")


def with_isr(
    partition: PartitionImage,
    isr: Sequence[BrokerId],
    *,
    min_insync_replicas: int | None,
    lost: Collection[BrokerId] = (),
    spares_last: bool = True,
) -> PartitionImage:
    """The partition with another ISR. Who leaves it stays eligible while fewer are in sync than must be.

    A leader that is not among them leads no longer; electing the next one is another step.

    Args:
        min_insync_replicas: None where the metadata has no words for who is eligible (KIP-966 is newer than its level):
            the ISR keeps its last members then, though none of them leads.
        lost: brokers whose logs may lack the end of what they had: their last shutdown was unclean. Where one replica
            in sync is enough, and it was the only one, it stays eligible: nobody was promised that a loss of its power
            is survived, and a crash of its process loses nothing. If it leads again, it may lack what was committed;
            the metadata says from which leader epoch on.
        spares_last: whether it does. Not where nothing is left of its log.
    """
    keeps_leader = partition.leader is None or partition.leader in isr
    standing = _standing(partition, isr, min_insync_replicas, lost, spares_last=spares_last)
    left = _next(partition, standing, partition.leader if keeps_leader else None, is_election=not keeps_leader)
    may_have_lost = any(broker in lost for broker in (*standing.isr, *standing.eligible))
    if may_have_lost and not _is_noted(partition):
        return replace(left, unclean_epoch=LeaderEpoch(partition.leader_epoch + 1))
    return left


def _is_noted(partition: PartitionImage) -> bool:
    """Whether it is known of the next leader already that its log may lack something: nobody has led since."""
    noted = partition.unclean_epoch
    return partition.leader is None and noted is not None and noted >= partition.leader_epoch


def is_spared(partition: PartitionImage, broker: BrokerId) -> bool:
    """Whether a broker that lost something is eligible all the same, as the last one: it has no more to lose."""
    return partition.eligible_leader_replicas == (broker,) and _is_noted(partition)


def next_leader(partition: PartitionImage, is_active: IsActive) -> BrokerId | None:
    """Who may lead without a loss: the first active replica, in their preferred order, of the ISR.

    Where no member of it is active, the first of the eligible leader replicas. None if there is none of them either.
    """
    for candidates in (partition.isr, partition.eligible_leader_replicas):
        for broker in partition.replicas:
            if broker in candidates and is_active(broker):
                return broker
    return None


def led_by(partition: PartitionImage, broker: BrokerId, *, min_insync_replicas: int | None) -> PartitionImage:
    """The partition after a clean election: the leader is in sync, or eligible and then in sync alone.

    The others that were eligible stay so while nothing can be committed without them.
    """
    isr = partition.isr
    if broker not in isr:
        invariant(broker in partition.eligible_leader_replicas, "broker {} may not lead", broker)
        isr = (broker,)
    standing = _standing(partition, isr, min_insync_replicas, ())
    return _next(partition, standing, broker, is_election=True)


def led_uncleanly_by(partition: PartitionImage, broker: BrokerId) -> PartitionImage:
    """The partition after an unclean election: its log is the truth from now on, whatever is committed elsewhere.

    The image says that it recovers until the leader has told that it did, so it is known that records may be lost.
    """
    elected = replace(
        partition,
        leader=broker,
        unclean_epoch=LeaderEpoch(partition.leader_epoch + 1),
        isr=(broker,),
        is_recovering=True,
        eligible_leader_replicas=(),
        last_known_eligible_leader_replicas=(),
    )
    return _one_step(partition, elected)


def without(
    partition: PartitionImage,
    *brokers: BrokerId,
    min_insync_replicas: int | None,
    is_active: IsActive,
    is_lost: bool = False,
    is_gone: bool = False,
    is_unclean_allowed: bool = False,
) -> PartitionImage | None:
    """What follows when brokers may lead no longer: they lose leadership and seats in the ISR, even the last one.

    None where nothing changes.

    Args:
        is_active: of the others.
        is_lost: whether their logs may lack the end of what they had (rule 7).
        is_gone: whether there is nothing of their logs, or not what it was: the directory of one is no more,
            or its broker says so. Then it is not known to have been eligible, either.
        is_unclean_allowed: see `elected`.
    """
    is_one_enough = min_insync_replicas is not None and isr_size_min(partition, min_insync_replicas) == 1
    if len(brokers) > 1 and is_one_enough:
        return _without_one_by_one(
            partition,
            sorted(brokers, key=lambda one: one == partition.leader),
            min_insync_replicas=min_insync_replicas,
            is_active=lambda one: one not in brokers and is_active(one),
            is_lost=is_lost,
            is_gone=is_gone,
            is_unclean_allowed=is_unclean_allowed,
        )
    isr = [one for one in partition.isr if one not in brokers]
    lost = brokers if is_lost or is_gone else ()
    left = with_isr(partition, isr, min_insync_replicas=min_insync_replicas, lost=lost, spares_last=not is_gone)
    led = elected(
        left,
        min_insync_replicas=min_insync_replicas,
        is_active=lambda one: one not in brokers and is_active(one),
        is_unclean_allowed=is_unclean_allowed,
    )
    if led is not None:
        left = _one_step(partition, led)
    is_as_it_was = (
        left.leader_epoch == partition.leader_epoch
        and left.unclean_epoch == partition.unclean_epoch
        and _standing_of(left) == _standing_of(partition)
    )
    return None if is_as_it_was else left


def _without_one_by_one(
    partition: PartitionImage,
    brokers: Sequence[BrokerId],
    **how: Any,
) -> PartitionImage | None:
    """Where one replica in sync is enough, the last to go is eligible alone: it may lead again whatever it lost, where
    of several none might.
    """
    left = partition
    for broker in brokers:
        left = without(left, broker, **how) or left
    return in_one_step(partition, left)


def in_one_step(before: PartitionImage, after: PartitionImage) -> PartitionImage | None:
    """What was made in several steps, none maybe, as one change; None where there was none."""
    if after is before:
        return None
    if after.leader_epoch == before.leader_epoch:
        return replace(after, partition_epoch=PartitionEpoch(before.partition_epoch + 1))
    return _one_step(before, after)


def elected(
    partition: PartitionImage,
    *,
    min_insync_replicas: int | None,
    is_active: IsActive,
    is_unclean_allowed: bool = False,
) -> PartitionImage | None:
    """An election where there is no leader; None where there is one, or nobody who may be.

    Args:
        is_unclean_allowed: whether any leader is better than none: where nobody may lead without a loss, whoever held
            most leads, else any replica that is active.
    """
    if partition.leader is not None:
        return None
    leader = next_leader(partition, is_active)
    if leader is not None:
        return led_by(partition, leader, min_insync_replicas=min_insync_replicas)
    if is_unclean_allowed:
        known = partition.last_known_eligible_leader_replicas
        for broker in sorted(partition.replicas, key=lambda one: one not in known):  # stable: else in preferred order
            if is_active(broker):
                return led_uncleanly_by(partition, broker)
    return None


def elected_preferred(
    partition: PartitionImage, *, min_insync_replicas: int | None, is_active: IsActive
) -> PartitionImage:
    """The first of the replicas leads again.

    Raises:
        KafkaError: ELECTION_NOT_NEEDED; PREFERRED_LEADER_NOT_AVAILABLE when it is not in sync, or not active.
    """
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise refusal(Code.ELECTION_NOT_NEEDED, f"broker {preferred} leads already")
    if preferred not in partition.isr or not is_active(preferred):
        raise refusal(Code.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync, or not alive")
    return led_by(partition, preferred, min_insync_replicas=min_insync_replicas)


def elected_uncleanly(
    partition: PartitionImage, *, min_insync_replicas: int | None, is_active: IsActive
) -> PartitionImage:
    """Any leader rather than none, as an operator orders.

    Raises:
        KafkaError: ELECTION_NOT_NEEDED where there is a leader; ELIGIBLE_LEADERS_NOT_AVAILABLE where no replica is
            alive.
    """
    if partition.leader is not None:
        raise refusal(Code.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads already")
    led = elected(partition, min_insync_replicas=min_insync_replicas, is_active=is_active, is_unclean_allowed=True)
    if led is not None:
        return led
    raise refusal(Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of the replicas {list(partition.replicas)} is alive")


def with_replicas(
    partition: PartitionImage,
    replicas: Sequence[BrokerId],
    *,
    min_insync_replicas: int | None,
    is_active: IsActive,
    directories: Sequence[UUID] = (),
    adding: Sequence[BrokerId] = (),
    removing: Sequence[BrokerId] = (),
) -> PartitionImage:
    """The partition held by others, in a new leader epoch: adding a replica moves it as removing one does (rule 8).

    So an order to stop a replica that was there before is older than the assignment of the same broker afterwards.

    Args:
        adding: those that a reassignment adds; they have to come into sync before it is done.
        removing: those that it removes then.
    """
    moved = replace(
        partition,
        replicas=tuple(replicas),
        directories=tuple(directories),
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )
    isr = [broker for broker in partition.isr if broker in replicas]
    moved = with_isr(moved, isr, min_insync_replicas=min_insync_replicas)
    if moved.leader is None:
        leader = next_leader(moved, is_active)
        if leader is not None:
            moved = led_by(moved, leader, min_insync_replicas=min_insync_replicas)
    return _one_step(partition, moved)


def arrived(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """`after`; or, where an election left those in sync who are to hold the partition, the end of its reassignment.

    What an unclean election began is not the end before the leader has recovered.
    """
    target = tuple(broker for broker in after.replicas if broker not in after.removing_replicas)
    is_moving = bool(after.adding_replicas or after.removing_replicas)
    if not is_moving or after.is_recovering or not set(target) <= set(after.isr):
        return after
    if after.leader not in (None, *target):
        return after
    at = dict(zip(after.replicas, after.directories, strict=False))
    is_same_set = set(target) == set(before.replicas)
    return replace(
        after,
        replicas=target,
        isr=tuple(broker for broker in after.isr if broker in target),
        leader_epoch=after.leader_epoch if is_same_set else LeaderEpoch(before.leader_epoch + 1),
        adding_replicas=(),
        removing_replicas=(),
        directories=tuple(at[broker] for broker in target) if at else (),
        eligible_leader_replicas=(),
        last_known_eligible_leader_replicas=(),
    )


def change_record(
    topic_id: TopicId, index: PartitionIndex, before: PartitionImage, after: PartitionImage
) -> PartitionChangeRecord:
    """What the metadata log says of a change. Applied to `before` it makes `after`."""
    steps = after.leader_epoch - before.leader_epoch, after.partition_epoch - before.partition_epoch
    invariant(steps in ((0, 1), (1, 1)), "a record moves the epochs by {}", steps)
    invariant(after.leader == before.leader or steps[0] == 1, "another leader in the same leader epoch")
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=_if_changed(before.replicas, after.replicas),
        isr=_if_changed(before.isr, after.isr),
        adding_replicas=_if_changed(before.adding_replicas, after.adding_replicas),
        removing_replicas=_if_changed(before.removing_replicas, after.removing_replicas),
        directories=_if_changed(before.directories, after.directories),
        eligible_leader_replicas=_if_changed(before.eligible_leader_replicas, after.eligible_leader_replicas),
        last_known_elr=_if_changed(
            before.last_known_eligible_leader_replicas, after.last_known_eligible_leader_replicas
        ),
    )
    if steps[0]:
        record.leader = NO_LEADER if after.leader is None else after.leader
    if after.unclean_epoch is not None and after.unclean_epoch != before.unclean_epoch:
        record.unclean_epoch = after.unclean_epoch
    if after.is_recovering != before.is_recovering:
        record.leader_recovery_state = int(after.is_recovering)
    return record


def _if_changed(before: Sequence[T], after: Sequence[T]) -> list[T] | None:
    return None if after == before else list(after)


class _Standing(NamedTuple):
    """Who is in sync, who is eligible to lead beside them, and who was known to be once."""

    isr: tuple[BrokerId, ...]
    eligible: tuple[BrokerId, ...]
    last_known: tuple[BrokerId, ...]


def _standing_of(partition: PartitionImage) -> _Standing:
    return _Standing(partition.isr, partition.eligible_leader_replicas, partition.last_known_eligible_leader_replicas)


def _standing(
    partition: PartitionImage,
    isr: Sequence[BrokerId],
    min_insync_replicas: int | None,
    lost: Collection[BrokerId],
    *,
    spares_last: bool = True,
) -> _Standing:
    """With another ISR; see `with_isr`."""
    if min_insync_replicas is None:
        last = tuple(one for one in partition.isr if one in partition.replicas and (spares_last or one not in lost))
        return _Standing(tuple(isr) or last, (), ())
    size_min = isr_size_min(partition, min_insync_replicas)
    if len(isr) >= size_min:
        return _Standing(tuple(isr), (), ())
    held = dict.fromkeys((*partition.eligible_leader_replicas, *partition.isr))
    stays = [broker for broker in held if broker not in isr and broker in partition.replicas]
    known = dict.fromkeys((*partition.last_known_eligible_leader_replicas, *stays))
    if not spares_last:
        known = {broker: None for broker in known if broker not in lost}
    is_spared = spares_last and size_min == 1 and len(known) == 1
    eligible = tuple(broker for broker in stays if is_spared or broker not in lost)
    gone = (broker for broker in known if broker not in isr and broker not in eligible)
    return _Standing(tuple(isr), eligible, tuple(broker for broker in gone if broker in partition.replicas))


def _next(
    partition: PartitionImage, standing: _Standing, leader: BrokerId | None, *, is_election: bool
) -> PartitionImage:
    """The next state. Written out, for a broker that comes or goes changes thousands."""
    return PartitionImage(
        partition.replicas,
        standing.isr,
        leader,
        LeaderEpoch(partition.leader_epoch + is_election),
        PartitionEpoch(partition.partition_epoch + 1),
        partition.is_recovering,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.directories,
        standing.eligible,
        standing.last_known,
        partition.unclean_epoch,
    )


def _one_step(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """What was made in several steps is one change, in one record: each epoch moves by one."""
    leader_epoch = LeaderEpoch(before.leader_epoch + 1)
    return replace(
        after,
        leader_epoch=leader_epoch,
        partition_epoch=PartitionEpoch(before.partition_epoch + 1),
        unclean_epoch=before.unclean_epoch if after.unclean_epoch == before.unclean_epoch else leader_epoch,
    )
