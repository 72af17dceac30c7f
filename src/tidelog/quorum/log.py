"""What a node of the quorum knows of its own log: where it starts and ends, what of it is on disk, who wrote what.

Kafka: `ReplicatedLog`.
"""

from __future__ import annotations

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.quorum.values import SnapshotId
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage

NO_EPOCH = LeaderEpoch(0)
"""Of the last record of a log that has none."""


class QuorumLog:
    """The metadata log, as its node sees it.

    ```
     log start          synced end          log end
         ├──────────────────┼──────────────────┤
    snapshot│ a loss of power│ leaves out what │ lies between
    ```

    Attributes:
        log_end_offset: exclusive; of all that was written.
        synced_end_offset: exclusive; what a loss of power leaves.
        lineage: the log's own, which changes as the log does. Only read here.
        snapshot: the latest. There is one wherever the log does not start at 0.
    """

    __slots__ = ("lineage", "log_end_offset", "log_start_offset", "snapshot", "synced_end_offset")

    def __init__(
        self,
        log_start_offset: Offset,
        log_end_offset: Offset,
        lineage: LeaderEpochLineage,
        snapshot: SnapshotId | None = None,
    ) -> None:
        """A log that was opened: all of it is on disk."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.synced_end_offset = log_end_offset
        self.lineage = lineage
        self.snapshot = snapshot

    # What is the case.

    @property
    def last_leader_epoch(self) -> LeaderEpoch:
        """Of the last record, or of the snapshot in whose place there are none.

        An epoch that this node was to open, and has no record of, does not count: to cut the log at its end would not
        change it, and its leader would ask for that for ever.
        """
        for entry in reversed(self.lineage.entries):
            if entry.start_offset < self.log_end_offset:
                return entry.leader_epoch
        return NO_EPOCH if self.snapshot is None else self.snapshot.leader_epoch

    @property
    def is_synced(self) -> bool:
        return self.synced_end_offset == self.log_end_offset

    def has_no_more_than(self, last_leader_epoch: LeaderEpoch, log_end_offset: Offset) -> bool:
        """Whether a log with that end is as up to date as this one: who wrote last counts, then how much."""
        return (last_leader_epoch, log_end_offset) >= (self.last_leader_epoch, self.log_end_offset)

    def correction_of(self, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> EpochEntry | SnapshotId | None:
        """What a log that ends like this has to do before it is a prefix of ours; None if it is one.

        Returns:
            Our largest epoch up to the last that it has, and its exclusive end, to truncate to; or the snapshot that
            it has to load, for we keep no records so old that they could tell.
        """
        if fetch_offset == self.log_start_offset == 0:
            return None
        first = self.lineage.entries[0]
        is_out_of_sight = self.log_start_offset > 0 and last_fetched_epoch < first.leader_epoch
        if fetch_offset < self.log_start_offset or is_out_of_sight:
            invariant(self.snapshot is not None, "the metadata log starts at {}, no snapshot", self.log_start_offset)
            last = SnapshotId(fetch_offset, last_fetched_epoch)
            return None if last == self.snapshot else self.snapshot
        end = self.lineage.end_offset_for(last_fetched_epoch, self.log_end_offset)
        if end is None:
            return EpochEntry(self.last_leader_epoch, self.log_end_offset)
        return EpochEntry(*end) if end[0] != last_fetched_epoch or end[1] < fetch_offset else None

    def truncation_point(self, diverging: EpochEntry) -> Offset:
        """Where to truncate this log, given where the leader says that an epoch of ours, or the one before, ends."""
        end = self.lineage.end_offset_for(diverging.leader_epoch, self.log_end_offset)
        own_end = self.log_end_offset if end is None else end[1]
        return min(own_end, diverging.start_offset)

    def continues(self, snapshot: SnapshotId) -> bool:
        """Whether this log, as it was found beside a snapshot, goes on from it.

        A node that loads a snapshot keeps its old log until the snapshot is on disk. A crash in between leaves both.
        The old log may reach as far, with records that were never committed: the leader epoch at the snapshot's end
        tells. A log that does not go on from the snapshot is to start anew at its end.

        The log start comes to the disk after the lineage that begins there, and a crash in between leaves the lineage
        to tell of it.
        """
        entries = self.lineage.entries
        log_start_offset = max(self.log_start_offset, entries[0].start_offset) if entries else self.log_start_offset
        if log_start_offset < snapshot.end_offset <= self.log_end_offset:
            return self.lineage.epoch_at(Offset(snapshot.end_offset - 1)) == snapshot.leader_epoch
        if self.log_end_offset == snapshot.end_offset:  # nothing is in it; the old lineage may be
            return self.lineage.latest_leader_epoch == snapshot.leader_epoch
        return self.log_end_offset > snapshot.end_offset

    # What happened.

    def on_appended(self, log_end_offset: Offset) -> None:
        invariant(
            log_end_offset >= self.log_end_offset,
            "the metadata log ended at {}, and ends at {} by an append",
            self.log_end_offset,
            log_end_offset,
        )
        self.log_end_offset = log_end_offset

    def on_synced(self, end_offset: Offset) -> None:
        self.synced_end_offset = max(self.synced_end_offset, min(end_offset, self.log_end_offset))

    def on_truncated(self, log_end_offset: Offset) -> None:
        """What is left outlasts a loss of power, and so does the truncation."""
        invariant(self.log_start_offset <= log_end_offset <= self.log_end_offset, "truncated to {}", log_end_offset)
        self.log_end_offset = self.synced_end_offset = log_end_offset

    def on_snapshot_loaded(self, snapshot: SnapshotId) -> None:
        """The log starts anew at the end of the snapshot, and holds nothing."""
        self.snapshot = snapshot
        self.log_start_offset = self.log_end_offset = self.synced_end_offset = snapshot.end_offset

    def on_log_start_moved(self, log_start_offset: Offset, snapshot: SnapshotId | None) -> None:
        invariant(log_start_offset <= self.log_end_offset, "the log starts at {}, beyond its end", log_start_offset)
        self.log_start_offset, self.snapshot = log_start_offset, snapshot

    def clone(self, lineage: LeaderEpochLineage | None = None) -> QuorumLog:
        """An independent copy, with a copy of the lineage if none is given."""
        copy = QuorumLog(
            self.log_start_offset,
            self.log_end_offset,
            self.lineage.clone() if lineage is None else lineage,
            self.snapshot,
        )
        copy.synced_end_offset = self.synced_end_offset
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        ends = (self.log_start_offset, self.log_end_offset, self.synced_end_offset)
        return *ends, self.lineage.entries, self.snapshot
