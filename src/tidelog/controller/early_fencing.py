"""A broker whose process is gone is fenced before its session ends: what has to be so, and what follows.

```
 its connection closed ──► its port is asked ──► refused ──► no doubt is left ──► others lead at once
                             ▲      │ else           │ else
                             └──────┴────────────────┘ again, until it is heard of, or its session ends
```
A closed connection proves nothing: the way may be broken, or the connection was idle. Neither does silence. That the
machine is there and nobody listens on the port does; what remains to be asked is whether it is we who are mistaken.

To fence has a price where it is a mistake: for a moment fewer are in sync. So nobody is elected uncleanly by it, and
what nobody else can lead stays with the broker until its session ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.controller.leaders import can_all_do_without, changes_on_shutdown
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.pending_changes import after, pending_changes
from tidelog.controller.sessions import BrokerSessions
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.brokers import FENCED, BrokerRegistrationChangeRecord

LOOKS_PER_HELD = 10
"""Partitions that a portion may look into, for each that it may change: some microseconds each."""
BROKERS_PER_SUSPECT = 3
"""Of so many brokers one may be suspected at a time, and one in any case."""


class Doubt(StrEnum):
    """Why a broker that is suspected is not fenced."""

    ANOTHER = "another incarnation of it is registered"
    FENCED = "it is fenced already"
    SEEN_SINCE = "it was heard of since"
    MISTAKEN_BEFORE = "this incarnation was taken for dead before, and was not"
    TOO_NEW = "this controller has not heard of every other broker yet, nor was it active for a session"
    TOO_MANY = "so many brokers are suspected at once that it may be this controller's own fault"
    NO_OTHER = "nobody else could lead what it leads"

    @property
    def may_pass(self) -> bool:
        """Whether the suspicion is to be looked at again."""
        return self in (Doubt.TOO_NEW, Doubt.TOO_MANY)


@dataclass(slots=True)
class Suspect:
    """An incarnation of a broker whose connection closed.

    Attributes:
        closed_ms: when that was.
        turn: of `BrokerSessions`, then.
        is_resolved: whether what could be done about it was.
        scan: how far that is: whether all can do without it is looked at first, in a pass that is told what changes
            behind it; and where they cannot, what can be moved.
        held: in how many partitions it is in sync that were looked at; None once it is known to be needed in one.
        moved: how many partitions were moved.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    closed_ms: int
    turn: int
    is_resolved: bool = False
    scan: PartitionScan = field(default_factory=PartitionScan)
    held: int | None = 0
    moved: int = 0


@dataclass(frozen=True, slots=True)
class EarlyFence:
    """What became of a suspicion.

    Attributes:
        doubt: why nothing was done; None if something was.
        moved: partitions that it leads no longer, or that are in sync without it, so far.
        is_fenced: whether that is all of them; those beyond the first portion follow.
        has_more: what can be moved was not moved all: it is to be asked again, without asking at the port.
    """

    doubt: Doubt | None
    moved: int = 0
    is_fenced: bool = False
    has_more: bool = False


