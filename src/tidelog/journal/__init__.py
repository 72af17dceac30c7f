"""Decisions, and the runtime of every state that is replayed from a log."""

from tidelog.journal.decision import Decision
from tidelog.journal.runtime import Batch, Journal, Ready, ReplayedState, Reply, Ticket

__all__ = ["Batch", "Decision", "Journal", "Ready", "ReplayedState", "Reply", "Ticket"]
