"""From what the checkpoint says of losses to which rows of a table go. Pure.

    records     0 1 2 3 4 5 6 7 8 |      read, and in the table
    the log     0 1 2 3 4 u v w x y      truncated at 5, and written anew under a newer leader epoch
    withdrawn             5 6 7 8        what came from these
    read                  u v w x y

Truncation withdraws: those records are not in the log's history any more. Retention does not: they were, and what came
from them stays true. Neither does the deletion of a topic, unless it is wanted: an operator decided about the records,
and not about what came from them; the table may be the last to hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.spark.offsets import Loss, ReadPosition, StreamOffset

STARTED, TRUNCATED, RETENTION, RECREATED, MISSING = "started", "truncated", "retention", "recreated", "missing"
REPLACED = "replaced"


class Event(NamedTuple):
    """Where reading a partition began, or why and where it did not go on as it was. A row of the truncations table.

    Attributes:
        cause: `started`, one of the causes of `Loss`, or `replaced` (another query's rows were).
        from_offset: the first offset that is gone; None if it cannot be told, or nothing is.
        to_offset: exclusive; where what is gone ends. For `truncated` and deleted topics the reader stood there.
        read_from: where reading goes on, or starts; None if the partition is no more.
        lost_leader_epochs: those of the records that are gone, as far as known.
        leader_epoch: of the last record of the batch that goes on.
    """

    cause: str
    topic: str | None
    topic_id: str | None
    partition: int | None
    from_offset: int | None = None
    to_offset: int | None = None
    read_from: int | None = None
    lost_leader_epochs: tuple[int, ...] = ()
    leader_epoch: int | None = None


class Withdrawal(NamedTuple):
    """Which rows go: those for which all that is given holds. None stands for any."""

    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    query_id: str | None = None

    def may_be_in(self, low: Mapping[str, object], high: Mapping[str, object]) -> bool:
        """Whether a file may hold such rows, given the least and the greatest value of its columns, as far as known."""
        wanted = {"topic": self.topic, "topicId": self.topic_id, "partition": self.partition, "queryId": self.query_id}
        for column, value in wanted.items():
            least, greatest = low.get(column), high.get(column)
            if value is None or least is None or greatest is None:
                continue
            if not least <= value <= greatest:  # type: ignore[operator]
                return False
        greatest = high.get("offset")
        return self.from_offset is None or greatest is None or greatest >= self.from_offset  # type: ignore[operator]


def events_of(end: StreamOffset) -> list[Event]:
    """What the end of a batch says of beginnings and losses."""
    events = []
    for key, loss in sorted(end.losses.items()):
        begin = end.begin.get(key)
        read_from = None if begin is None or loss.cause == RECREATED else begin.offset
        event = Event(loss.cause, key.topic, loss.topic_id, int(key.partition), read_from=read_from)
        if loss.cause == RETENTION:
            removed_to = loss.resume_offset if loss.resume_offset is not None else read_from
            event = event._replace(from_offset=loss.position.offset, to_offset=removed_to)
            if loss.in_replay:  # the batch before went on there itself
                event = event._replace(read_from=removed_to)
        else:
            event = event._replace(to_offset=loss.position.offset)
        if loss.cause == TRUNCATED:
            event = event._replace(
                from_offset=_first_lost(loss, begin),
                lost_leader_epochs=lost_epochs(loss.position, _first_lost(loss, begin)),
                leader_epoch=end.positions[key].leader_epoch if key in end.positions else None,
            )
        events.append(event)
    for key, begin in sorted(end.begin.items()):
        if key not in end.losses or end.losses[key].cause in (RECREATED, MISSING):
            topic_id = end.topic_ids.get(key.topic)
            events.append(Event(STARTED, key.topic, topic_id, int(key.partition), read_from=begin.offset))
    return events


def _first_lost(loss: Loss, begin: ReadPosition | None) -> int | None:
    """All from here on is gone, or is read again: what stays in the table lies below."""
    known = [offset for offset in (loss.resume_offset, None if begin is None else begin.offset) if offset is not None]
    return min(known, default=None)


def lost_epochs(position: ReadPosition, from_offset: int | None) -> tuple[int, ...]:
    """The leader epochs of the records in [from_offset, position.offset), as far as the position remembers them."""
    if position.leader_epoch is None or position.unread:
        return ()
    lineage = position.lineage or ((position.leader_epoch, Offset(0)),)
    ends = [*(start for _, start in lineage[1:]), position.offset]
    spans: Iterable[tuple[tuple[LeaderEpoch, Offset], Offset]] = zip(lineage, ends, strict=True)
    return tuple(int(epoch) for (epoch, _), end in spans if end > (from_offset or 0))


def withdrawal_of(event: Event, *, with_deleted_topics: bool) -> Withdrawal | None:
    """Which rows an event takes out of the table; None if it takes none.

    Args:
        event: the event.
        with_deleted_topics: a topic that was deleted, or deleted and created anew, takes its rows with it.
    """
    of_partition = Withdrawal(
        topic=event.topic if event.topic_id is None else None, topic_id=event.topic_id, partition=event.partition
    )
    if event.cause == TRUNCATED:
        invariant(event.from_offset is not None, "a truncation of {} that begins nowhere", event.topic)
        return of_partition._replace(from_offset=event.from_offset)
    if event.cause == STARTED and event.topic_id is not None:
        # Of a topic that was missing for a while there are rows of what is read again.
        return of_partition._replace(from_offset=event.read_from)
    if event.cause in (RECREATED, MISSING) and with_deleted_topics:
        return of_partition
    return None
