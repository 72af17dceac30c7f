"""Metadata records as bytes: Kafka's layout, to the byte, and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptLogError
from tidelog.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
    has_secret,
)

TOPIC = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
TOPIC_HEX = "0102030405060708090a0b0c0d0e0f10"
DIRECTORY = UUID("f1f2f3f4-f5f6-f7f8-f9fa-fbfcfdfeff00")
DIRECTORY_HEX = "f1f2f3f4f5f6f7f8f9fafbfcfdfeff00"

# Written out by hand from the layouts: frame version, type, version | fields | number of tagged fields, tagged fields.
VECTORS: list[tuple[object, str]] = [
    (
        ClientQuotaRecord(
            entity=[QuotaEntityPart("user", "ab"), QuotaEntityPart("client-id", None)],
            key="producer_byte_rate",
            value=1024.0,
        ),
        "01 0e 00 | 03 05 75736572 03 6162 00 0a 636c69656e742d6964 00 00 "
        "13 70726f64756365725f627974655f72617465 4090000000000000 00 | 00",
    ),
    (TopicRecord(name="ab", topic_id=TOPIC), f"01 02 00 | 03 6162 {TOPIC_HEX} | 00"),
    (
        PartitionRecord(
            partition_id=1, topic_id=TOPIC, replicas=[2, 3], isr=[2], leader=2, leader_epoch=0, partition_epoch=0
        ),
        f"01 03 00 | 00000001 {TOPIC_HEX} 03 00000002 00000003 02 00000002 01 01 00000002 00000000 00000000 | 00",
    ),
    (
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=[2],
            isr=[2],
            leader=-1,
            leader_recovery_state=1,
            leader_epoch=7,
            partition_epoch=9,
            directories=[DIRECTORY],
        ),
        f"01 03 01 | 00000000 {TOPIC_HEX} 02 00000002 02 00000002 01 01 ffffffff 00000007 00000009 "
        f"02 {DIRECTORY_HEX} | 01 00 01 01",
    ),
    (
        PartitionRecord(
            topic_id=TOPIC, replicas=[], isr=[], eligible_leader_replicas=[4], last_known_elr=[5], leader_epoch=1
        ),
        f"01 03 02 | ffffffff {TOPIC_HEX} 01 01 01 01 ffffffff 00000001 ffffffff 01 "
        "| 02 01 05 02 00000004 02 05 02 00000005",
    ),
    (
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC, isr=[3], leader=-1),
        f"01 05 00 | 00000001 {TOPIC_HEX} | 02 00 05 02 00000003 01 04 ffffffff",
    ),
    (
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC, replicas=[3], directories=[DIRECTORY]),
        f"01 05 01 | 00000001 {TOPIC_HEX} | 02 02 05 02 00000003 08 11 02 {DIRECTORY_HEX}",
    ),
    (RemoveTopicRecord(topic_id=TOPIC), f"01 09 00 | {TOPIC_HEX} | 00"),
    (
        ConfigRecord(resource_type=2, resource_name="ab", name="k", value="v"),
        "01 04 00 | 02 03 6162 02 6b 02 76 | 00",
    ),
    (ConfigRecord(resource_type=4, resource_name="", name="k", value=None), "01 04 00 | 04 01 02 6b 00 | 00"),
    (FeatureLevelRecord(name="ab", feature_level=21), "01 0c 00 | 03 6162 0015 | 00"),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        "01 0f 00 | 00000001 0000000000000005 00000000000003e8 | 00",
    ),
    (NoOpRecord(), "01 14 00 | 00"),
    (BeginTransactionRecord(), "01 17 00 | 00"),
    (BeginTransactionRecord(name="boot"), "01 17 00 | 01 00 05 05 626f6f74"),
    (EndTransactionRecord(), "01 18 00 | 00"),
    (AbortTransactionRecord(), "01 19 00 | 00"),
    (AbortTransactionRecord(reason="why"), "01 19 00 | 01 00 04 04 776879"),
    (
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=TOPIC,
            broker_epoch=5,
            end_points=[BrokerEndpoint("P", "h", 65535, 0)],
            features=[BrokerFeature("f", 1, 21)],
            rack="r",
            log_dirs=[DIRECTORY],
        ),
        f"01 00 03 | 00000001 00 {TOPIC_HEX} 0000000000000005 02 02 50 02 68 ffff 0000 00 02 02 66 0001 0015 00 "
        f"02 72 01 00 | 01 00 11 02 {DIRECTORY_HEX}",
    ),
    (UnregisterBrokerRecord(broker_id=1, broker_epoch=5), "01 01 00 | 00000001 0000000000000005 | 00"),
    (
        RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC, broker_epoch=5, end_points=[], features=[]),
        f"01 00 01 | 00000001 {TOPIC_HEX} 0000000000000005 01 01 00 01 00 | 00",
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[DIRECTORY]),
        f"01 11 02 | 00000001 0000000000000005 | 01 02 11 02 {DIRECTORY_HEX}",
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1, in_controlled_shutdown=1),
        "01 11 01 | 00000001 0000000000000005 | 02 00 01 ff 01 01 01",
    ),
    (
        AccessControlEntryRecord(
            id=TOPIC,
            resource_type=2,
            resource_name="t",
            pattern_type=4,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=2,
        ),
        f"01 12 00 | {TOPIC_HEX} 02 02 74 04 07 557365723a61 02 2a 03 02 | 00",
    ),
    (RemoveAccessControlEntryRecord(id=TOPIC), f"01 13 00 | {TOPIC_HEX} | 00"),
    (
        UserScramCredentialRecord(
            name="ab", mechanism=2, salt=b"\x01", stored_key=b"\x02\x03", server_key=b"\x04", iterations=4096
        ),
        "01 0b 00 | 03 6162 02 02 01 03 0203 02 04 00001000 | 00",
    ),
    (RemoveUserScramCredentialRecord(name="ab", mechanism=1), "01 16 00 | 03 6162 01 | 00"),
    (
        DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            renewers=["User:c"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="id",
        ),
        "01 0a 00 | 07 557365723a61 07 557365723a62 02 07 557365723a63 "
        "0000000000000001 0000000000000003 0000000000000002 03 6964 | 00",
    ),
    (RemoveDelegationTokenRecord(token_id="id"), "01 1a 00 | 03 6964 | 00"),
]


def as_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("|", " "))


@pytest.mark.parametrize(("record", "expected"), VECTORS, ids=[type(record).__name__ for record, _ in VECTORS])
def test_the_bytes_are_kafkas(record: object, expected: str) -> None:
    assert encode_record(record).hex(" ") == as_bytes(expected).hex(" ")
    assert decode_record(as_bytes(expected)) == record


def test_older_versions_of_a_record_are_read() -> None:
    registration = decode_record(as_bytes(f"01 00 00 | 00000001 {TOPIC_HEX} 0000000000000005 01 01 00 01 | 00"))
    assert registration == RegisterBrokerRecord(
        broker_id=1, incarnation_id=TOPIC, broker_epoch=5, end_points=[], features=[]
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "varint"),
        ("02 02 00 00", "frame version 2"),
        ("01 7f 00 00", "type 127 is not known"),
        ("01 02 01 00", "TopicRecord has no version 1"),
        ("01 02 00 03 6162", "TopicRecord"),
        (f"01 09 00 {TOPIC_HEX} 00 ff", "RemoveTopicRecord"),
    ],
)
def test_what_was_never_written_so_is_refused(value: str, says: str) -> None:
    with pytest.raises(CorruptLogError, match=says):
        decode_record(as_bytes(value))


IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4)
UUIDS = st.uuids()


@given(
    st.builds(
        PartitionChangeRecord,
        partition_id=st.integers(0, 2**31 - 1),
        topic_id=UUIDS,
        isr=st.none() | IDS,
        leader=st.integers(-2, 2**31 - 1),
        replicas=st.none() | IDS,
        removing_replicas=st.none() | IDS,
        adding_replicas=st.none() | IDS,
        leader_recovery_state=st.integers(-1, 1),
        directories=st.none() | st.lists(UUIDS, max_size=3),
        eligible_leader_replicas=st.none() | IDS,
        last_known_elr=st.none() | IDS,
    )
)
def test_a_partition_change_survives_its_bytes(record: PartitionChangeRecord) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("listener.name.clients.plain.sasl.jaas.config", True),
        ("listener.name.clients.ssl.keystore.password", True),
        ("ssl.key.password", True),
        ("of.a.later.release", True),
        ("log.retention.ms", False),
    ],
)
def test_a_setting_that_is_a_password_is_not_shown(name: str, is_secret: bool) -> None:
    record = ConfigRecord(resource_type=4, resource_name="1", name=name, value="7654321")
    assert ("7654321" in repr(record)) is not is_secret
    assert has_secret(record) is is_secret
    taken_back = ConfigRecord(resource_type=4, resource_name="1", name=name, value=None)
    assert not has_secret(taken_back)
    assert "value=None" in repr(taken_back)
