"""Tidelog: a replicated log that speaks Kafka's protocol and stays truthful to its readers."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than all the rest
if TYPE_CHECKING:
    from tidelog.base.errors import (
        AuthenticationError,
        ClientClosedError,
        Code,
        CommitFailedError,
        ConfigError,
        ConsistencyContextError,
        KafkaError,
        LogTruncatedError,
        NetworkError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RecordDeserializationError,
        RecordsLostError,
        SaslAuthenticationError,
        SslAuthenticationError,
        TidelogError,
        TimedOutError,
        TopicAlreadyExistsError,
        TopicRecreatedError,
        TransactionAbortableError,
        TransactionAbortedError,
        UnknownTopicError,
        UnsupportedVersionError,
        WakeupError,
    )
    from tidelog.base.ids import Position, TopicPartition
    from tidelog.base.version import __version__
    from tidelog.client.admin.acl_descriptions import AclBinding, AclBindingFilter
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.descriptions import ConfigResource, EpochEnd, NewTopic
    from tidelog.client.consistency import ConsistencyContext, ConsistencyContextStore
    from tidelog.client.consumer import Consumer
    from tidelog.client.core.group_metadata import GroupMetadata
    from tidelog.client.core.transaction import PreparedTransaction
    from tidelog.client.core.values import (
        CommittedOffset,
        ConsumerRecord,
        ConsumerRecords,
        FetchedBatches,
        OffsetAndEpoch,
        PartitionStatistics,
        PositionReset,
        ProducerStatistics,
        RecordMetadata,
        ResetReason,
    )
    from tidelog.client.factory import Factory
    from tidelog.client.futures import BatchMetadata, Future
    from tidelog.client.producer import Producer
    from tidelog.client.transaction import ResumedTransaction, Transaction

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "Admin",
    "AuthenticationError",
    "BatchMetadata",
    "ClientClosedError",
    "Code",
    "CommitFailedError",
    "CommittedOffset",
    "ConfigError",
    "ConfigResource",
    "ConsistencyContext",
    "ConsistencyContextError",
    "ConsistencyContextStore",
    "Consumer",
    "ConsumerRecord",
    "ConsumerRecords",
    "EpochEnd",
    "Factory",
    "FetchedBatches",
    "Future",
    "GroupMetadata",
    "KafkaError",
    "LogTruncatedError",
    "NetworkError",
    "NewTopic",
    "OffsetAndEpoch",
    "OffsetOutOfRangeError",
    "PartitionStatistics",
    "Position",
    "PositionReset",
    "PreparedTransaction",
    "Producer",
    "ProducerFencedError",
    "ProducerStatistics",
    "RecordDeserializationError",
    "RecordMetadata",
    "RecordsLostError",
    "ResetReason",
    "ResumedTransaction",
    "SaslAuthenticationError",
    "SslAuthenticationError",
    "TidelogError",
    "TimedOutError",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "TopicRecreatedError",
    "Transaction",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "WakeupError",
    "__version__",
]

_HOMES = {
    "AclBinding": "client.admin.acl_descriptions",
    "AclBindingFilter": "client.admin.acl_descriptions",
    "Admin": "client.admin.admin",
    "BatchMetadata": "client.futures",
    "CommittedOffset": "client.core.values",
    "ConfigResource": "client.admin.descriptions",
    "ConsistencyContext": "client.consistency",
    "ConsistencyContextStore": "client.consistency",
    "Consumer": "client.consumer",
    "ConsumerRecord": "client.core.values",
    "ConsumerRecords": "client.core.values",
    "EpochEnd": "client.admin.descriptions",
    "Factory": "client.factory",
    "FetchedBatches": "client.core.values",
    "Future": "client.futures",
    "GroupMetadata": "client.core.group_metadata",
    "NewTopic": "client.admin.descriptions",
    "OffsetAndEpoch": "client.core.values",
    "PartitionStatistics": "client.core.values",
    "Position": "base.ids",
    "PositionReset": "client.core.values",
    "PreparedTransaction": "client.core.transaction",
    "Producer": "client.producer",
    "ProducerStatistics": "client.core.values",
    "RecordMetadata": "client.core.values",
    "ResetReason": "client.core.values",
    "ResumedTransaction": "client.transaction",
    "TopicPartition": "base.ids",
    "Transaction": "client.transaction",
    "__version__": "base.version",
}


def __getattr__(name: str) -> object:
    """Load what is asked for, and no more (PEP 562): importing the package costs next to nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"tidelog.{_HOMES.get(name, 'base.errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
