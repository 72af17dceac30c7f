"""How much of a follower's log the leader's log begins with, found by asking where leader epochs end.

```
 leader    1 1 1 1 | 3 3 3 3            asked for 2: the largest epoch not above it is 1, and it ends at 4
 follower  1 1 1 1 1 1 | 2 2            its own 1 ends at 6: what both have ends at 4, and all above goes
                     ▲ 4
```

When the follower has no record of the epoch in the answer either, it cuts to where its own next older one ends, or to
the end in the answer if that is lower, and asks for what is last then (KIP-279). Each round goes to an older epoch, so
it ends. One round was enough for KIP-101, which cuts to the end offset in the answer whatever epoch that is of, and so
may keep records that the leader never had.

Kafka: `AbstractFetcherThread`, `OffsetTruncationState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage


@dataclass(frozen=True, slots=True)
class OwnLog:
    """What a follower knows of itself, to judge an answer by. `lineage` is only read."""

    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    lineage: LeaderEpochLineage

    @property
    def last_leader_epoch(self) -> LeaderEpoch | None:
        """Of the last record; of a log without records, the latest that is known to end where it starts."""
        found = self.lineage.epoch_at(Offset(self.log_end_offset - 1))
        return self.lineage.latest_leader_epoch if found is None else found


class EpochEndOffset(NamedTuple):
    """The leader's answer: the largest epoch that it knows and that is not above `requested`, and its exclusive end."""

    requested: LeaderEpoch
    leader_epoch: LeaderEpoch
    end_offset: Offset


class TruncationStep(NamedTuple):
    """One step of a truncation.

    Attributes:
        end_offset: keep what is below; never above the log end. Below the log start: nothing is to be kept.
        agreed_epoch: the leader's too, and the last one below `end_offset`; None while that is not known.
        next_epoch_to_request: the epoch to ask for then; None when the log is a prefix of the leader's.
    """

    end_offset: Offset
    agreed_epoch: LeaderEpoch | None = None
    next_epoch_to_request: LeaderEpoch | None = None


class HaltRule(Protocol):
    """Whether a follower keeps its log and stops rather than truncate it to `end_offset`."""

    def __call__(self, log: OwnLog, end_offset: Offset, unclean_epoch: LeaderEpoch | None) -> bool: ...


def belies_what_was_committed(log: OwnLog, end_offset: Offset, unclean_epoch: LeaderEpoch | None) -> bool:
    """Whether a leader that has a log truncated to `end_offset` lacks what was committed. Kafka truncates all the same.

    What lies below the high watermark is committed, and whoever is elected cleanly has it. So a follower is told to cut
    below it after an unclean election that is newer than its last record, or by a leader that lost records and that
    nobody has noticed: then this log may be the only one that has them.

    Args:
        unclean_epoch: of the partition, as the metadata has it in the leader's epoch.
    """
    if end_offset >= log.high_watermark:
        return False
    last_epoch = log.lineage.epoch_at(Offset(log.log_end_offset - 1))
    if last_epoch is None:
        return False  # its own epochs are lost: nobody can tell whose records these are
    return unclean_epoch is None or unclean_epoch <= last_epoch


class TruncationRule(Protocol):
    """How a follower truncates, and what it requests next, by an `answer`; None before the first request."""

    def __call__(self, log: OwnLog, answer: EpochEndOffset | None) -> TruncationStep: ...


def truncation_point(log: OwnLog, answer: EpochEndOffset | None) -> TruncationStep:
    """The one rule in production: KIP-101 as KIP-279 mended it. A log without records may know no epoch to ask for.

    Records of no known epoch (the lineage was lost, and compaction left nothing to rebuild it from) cannot be told from
    others at their offsets: where they are the last that would be left, nothing is kept.
    """
    step = _compared(log, answer)
    if step.end_offset > log.log_start_offset and log.lineage.epoch_at(Offset(step.end_offset - 1)) is None:
        return TruncationStep(Offset(log.log_start_offset - 1))
    return step


def _compared(log: OwnLog, answer: EpochEndOffset | None) -> TruncationStep:
    """Compare the lineages.

    What ends lower ends both: the end of our epoch may lie above the leader's end of a newer one. So what is asked for
    next is the epoch of the last record that is left, which need not be the one that was compared.
    """
    if answer is None:
        return TruncationStep(log.log_end_offset, next_epoch_to_request=log.last_leader_epoch)
    own = log.lineage.end_offset_for(answer.leader_epoch, log.log_end_offset)
    if own is None:  # the epoch that was asked for is not in our lineage: ask for one that is
        return TruncationStep(log.log_end_offset, next_epoch_to_request=log.last_leader_epoch)
    own_epoch, own_end_offset = own
    end_offset = min(own_end_offset, answer.end_offset, log.log_end_offset)
    if own_epoch == answer.leader_epoch:
        return TruncationStep(end_offset, agreed_epoch=own_epoch)
    return TruncationStep(end_offset, next_epoch_to_request=log.lineage.epoch_at(Offset(end_offset - 1)))