class Suspicions:
    """Who is suspected, in one leadership of the controller.

    Args:
        sessions: of that leadership.
    """

    def __init__(self, sessions: BrokerSessions) -> None:
        self._sessions = sessions
        self._suspects: dict[BrokerId, Suspect] = {}

    def on_closed(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> Suspect | None:
        """A connection closed on which that incarnation of a broker was heard of last.

        Returns:
            Who is to be asked whether it is there; None where it would not help.
        """
        before = self._suspects.get(broker_id)
        if before is not None and before.is_resolved and before.broker_epoch == broker_epoch:
            return None  # it lives: what refuses stands in between
        suspect = Suspect(broker_id, broker_epoch, now_ms, self._sessions.turn(broker_id))
        self._suspects[broker_id] = suspect
        return suspect

    def doubt(self, suspect: Suspect, metadata: MetadataView, now_ms: int) -> Doubt | None:
        """Why a broker whose port refuses is not taken for dead; None if it is."""
        broker = metadata.brokers.get(suspect.broker_id)
        if broker is None or broker.broker_epoch != suspect.broker_epoch:
            return Doubt.ANOTHER
        if broker.is_fenced:
            return Doubt.FENCED
        if self._has_contact_since(suspect):
            return Doubt.SEEN_SINCE
        if self._suspects.get(suspect.broker_id) is not suspect or suspect.is_resolved:
            return Doubt.MISTAKEN_BEFORE
        others = [each for each in metadata.brokers.values() if each.broker_id != suspect.broker_id]
        is_new = now_ms < self._sessions.began_ms + self._sessions.session_timeout_ms
        if is_new and any(not each.is_fenced and not self._sessions.turn(each.broker_id) for each in others):
            return Doubt.TOO_NEW
        at_once = [one.broker_id for one in self._suspects.values() if self._is_recent(one, now_ms)]
        alive = sum(not each.is_fenced or each.broker_id in at_once for each in metadata.brokers.values())
        if len(at_once) > max(alive // BROKERS_PER_SUSPECT, 1):
            return Doubt.TOO_MANY
        return None

    def _has_contact_since(self, suspect: Suspect) -> bool:
        return self._sessions.turn(suspect.broker_id) != suspect.turn

    def _is_recent(self, suspect: Suspect, now_ms: int) -> bool:
        """Whether it is one of those that are gone at once."""
        is_recent = now_ms < suspect.closed_ms + self._sessions.session_timeout_ms
        return is_recent and not self._has_contact_since(suspect)


def decide_fence_early(
    metadata: MetadataView, settings: ControllerSettings, suspicions: Suspicions, suspect: Suspect, *, now_ms: int
) -> Decision[EarlyFence]:
    """Let others lead what a broker leads whose port has just refused a connection, and leave it out of every ISR.

    It is fenced if that goes for all partitions. If it does not, the rest stays with it until its session ends.
    """
    doubt = suspicions.doubt(suspect, metadata, now_ms)
    if doubt is not None:
        return Decision((), EarlyFence(doubt, suspect.moved))
    if suspect.held is not None:
        if suspect.scan.has_brokers_changed:
            suspect.scan.begin(metadata)  # who can do without it is another question now
            suspect.held = 0
        _look_for_need(metadata, settings, suspect)
    if suspect.held is None:
        return _move_some(metadata, settings, suspect)
    if not suspect.scan.is_done:
        return Decision((), EarlyFence(None, has_more=True))
    suspect.is_resolved = True
    fence = BrokerRegistrationChangeRecord(
        broker_id=suspect.broker_id, broker_epoch=suspect.broker_epoch, fenced=FENCED
    )
    changes = pending_changes(after(metadata, fence), settings)
    return Decision((fence, *changes), EarlyFence(None, suspect.held, is_fenced=True))


def _look_for_need(metadata: MetadataView, settings: ControllerSettings, suspect: Suspect) -> None:
    """A portion of the partitions: whether each has a leader without it. The first that has not decides."""
    looks_max = settings.partition_changes_max * LOOKS_PER_HELD
    partitions = suspect.scan.portion(metadata, settings.partition_changes_max)
    can_do = can_all_do_without(metadata, suspect.broker_id, TopicRules(metadata, settings), partitions)
    for is_possible in islice(can_do, looks_max):
        if not is_possible:
            suspect.held = None
            suspect.scan = PartitionScan(metadata)
            return
        assert suspect.held is not None
        suspect.held += 1


def _move_some(metadata: MetadataView, settings: ControllerSettings, suspect: Suspect) -> Decision[EarlyFence]:
    count_max = settings.partition_changes_max
    partitions = suspect.scan.portion(metadata, count_max)
    moves = changes_on_shutdown(metadata, suspect.broker_id, TopicRules(metadata, settings), partitions)
    portion = tuple(islice(moves, count_max))
    suspect.moved += len(portion)
    suspect.is_resolved = suspect.scan.is_done
    doubt = Doubt.NO_OTHER if suspect.is_resolved and not suspect.moved else None
    return Decision(portion, EarlyFence(doubt, suspect.moved, has_more=not suspect.is_resolved))
