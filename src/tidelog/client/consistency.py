"""Consistency contexts: metadata that never goes back in time, across clients and processes (KIP-1243).

A context says how far a cluster's metadata was when somebody saw it. Clients that share a store send the latest one
with their requests, and a broker that is not as far waits, or refuses with STALE_METADATA, which is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from tidelog.base.errors import Code, refusal
from tidelog.wire.frame import NO_TOKEN_YET, ConsistencyState


@dataclass(frozen=True, slots=True)
class ConsistencyContext:
    """How recent the metadata of one cluster is. Compare contexts of one cluster only.

    To carry one to another process, send `cluster_id` and `token`, and make a store of it there.
    """

    cluster_id: str | None
    token: int | None
    """The inclusive last offset of the cluster's metadata log; None if nothing is known yet."""

    @property
    def is_unknown(self) -> bool:
        return self.cluster_id is None or self.token is None

    def later(self, other: ConsistencyContext) -> ConsistencyContext:
        """The more recent of the two.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID if they are of different clusters.
        """
        if other.is_unknown:
            return self
        if self.is_unknown:
            return other
        if self.cluster_id != other.cluster_id:
            raise refusal(
                Code.INCONSISTENT_CLUSTER_ID,
                f"the cluster here is {other.cluster_id}, and this consistency context is of {self.cluster_id}:"
                " clients of different clusters cannot share one",
            )
        return other if (other.token or 0) > (self.token or 0) else self


class ConsistencyContextStore:
    """The latest context that any of the clients sharing the store has seen. Thread-safe.

    Args:
        context: where to start, for instance what another process saw; by default nothing is known.
    """

    def __init__(self, context: ConsistencyContext | None = None) -> None:
        self._context = context or ConsistencyContext(None, None)
        self._lock = Lock()

    def read(self) -> ConsistencyContext:
        """The latest context."""
        return self._context

    def store_latest(self, context: ConsistencyContext) -> bool:
        """Keep `context` if it is later than what is stored. Returns whether it was.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID if it is of another cluster.
        """
        with self._lock:
            later = self._context.later(context)
            changed = later is not self._context
            self._context = later
        return changed

    # What connections ask of it.
    def state(self) -> ConsistencyState:
        """What to put into request headers. "None yet" as well: a broker sends tokens only to who sends the tag."""
        context = self._context
        return NO_TOKEN_YET if context.is_unknown else ConsistencyState(context.cluster_id, context.token)

    def on_state(self, state: ConsistencyState) -> None:
        """What came in a response header."""
        known = self._context
        if state.token is None or state.cluster_id is None:
            return
        if known.cluster_id != state.cluster_id or known.token is None or state.token > known.token:
            self.store_latest(ConsistencyContext(state.cluster_id, state.token))
