"""One partition on a disk: segments, indexes, the lineage of leader epochs, producers, recovery."""

from tidelog.log.append import AppendResult, Checked, TakesLongError
from tidelog.log.append_together import Outcome, append_together
from tidelog.log.config import LogConfig
from tidelog.log.files.transaction_index import AbortedTransaction
from tidelog.log.log import Log
from tidelog.log.lookup import NotCachedError, without_waiting
from tidelog.log.producer_state import UndecidedTransaction
from tidelog.log.recovery_report import RecoveryReport, TailTruncation
from tidelog.log.slice import LogSlice, StaleSliceError
from tidelog.log.timestamps import TimestampOffset
from tidelog.log.truncated_transactions import TruncatedTransaction, TruncatedTransactions
from tidelog.log.verification import NOT_VERIFIED, VerificationGuard

__all__ = [
    "NOT_VERIFIED",
    "AbortedTransaction",
    "AppendResult",
    "Checked",
    "Log",
    "LogConfig",
    "LogSlice",
    "NotCachedError",
    "Outcome",
    "RecoveryReport",
    "StaleSliceError",
    "TailTruncation",
    "TakesLongError",
    "TimestampOffset",
    "TruncatedTransaction",
    "TruncatedTransactions",
    "UndecidedTransaction",
    "VerificationGuard",
    "append_together",
    "without_waiting",
]
