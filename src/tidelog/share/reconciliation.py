"""What was kept of a partition, against the log of who leads it now: what a truncation took back is forgotten.

An acknowledgement names offsets, and an unclean election may give an offset to another record. A state that knows only
offsets would hide the new record from the group for ever. Ours knows the leader epoch of each record, and an epoch and
an offset name a record: what was kept of others than those that this log holds is forgotten, and told.

```
 kept       start=6@2            7@2 acknowledged         8@2 archived
 the log    1@0 … 5@1            6@3  7@3  8@3            the next leader, without the records of epoch 2
 from now   start=6              7 and 8 are available for the first time
```

Nothing in Kafka corresponds to this: `SharePartition` takes the state as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share.state import NO_LEADER_EPOCH, DeliveryState, ShareState, StateBatch
from tidelog.share.values import Bounds, ForgottenRecords


class Reconciled(NamedTuple):
    """A state that speaks of the records of this log alone.

    Attributes:
        state: as `kept`, where nothing was forgotten or has gone since. Its `start` is None if that of `kept` is. What
            was forgotten is in it as available, never delivered: written back, it takes the place of what was kept.
        forgotten: by offset. Of what lies before the start, only the last epoch is known.
    """

    state: ShareState
    forgotten: tuple[ForgottenRecords, ...]


def reconciled(kept: ShareState, lineage: LeaderEpochLineage, bounds: Bounds) -> Reconciled:
    """What of a state is true of a log.

    The start goes back to where the two logs part, as far as the epoch of the record before it tells: see
    `LeaderEpochLineage.end_offset_for`. That is one question, as a consumer asks it (KIP-320), and not one for each
    epoch (KIP-279): of the older epochs of that log nothing is kept. Where each log has an epoch that the other lacks,
    the start may lie behind the point at which they part.

    What was written by who did not know of epochs (`NO_LEADER_EPOCH`) is believed, up to the log end.
    """
    if kept.start is None:
        return Reconciled(kept, ())
    reconciliation = Reconciliation(lineage, bounds)
    start = reconciliation.start(kept.start, kept.start_leader_epoch)
    for batch in kept.batches:
        reconciliation.keep(batch, start)
    state = ShareState(kept.state_epoch, start, epoch_before(lineage, start), tuple(reconciliation.kept))
    return Reconciled(state, tuple(reconciliation.forgotten))


class Reconciliation:
    """One, while it is made.

    Attributes:
        kept: what is true of the log.
        forgotten: what is not.
    """

    def __init__(self, lineage: LeaderEpochLineage, bounds: Bounds) -> None:
        self.kept: list[StateBatch] = []
        self.forgotten: list[ForgottenRecords] = []
        self._lineage = lineage
        self._bounds = bounds

    def start(self, kept: Offset, leader_epoch: LeaderEpoch) -> Offset:
        """Where the group begins in this log, by where it was kept to begin, and the epoch of the record before."""
        log_start, log_end = self._bounds
        start = kept
        if leader_epoch != NO_LEADER_EPOCH:
            ends = self._lineage.end_offset_for(leader_epoch, log_end)
            if ends is not None:
                start = min(start, ends[1])
        start = min(start, log_end)
        first = max(start, log_start)
        if first < kept:
            for here_first, here_last, here in self._held(first, kept):
                self.forgotten.append(ForgottenRecords(here_first, here_last, leader_epoch, here))
            self._forget_beyond(first, Offset(kept - 1), leader_epoch)
        return first

    def keep(self, batch: StateBatch, start: Offset) -> None:
        """Keep what of a batch is true here."""
        first, told = max(batch.first, start), batch.leader_epoch
        for here_first, here_last, here in self._held(first, Offset(batch.last + 1)):
            if told in (NO_LEADER_EPOCH, here):
                self.kept.append(StateBatch(here_first, here_last, batch.state, batch.delivery_count, here))
            else:
                self.forgotten.append(ForgottenRecords(here_first, here_last, told, here))
                self.kept.append(StateBatch(here_first, here_last, DeliveryState.AVAILABLE, 0, here))
        self._forget_beyond(first, batch.last, told)

    def _held(self, first: Offset, end: Offset) -> list[tuple[Offset, Offset, LeaderEpoch]]:
        """See `epochs_of`: what of [first, end) the log holds."""
        end = min(end, self._bounds.log_end_offset)
        return epochs_of(self._lineage, first, Offset(end - 1)) if first < end else []

    def _forget_beyond(self, first: Offset, last: Offset, leader_epoch: LeaderEpoch) -> None:
        first = max(first, self._bounds.log_end_offset)
        if first <= last:
            self.forgotten.append(ForgottenRecords(first, last, leader_epoch, None))


def epoch_before(lineage: LeaderEpochLineage, offset: Offset) -> LeaderEpoch:
    """Of the record before an offset. Where the log begins there, of the one at it: the other was no younger."""
    epoch = lineage.epoch_at(Offset(offset - 1))
    if epoch is None:
        epoch = lineage.epoch_at(offset)
    return NO_LEADER_EPOCH if epoch is None else epoch


def epochs_of(lineage: LeaderEpochLineage, first: Offset, last: Offset) -> list[tuple[Offset, Offset, LeaderEpoch]]:
    """(first, last, leader epoch) of consecutive records that the log holds, each with those of its epoch."""
    epoch = lineage.epoch_at(first)
    if epoch == lineage.epoch_at(last):
        return [(first, last, NO_LEADER_EPOCH if epoch is None else epoch)]
    starts = [one.start_offset for one in lineage.entries if first < one.start_offset <= last]
    begins = [first, *starts]
    ends = [Offset(one - 1) for one in starts] + [last]
    epochs = map(lineage.epoch_at, begins)
    return [
        (begin, end, NO_LEADER_EPOCH if one is None else one)
        for begin, end, one in zip(begins, ends, epochs, strict=True)
    ]
