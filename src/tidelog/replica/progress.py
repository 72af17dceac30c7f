"""How far one follower has come, as far as its accepted fetches in this leader epoch prove it.

Kafka: `Replica`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import BrokerEpoch, Offset
from tidelog.replica.values import AcceptedFetch


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of one follower; nothing, when its epoch begins.

    Attributes:
        caught_up_ms: when it last had all that had been written by then.
        end_offset: exclusive; None until it has fetched. Below the high watermark the last records may not be written.
        broker_epoch: the incarnation that fetched last; None where it does not say.
    """

    caught_up_ms: int
    end_offset: Offset | None = None
    broker_epoch: BrokerEpoch | None = None
    fetched_ms: int = 0
    log_end_offset_at_fetch: Offset | None = None

    def on_appended(self, log_end_offset: Offset, now_ms: int) -> None:
        """More is written behind `log_end_offset`: who had all up to there is caught up as of now.

        No fetch need say so: in a fetch session a follower does not name what has not changed.
        """
        if self.end_offset == log_end_offset:
            self.caught_up_ms = now_ms

    def on_fetch(self, fetch: AcceptedFetch, log_end_offset: Offset) -> None:
        """An accepted fetch: all below its offset is there.

        A follower that always reads what there was at its last fetch is caught up as of then, though it never reaches
        the end of a log that is being written to.
        """
        if fetch.fetch_offset >= log_end_offset:
            self.caught_up_ms = fetch.now_ms
        elif self.log_end_offset_at_fetch is not None and fetch.fetch_offset >= self.log_end_offset_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = fetch.fetch_offset
        self.broker_epoch = fetch.broker_epoch
        self.fetched_ms = fetch.now_ms
        self.log_end_offset_at_fetch = log_end_offset

    def is_overtaken(self, broker_epoch: BrokerEpoch | None, registered: BrokerEpoch | None) -> bool:
        """Whether a fetch at `broker_epoch` comes from an incarnation that a newer one has followed.

        Args:
            registered: the incarnation that the metadata knows of, which need not have fetched yet; None for none.
        """
        if broker_epoch is None:
            return False
        has_fetched_since = self.broker_epoch is not None and broker_epoch < self.broker_epoch
        return has_fetched_since or (registered is not None and broker_epoch < registered)

    def lags(self, log_end_offset: Offset, *, since_ms: int) -> bool:
        """Whether it is behind, and has been ever since before `since_ms`."""
        return self.end_offset != log_end_offset and self.caught_up_ms < since_ms

    def silent_since_ms(self, log_end_offset: Offset) -> int | None:
        """Since when there is something for it, and it has not fetched; None while it has all there is.

        In a fetch session a follower does not name what has not changed: its silence counts from the next append.
        """
        return None if self.end_offset == log_end_offset else max(self.fetched_ms, self.caught_up_ms)

    def clone(self) -> FollowerProgress:
        return FollowerProgress(
            self.caught_up_ms, self.end_offset, self.broker_epoch, self.fetched_ms, self.log_end_offset_at_fetch
        )
