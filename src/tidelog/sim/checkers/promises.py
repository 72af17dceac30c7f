"""AckedRecordsSurvive, DeliveredStaysDeliverable: what a producer was told is kept, and what a consumer was given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.metadata.image import PartitionImage
from tidelog.sim.checkers.growth import Changes, Compared
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.in_sync import first_missing, is_excused
from tidelog.sim.checkers.views import Broken, PartitionView, Record, ReplicaView, text_of


class AckedRecordsSurvive:
    """What a leader committed, and so acknowledged with acks=all, is where it was, at whoever leads.

    A record that was only written, as acks=1 asks, is promised to nobody.
    """

    name = "AckedRecordsSurvive"

    def __init__(self) -> None:
        self._noted = Compared()
        self._held = Compared()
        self._renewed = (0, 0)  # after how many promises had ended, and up to which offset

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        """Note what leaders have committed by now, for the checkers that come after this one as well."""
        self._noted.forget(changes, history)
        for replica in view.replicas.values():
            if replica.leads and replica.leader_epoch is not None:
                who = (replica.broker_id,)
                for offset in range(max(self._noted[who], replica.log_start_offset), replica.high_watermark):
                    record = replica.at(offset)
                    if record is None:
                        yield Broken(self.name, f"{replica.called} committed offset={offset} and has no record there")
                        break
                    other = history.on_committed(replica.leader_epoch, offset, record)
                    if other is not None:
                        what = f"{replica.called} committed {text_of(record)} at offset={offset}"
                        yield Broken(self.name, f"{what}, where {text_of(other)} was")
                self._noted[who] = max(self._noted[who], replica.high_watermark)
        leader = None if view.state.leader is None else view.replicas.get(view.state.leader)
        if leader is not None:
            self._renew(view.state, leader, history)
        self._held.forget(changes, history)
        if leader is None or is_excused(leader, history):
            return
        missing = first_missing(leader, history, self._held)
        if missing is not None:
            what = f"{text_of(history.promised(missing))} offset={missing}"
            yield Broken(self.name, f"{what} is missing from leader {leader.called}")

    def _renew(self, state: PartitionImage, leader: ReplicaView, history: PartitionHistory) -> None:
        """What is left of earlier promises is promised anew by the leader of today, once enough in sync hold it."""
        if not history.ended or not leader.leads or leader.leader_epoch != state.leader_epoch:
            return
        ended, end_offset = self._renewed
        if not history.is_enough(state):
            return
        begin = max(leader.log_start_offset, end_offset if ended == history.ended else 0)
        for offset in range(begin, leader.high_watermark):
            record = leader.at(offset)
            if record is not None:
                history.on_held(offset, record)
        self._renewed = (history.ended, max(begin, leader.high_watermark))


class DeliveredStaysDeliverable:
    """What a consumer can be given is committed, and stays where it was at whoever leads, as long as it is promised.

    All below the high watermark of a replica that serves consumers counts as given. The high watermark itself may go
    back: a new leader begins with what it knows of it. What is promised no more may be given as well, if the leader of
    that epoch has it: else no change of epoch would tell the consumer that it is gone.
    """

    name = "DeliveredStaysDeliverable"

    def __init__(self) -> None:
        self._shown = Compared()
        self._held = Compared()
        self._shown_end_offset = 0

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        self._shown.forget(changes, history)
        for replica in view.replicas.values():
            if not replica.serves_consumers or not history.is_bound(replica.leader_epoch):
                continue
            yield from self._check_shown(view, replica, history)
        self._held.forget(changes, history)
        leader = None if view.state.leader is None else view.replicas.get(view.state.leader)
        if leader is None or is_excused(leader, history):
            return
        missing = first_missing(leader, history, self._held, self._shown_end_offset)
        if missing is not None:
            what = f"{text_of(history.promised(missing))} offset={missing} was given to consumers"
            yield Broken(self.name, f"{what}, and is missing from leader {leader.called}")

    def _check_shown(self, view: PartitionView, replica: ReplicaView, history: PartitionHistory) -> Iterator[Broken]:
        who = (replica.broker_id,)
        offset = max(self._shown[who], replica.log_start_offset)
        while offset < replica.high_watermark:
            shown, what = replica.at(offset), ""
            if not history.was_committed(offset, shown):
                what = "which is not committed"
            elif shown != history.promised(offset) and not replica.leads:
                leader = _leader_of(view, replica.leader_epoch)
                if leader is None and replica.leader_epoch == view.state.leader_epoch:
                    break  # it will be seen when that leader knows that it is one
                if leader is not None and leader.at(offset) != shown and offset >= leader.log_start_offset:
                    what = f"which {leader.called} does not have, the leader of epoch {replica.leader_epoch}"
            if what:
                yield Broken(self.name, f"{replica.called} shows {text_of(shown)} at offset={offset}, {what}")
                break
            offset += 1
        self._shown[who] = offset
        self._shown_end_offset = max(self._shown_end_offset, offset)


def what_is_wrong_with_acknowledged(
    history: PartitionHistory,
    offset: int,
    value: Hashable,
    replicas: Callable[[], Iterable[ReplicaView]],
    lost: Callable[[], Iterable[tuple[BrokerId, Record]]] = tuple,
) -> str | None:
    """A producer with acks=all was told that its record is committed: what is wrong with that, if anything is.

    A leader that ended in the very step in which it acknowledged, or that was no replica any more and had not heard of
    it, nobody has seen; it promised all the same.

    Args:
        replicas: as they are now.
        lost: who had a record at that offset and lost it with its power, if none of them has it.
    """
    known = history.committed.get(offset)
    if known is None:
        for replica in replicas():
            record = replica.at(offset)
            if record is not None and record[1] == value:
                history.on_committed(record[0], offset, record)
                break
        else:
            for broker, gone in lost():
                if gone[1] == value:
                    history.on_committed_and_lost(broker, offset, gone)
                    break
        known = history.committed.get(offset)
    has = "nothing" if known is None else known.record[1]
    if has == value or history.was_said_committed(offset, value):  # whatever excuses its loss
        return None
    return f"{_text(value)} was acknowledged at offset={offset}, where {_text(has)} is committed"


def _text(value: Hashable) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _leader_of(view: PartitionView, leader_epoch: LeaderEpoch | None) -> ReplicaView | None:
    for replica in view.replicas.values():
        if replica.leads and replica.leader_epoch == leader_epoch:
            return replica
    return None
