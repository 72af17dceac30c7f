"""LeaderInIsr, WeakIsr, StrongIsr: who is in sync has what is committed."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.sim.checkers.growth import Changes, Compared
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.views import Broken, PartitionView, ReplicaView, text_of


class LeaderInIsr:
    """The controller's leader, if there is one, is a member of its ISR."""

    name = "LeaderInIsr"

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        state = view.state
        if state.leader is not None and state.leader not in state.isr:
            isr = ", ".join(view.called(broker) for broker in state.isr) or "nobody"
            yield Broken(self.name, f"{view.called(state.leader)} leads, in sync: {isr}")


class WeakIsr:
    """Below the high watermark of whoever presumes that it leads, those whom it presumes in sync have what it has.

    A leader that an unclean election has left behind is no concern, nor is a replica that lost power until it has won
    its seat anew, nor a record that is promised no more.
    """

    name = "WeakIsr"

    def __init__(self) -> None:
        self._agreed = Compared()

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        self._agreed.forget(changes, history)
        for leader in view.replicas.values():
            if not leader.leads or not history.is_bound(leader.leader_epoch):
                continue
            for member in leader.isr:
                other = view.replicas.get(member)
                if other is not None and other is not leader and not history.is_doubtful(member):
                    yield from self._compare(leader, other, history)

    def _compare(self, leader: ReplicaView, other: ReplicaView, history: PartitionHistory) -> Iterator[Broken]:
        pair = (leader.broker_id, other.broker_id)
        offset = max(self._agreed[pair], leader.log_start_offset, other.log_start_offset)
        while offset < leader.high_watermark:
            mine, theirs = leader.at(offset), other.at(offset)
            if mine != theirs and mine is not None and mine == history.promised(offset):
                who = f"{leader.called} leads epoch {leader.leader_epoch} and presumes {other.called} in sync"
                yield Broken(self.name, f"{who}: at offset={offset} they have {text_of(mine)} and {text_of(theirs)}")
                break
            offset += 1
        self._agreed[pair] = offset


class StrongIsr:
    """Whoever the controller says is in sync, or may be elected, has all that is promised.

    The leader is left to AckedRecordsSurvive.
    """

    name = "StrongIsr"

    def __init__(self) -> None:
        self._held = Compared()

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        self._held.forget(changes, history)
        state = view.state
        for broker in (*state.isr, *state.eligible_leader_replicas):
            replica = view.replicas.get(broker)
            if replica is None or broker == state.leader or is_excused(replica, history):
                continue
            offset = first_missing(replica, history, self._held)
            if offset is not None:
                what = f"{text_of(history.promised(offset))} offset={offset} is missing from {replica.called}"
                part = "which is in sync" if broker in state.isr else "which may be elected"
                yield Broken(self.name, f"{what}, {part}")


def is_excused(replica: ReplicaView, history: PartitionHistory) -> bool:
    """Whether nobody can know yet what it has: it lost power and is not back. When it is, its seat has to be gone."""
    return not replica.is_up and history.is_doubtful(replica.broker_id)


def first_missing(
    replica: ReplicaView, history: PartitionHistory, held: Compared, end_offset: int | None = None
) -> int | None:
    """The first promised offset whose record a replica lacks; None when it has them all.

    Args:
        held: up to where each replica is known to have them.
        end_offset: how far to look, exclusive; None for all that was committed.
    """
    who = (replica.broker_id,)
    offset = max(held[who], replica.log_start_offset)  # what retention removed is gone by right
    if end_offset is None:
        end_offset = history.committed_end_offset
    while offset < end_offset:
        promised = history.promised(offset)
        if promised is not None and replica.at(offset) != promised:
            break
        offset += 1
    held[who] = offset
    return offset if offset < end_offset else None
