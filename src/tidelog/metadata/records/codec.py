"""Metadata records as bytes, framed as Kafka frames them, so that its tools read our log.

```
 frame version │ record type │ record version │ body, always with tagged fields
    varint     │   varint    │     varint     │ (all three unsigned)
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.base.errors import CorruptLogError, MalformedMessageError
from tidelog.base.ports import Buffer
from tidelog.metadata.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tidelog.metadata.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.metadata.records.cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from tidelog.metadata.records.controllers import RegisterControllerRecord
from tidelog.metadata.records.delegation_tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from tidelog.metadata.records.scram_credentials import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from tidelog.metadata.records.topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.wire.compile import decode, encode
from tidelog.wire.primitives import read_uvarint, uvarint
from tidelog.wire.schema import layout_of

FRAME_VERSION = 1

RECORD_TYPES: tuple[type[Any], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RegisterControllerRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    ClientQuotaRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
_BY_KEY = {layout_of(cls).api_key: cls for cls in RECORD_TYPES}


def has_secret(record: object) -> bool:
    """Whether the bytes of a record are not to be shown to anybody. As text it does not show what is secret."""
    return isinstance(record, UserScramCredentialRecord) or (isinstance(record, ConfigRecord) and record.has_secret)


def _partition_version(record: PartitionRecord) -> int:
    if record.eligible_leader_replicas is not None or record.last_known_elr is not None:
        return 2
    return 1 if record.directories else 0


def _partition_change_version(record: PartitionChangeRecord) -> int:
    if record.eligible_leader_replicas is not None or record.last_known_elr is not None:
        return 2
    return 1 if record.directories is not None else 0


def _registration_version(record: RegisterBrokerRecord) -> int:
    return 3 if record.log_dirs else 1


def _registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    return 2 if record.log_dirs else 1


# The lowest version that holds what there is to say: who decides says nothing that metadata.version has no words for.
# Of all others there is one version.
_VERSION: dict[type[Any], Callable[[Any], int]] = {
    RegisterBrokerRecord: _registration_version,
    BrokerRegistrationChangeRecord: _registration_change_version,
    PartitionRecord: _partition_version,
    PartitionChangeRecord: _partition_change_version,
}


def encode_record(record: object) -> bytes:
    """One metadata record as the value of a log record."""
    cls = type(record)
    layout = layout_of(cls)
    choose = _VERSION.get(cls)
    version = layout.versions[-1] if choose is None else choose(record)
    return b"".join((uvarint(FRAME_VERSION), uvarint(layout.api_key), uvarint(version), encode(record, version)))


def decode_record(value: Buffer) -> object:
    """The inverse of `encode_record`.

    Raises:
        CorruptLogError: the value is no metadata record, or one of a kind or version that this release does not know:
            the log was written by a newer one.
    """
    try:
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        if frame_version != FRAME_VERSION:
            raise CorruptLogError(f"metadata record: frame version {frame_version} is not {FRAME_VERSION}")
        cls = _BY_KEY.get(api_key)
        if cls is None:
            raise CorruptLogError(
                f"metadata record: type {api_key} is not known to this release; was a newer one here?"
            )
        if version not in layout_of(cls).versions:
            raise CorruptLogError(
                f"metadata record: {cls.__name__} has no version {version} in this release; was a newer one here?"
            )
        return decode(cls, value, version, position)
    except MalformedMessageError as error:
        raise CorruptLogError(f"metadata record: {error}") from error
