"""The coordinator of transactions, pure: its machine, its state, its records."""

from tidelog.coordinator.transactions.coordinator import TransactionCoordinator, TransactionFacts
from tidelog.coordinator.transactions.settings import TransactionSettings
from tidelog.coordinator.transactions.transaction import Transaction, TransactionState
from tidelog.coordinator.transactions.values import (
    EndTransaction,
    InitProducer,
    ProducerIdentity,
    ProducerIdNeededError,
)

__all__ = [
    "EndTransaction",
    "InitProducer",
    "ProducerIdNeededError",
    "ProducerIdentity",
    "Transaction",
    "TransactionCoordinator",
    "TransactionFacts",
    "TransactionSettings",
    "TransactionState",
]
