"""Which brokers the active controller hears of: what it knows of them beyond the metadata, for as long as it is active.

Nothing of this is in the log. A controller that becomes active grants everybody a full session, for it cannot know when
its predecessor heard of whom.

Kafka: `BrokerHeartbeatManager`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.metadata.image import MetadataView

SESSION_TIMEOUT_MS = 9_000
"""Kafka's `broker.session.timeout.ms`."""
REPLACED_MAX = 16
"""Incarnations of a broker that are remembered: a request of one that is no more comes late by seconds."""


@dataclass(slots=True)
class _Session:
    """One incarnation of a broker.

    Attributes:
        last_contact_ms: when it registered, or its last heartbeat came.
        turn: of all that was heard in this leadership the how-manieth that was; 0 if nothing of it was heard yet.
        metadata_offset: inclusive: how far its image was then; None while it has not said.
    """

    broker_epoch: BrokerEpoch
    last_contact_ms: int
    turn: int = 0
    metadata_offset: Offset | None = None


class BrokerSessions:
    """The sessions of one leadership of the controller. Times are monotonic.

    Attributes:
        began_ms: when this leadership began, or this controller woke up.
    """

    def __init__(
        self,
        metadata: MetadataView,
        *,
        end_offset: Offset,
        now_ms: int,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        """Sessions of all that are registered, from now on.

        Args:
            metadata: the journal's, as it became active.
            end_offset: exclusive, of the metadata log then.
            session_timeout_ms: `broker.session.timeout.ms`: who is not heard of for so long is to be fenced.
        """
        self.session_timeout_ms = session_timeout_ms
        self.began_ms = now_ms
        self._turns = 0
        self._end_offset = end_offset
        self._sessions = {
            broker.broker_id: _Session(broker.broker_epoch, now_ms)
            for broker in metadata.brokers.values()
            if not broker.is_fenced
        }
        self._moved: dict[BrokerId, Offset] = {}
        self._replaced: dict[BrokerId, deque[UUID]] = {}
        self._leaving: dict[BrokerId, tuple[BrokerEpoch, int]] = {}

    # What happened.

    def on_contact(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, metadata_offset: Offset | None, now_ms: int
    ) -> None:
        """The registered incarnation of a broker registered, or sent a heartbeat: its session begins again.

        Args:
            metadata_offset: inclusive: how far its image is; None if it does not know of any.
        """
        before = self._sessions.get(broker_id)
        self._turns += 1
        if before is not None and before.broker_epoch == broker_epoch:
            before.last_contact_ms, before.turn = max(before.last_contact_ms, now_ms), self._turns
            if metadata_offset is not None:
                before.metadata_offset = max(metadata_offset, before.metadata_offset or metadata_offset)
            return
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, self._turns, metadata_offset)
        self._moved.pop(broker_id, None)

    def on_leaderships_moved(self, broker_id: BrokerId, end_offset: Offset) -> None:
        """What a broker that shuts down led goes to others, by records below `end_offset`."""
        self._moved[broker_id] = end_offset

    def on_leaving(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """A portion was done of what comes before an incarnation is registered no longer; the next is on its way."""
        self._leaving[broker_id] = broker_epoch, now_ms + self.session_timeout_ms

    def on_ended(self, broker_id: BrokerId) -> None:
        """A broker stopped, as it said it would, or was unregistered: there is nothing to wait for."""
        self._sessions.pop(broker_id, None)
        self._moved.pop(broker_id, None)
        self._leaving.pop(broker_id, None)

    def on_replaced(self, broker_id: BrokerId, incarnation_id: UUID) -> None:
        """Another incarnation took the place of this one, which is no more."""
        self._replaced.setdefault(broker_id, deque(maxlen=REPLACED_MAX)).append(incarnation_id)

    # What is the case.

    def was_replaced(self, broker_id: BrokerId, incarnation_id: UUID) -> bool:
        """Whether another incarnation took the place of this one, as far as this leadership remembers.

        A request that an earlier controller was sent is none of ours.
        """
        return incarnation_id in self._replaced.get(broker_id, ())

    def is_alive(self, broker_id: BrokerId, now_ms: int) -> bool:
        """Whether the registered incarnation was heard of within its session."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.last_contact_ms + self.session_timeout_ms

    def is_leaving(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> bool:
        """Whether an incarnation is about to be registered no longer: what was taken from it is not to be given back.

        Whoever asked for that may have gone away midway, so this passes when nothing was done for a session.
        """
        leaving_epoch, until_ms = self._leaving.get(broker_id, (None, now_ms))
        return leaving_epoch == broker_epoch and now_ms < until_ms

    def turn(self, broker_id: BrokerId) -> int:
        """Grows each time that a broker is heard of; 0 before the first time."""
        session = self._sessions.get(broker_id)
        return 0 if session is None else session.turn

    def expired(self, now_ms: int) -> tuple[tuple[BrokerId, BrokerEpoch], ...]:
        """Who was not heard of for a whole session, in which incarnation; each until it is heard of or `on_ended`."""
        return tuple(
            (broker_id, session.broker_epoch)
            for broker_id, session in self._sessions.items()
            if now_ms >= session.last_contact_ms + self.session_timeout_ms
        )

    def next_deadline_ms(self) -> int | None:
        """When the next session ends, unless its broker is heard of; None without any."""
        last_contact_ms = min((session.last_contact_ms for session in self._sessions.values()), default=None)
        return None if last_contact_ms is None else last_contact_ms + self.session_timeout_ms

    def know_of_move(self, broker_id: BrokerId, brokers: Iterable[BrokerId]) -> bool:
        """Whether all of `brokers` have seen where the leaderships of a broker that shuts down went.

        After a failover nobody knows at which offset that was; it was below where this controller began.
        """
        end_offset = self._moved.get(broker_id, self._end_offset)
        for other in brokers:
            session = self._sessions.get(other)
            if session is None or session.metadata_offset is None or session.metadata_offset + 1 < end_offset:
                return False
        return True
