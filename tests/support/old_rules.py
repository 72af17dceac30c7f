"""Rules that a proposal replaced, to be passed in where production has today's: what they cost is shown by tests."""

from __future__ import annotations

from tidelog.base.ids import Offset
from tidelog.replica import Cut, EpochEnd, OwnLog


def high_watermark_alone(log: OwnLog, answer: EpochEnd | None) -> Cut:
    """Before KIP-101: a follower asks nobody, and keeps what it knows to be committed."""
    return Cut(log.high_watermark)


def first_epoch_end(log: OwnLog, answer: EpochEnd | None) -> Cut:
    """KIP-101 alone: one question, and the end offset in the answer counts, whatever epoch the answer is of."""
    if answer is None:
        return Cut(log.log_end_offset, ask_next=log.last_leader_epoch)
    return Cut(min(answer.end_offset, log.log_end_offset))


def joins_at_the_high_watermark(high_watermark: Offset, epoch_start: Offset) -> Offset:
    """Before the start of the leader's epoch counted too."""
    return high_watermark
