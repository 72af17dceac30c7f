"""Decisions, and the runtime of every state that is replayed from a log."""

from tidelog.journal.coordinator_journal import CoordinatorJournal
from tidelog.journal.coordinator_machine import (
    Answer,
    CoordinatorMachine,
    CoordinatorReady,
    KeyValue,
    Moment,
    RequestId,
    Send,
    SendId,
)
from tidelog.journal.decision import Decision, LongDecision
from tidelog.journal.log_transaction import Boundary, LogTransactions
from tidelog.journal.runtime import Batch, Journal, Ready, ReplayedState, Reply, Ticket
from tidelog.journal.transaction_part import TransactionEnd, TransactionPart, TransactionRecord

__all__ = [
    "Answer",
    "Batch",
    "Boundary",
    "CoordinatorJournal",
    "CoordinatorMachine",
    "CoordinatorReady",
    "Decision",
    "Journal",
    "KeyValue",
    "LogTransactions",
    "LongDecision",
    "Moment",
    "Ready",
    "ReplayedState",
    "Reply",
    "RequestId",
    "Send",
    "SendId",
    "Ticket",
    "TransactionEnd",
    "TransactionPart",
    "TransactionRecord",
]
