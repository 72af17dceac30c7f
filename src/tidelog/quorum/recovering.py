"""How a voter that lost its log, or what it voted, becomes one again: by what others commit without it.

It may have voted for a candidate, in an epoch that it does not remember; and what it had may have been counted. So it
neither votes nor stands, and nothing that it fetches is counted: it asks for no record beyond what is committed.

```
 it asks      the leader's log ends        others commit          it has that
    ├────────────────┼───────────────────────────┼─────────────────────┤
  a probe          barrier          a record beyond the barrier    a voter again
```
That record was written after the loss, and a majority without this voter has it. So all of that majority were in the
leader's epoch after the loss: nobody had been elected in a newer one. Whoever still asks for votes, with one of this
voter that it forgot, lacks the record, and gets no other vote of that majority. And the leader's log has whatever was
committed before with what this voter had.
"""

from __future__ import annotations

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.quorum.log import QuorumLog
from tidelog.records.lineage import EpochEntry

PROBE_OFFSET = Offset(1 << 62)
"""A fetch from there always diverges: it is told how the leader's log ends, and counts for nothing (any release)."""


class Recovering:
    """What such a voter knows of the leader that it follows. Another leader, or epoch, begins anew.

    Attributes:
        barrier: where the leader's log ended when it was asked first; None until it has answered.
        committed: the leader's high watermark, as it told last; 0 if it told none.
        wants_record: whether the leader has written nothing since; it is asked once more, and that makes it write.
    """

    __slots__ = ("barrier", "committed", "wants_record")

    def __init__(self) -> None:
        self.barrier: Offset | None = None
        self.committed = Offset(0)
        self.wants_record = False

    def next_fetch(self, log: QuorumLog, leader_epoch: LeaderEpoch) -> tuple[Offset, LeaderEpoch]:
        """From where to fetch, and the epoch to name as that of the last record."""
        if self.barrier is None or self.wants_record:
            return PROBE_OFFSET, leader_epoch
        if log.log_end_offset <= self.committed:
            return log.log_end_offset, log.last_leader_epoch
        return PROBE_OFFSET, log.last_leader_epoch

    def is_done(self, log: QuorumLog, leader_high_watermark: Offset | None) -> bool:
        """Whether a record that was written after we asked is committed, and on our disk.

        Args:
            leader_high_watermark: as it was told to a fetch from the end of our log.
        """
        if self.barrier is None or leader_high_watermark is None:
            return False
        return min(leader_high_watermark, log.synced_end_offset) > self.barrier

    # What happened.

    def on_probed(self, ends: EpochEntry | None, high_watermark: Offset | None, leader_epoch: LeaderEpoch) -> None:
        """The leader said where its log ends, or an older epoch in it, or that it knows nothing so old."""
        self.wants_record = False
        if self.barrier is None and ends is not None and ends.leader_epoch == leader_epoch:
            self.barrier = ends.start_offset
        self.on_high_watermark(high_watermark)

    def on_high_watermark(self, high_watermark: Offset | None) -> None:
        self.committed = max(self.committed, high_watermark or Offset(0))

    def on_nothing_new(self, log: QuorumLog) -> None:
        """The leader had no record to give."""
        self.wants_record = self.barrier is not None and log.log_end_offset <= self.barrier

    def clone(self) -> Recovering:
        copy = Recovering()
        copy.barrier, copy.committed, copy.wants_record = self.barrier, self.committed, self.wants_record
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        return self.barrier, self.committed, self.wants_record
