"""What share groups go by in Kafka: passed in where production has our rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share import Bounds, Reconciled, ShareState, reconciled


@dataclass(frozen=True)
class ShareRules:
    """What the leader of a share partition goes by; the defaults are production's.

    Attributes:
        says: what such rules come to.
        load: makes of what was kept what is true of the leader's log.
        keeps_first_start: whether it is kept where a group begins before anything is delivered.
    """

    says: str = ""
    load: Callable[[ShareState, LeaderEpochLineage, Bounds], Reconciled] = reconciled
    keeps_first_start: bool = True


def as_it_was_kept(kept: ShareState, lineage: LeaderEpochLineage, bounds: Bounds) -> Reconciled:
    """An offset stands for a record, whichever log it is in."""
    return Reconciled(kept, ())


OLD_SHARE_RULES = {
    "offsets-alone": ShareRules(
        "What a group has done is kept by offset, whatever record has it now (as in Kafka).", as_it_was_kept
    ),
    "begins-with-the-first-acknowledgement": ShareRules(
        "Where a group begins is kept with the first acknowledgement (as in Kafka).", keeps_first_start=False
    ),
}
"""By the name that a story replays it under."""
