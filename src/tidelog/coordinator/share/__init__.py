"""The share coordinator, pure: its machine, its state, its records."""

from tidelog.coordinator.share.coordinator import ShareCoordinator
from tidelog.coordinator.share.records import (
    ShareRecordType,
    ShareSnapshotValue,
    ShareStateBatch,
    ShareStateKey,
    ShareUpdateValue,
)
from tidelog.coordinator.share.settings import ShareCoordinatorSettings

__all__ = [
    "ShareCoordinator",
    "ShareCoordinatorSettings",
    "ShareRecordType",
    "ShareSnapshotValue",
    "ShareStateBatch",
    "ShareStateKey",
    "ShareUpdateValue",
]
