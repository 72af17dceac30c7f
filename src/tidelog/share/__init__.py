"""What a share group has done with a partition: its state, and how its records are delivered (KIP-932)."""

from tidelog.share.reconciliation import Reconciled, reconciled
from tidelog.share.share_partition import SharePartition
from tidelog.share.state import NO_LEADER_EPOCH, DeliveryState, ShareState, StateBatch, StateChange
from tidelog.share.values import (
    AcknowledgedRecords,
    AcknowledgeType,
    AcquiredRecords,
    Bounds,
    ForgottenRecords,
    LogBatch,
    ShareSettings,
    check_acknowledged,
)

__all__ = [
    "NO_LEADER_EPOCH",
    "AcknowledgeType",
    "AcknowledgedRecords",
    "AcquiredRecords",
    "Bounds",
    "DeliveryState",
    "ForgottenRecords",
    "LogBatch",
    "Reconciled",
    "SharePartition",
    "ShareSettings",
    "ShareState",
    "StateBatch",
    "StateChange",
    "check_acknowledged",
    "reconciled",
]
