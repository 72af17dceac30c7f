"""One partition on a disk: segments, indexes, the lineage of leader epochs, producers, recovery."""

from tidelog.log.append import AppendResult
from tidelog.log.config import LogConfig
from tidelog.log.files.transaction_index import AbortedTransaction
from tidelog.log.log import Log
from tidelog.log.lookup import NotCachedError, without_waiting
from tidelog.log.recovery_report import RecoveryReport, TailTruncation
from tidelog.log.slice import LogSlice, StaleSliceError
from tidelog.log.timestamps import TimestampOffset

__all__ = [
    "AbortedTransaction",
    "AppendResult",
    "Log",
    "LogConfig",
    "LogSlice",
    "NotCachedError",
    "RecoveryReport",
    "StaleSliceError",
    "TailTruncation",
    "TimestampOffset",
    "without_waiting",
]
