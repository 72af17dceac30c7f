"""Which brokers have fetched nothing at all from here for a session, though they did before.

A partition to which nothing is written does not show it: in a fetch session nobody names it. What is written there next
need not wait for a session of its own to find out that nobody will come for it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.ids import BrokerId
from tidelog.base.ports import Clock
from tidelog.server.replication.deadlines import Due

OnSilence = Callable[[BrokerId, bool], None]
"""Told of a broker, and whether it is silent now."""


class SilentFollowers:
    """See the module. Costs two look-ups for each fetch, and a deadline for each session.

    Args:
        silence_ms_max: `broker.session.timeout.ms`.
    """

    def __init__(
        self, clock: Clock, silence_ms_max: int, due_at: Callable[[Due, int], None], on_changed: OnSilence
    ) -> None:
        self._clock = clock
        self._silence_ms_max = silence_ms_max
        self._due_at = due_at
        self._on_changed = on_changed
        self._last_contact_ms: dict[BrokerId, int] = {}
        self._silent: set[BrokerId] = set()
        self._is_due = False

    def on_fetch(self, broker_id: BrokerId, wait_ms_max: int) -> None:
        """A broker fetches; while its fetch waits for records it cannot send another."""
        now_ms = self._clock.now_ms()
        self._last_contact_ms[broker_id] = now_ms + max(wait_ms_max, 0)
        if broker_id in self._silent:
            self._silent.discard(broker_id)
            self._on_changed(broker_id, False)
        if not self._is_due:
            self._reschedule_deadline()

    def on_due(self, now_ms: int) -> None:
        """A follower may be silent by now: look at all of them."""
        self._is_due = False
        for broker_id, last_contact_ms in list(self._last_contact_ms.items()):
            if broker_id not in self._silent and now_ms > last_contact_ms + self._silence_ms_max:
                self._silent.add(broker_id)
                self._on_changed(broker_id, True)
        self._reschedule_deadline()

    def _reschedule_deadline(self) -> None:
        fetching = [
            last_contact_ms
            for broker_id, last_contact_ms in self._last_contact_ms.items()
            if broker_id not in self._silent
        ]
        if fetching:
            self._is_due = True
            self._due_at(self, min(fetching) + self._silence_ms_max + 1)
