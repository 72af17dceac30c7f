"""The records of `__cluster_metadata`, in Kafka's own format."""

from tidelog.metadata.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tidelog.metadata.records.brokers import (
    BrokerEndpoint,
    BrokerFeature,
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
    ForgottenLoss,
    NoOpRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
)
from tidelog.metadata.records.codec import decode_record, encode_record, has_secret
from tidelog.metadata.records.controllers import RegisterControllerRecord
from tidelog.metadata.records.delegation_tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from tidelog.metadata.records.scram_credentials import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from tidelog.metadata.records.topics import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

__all__ = [
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "ForgottenLoss",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "QuotaEntityPart",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "decode_record",
    "encode_record",
    "has_secret",
]
