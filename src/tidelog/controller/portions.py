"""A decision that is too large for one batch, in the portions that it is appended in (KIP-868).

Kafka: `QuorumController.ControllerWriteEvent`.
"""

from __future__ import annotations

from typing import TypeVar

from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision, LongDecision
from tidelog.metadata.features import knows_transactions
from tidelog.metadata.image import MetadataView

PORTIONS_IN_BATCH_MAX = 5
"""A larger decision is divided: begin, end, and their waiting cost more than some milliseconds of the event loop."""

R = TypeVar("R")


def in_portions(metadata: MetadataView, settings: ControllerSettings, decision: Decision[R]) -> LongDecision[R] | None:
    """A decision that is too large for a batch, as it is to be appended; None for any other."""
    size, records = settings.partition_changes_max, decision.records
    if len(records) <= size * PORTIONS_IN_BATCH_MAX or not knows_transactions(metadata.features):
        return None
    portions = (records[start : start + size] for start in range(0, len(records), size))
    return LongDecision(portions, decision.reply)
