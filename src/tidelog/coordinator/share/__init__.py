"""The share coordinator: so far, the records of its log."""

from tidelog.coordinator.share.records import (
    ShareRecordType,
    ShareSnapshotValue,
    ShareStateBatch,
    ShareStateKey,
    ShareUpdateValue,
)

__all__ = ["ShareRecordType", "ShareSnapshotValue", "ShareStateBatch", "ShareStateKey", "ShareUpdateValue"]
