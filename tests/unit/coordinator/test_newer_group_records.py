"""The records of KIP-848 and of share groups. Each is compared with Kafka's bytes in test_wire_apache_kafka."""

from __future__ import annotations

import pytest

from support.clients.kafka_records import RECORD_MESSAGES
from tidelog.coordinator.groups.consumer_group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from tidelog.coordinator.groups.group_record_types import GroupRecordType, MemberRecordKey
from tidelog.journal.versioned_records import decode_key, decode_value, encode_key, encode_value, record_type
from tidelog.wire.schema import layout_of

MEMBER = b"\0\0" + b"\0\0\2c\2h\1\0\xff\xff\xff\xff\0"


def member(classic: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(client_id="c", client_host="h", classic_member_metadata=classic)


def test_a_key_names_the_group_and_the_member() -> None:
    key = encode_key(GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA, MemberRecordKey(group_id="g", member_id="m"))
    assert key == b"\0\5\0\1g\0\1m"
    assert record_type(key) == GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA
    assert decode_key(MemberRecordKey, key) == MemberRecordKey(group_id="g", member_id="m")


@pytest.mark.parametrize(
    ("classic", "tags"),
    [
        (ClassicMemberMetadata(), b"\0"),
        (None, b"\1\0\1\0"),
        (ClassicMemberMetadata(5), b"\1\0\7\1\0\0\0\5\1\0"),
    ],
)
def test_a_member_of_the_newer_protocol_is_told_from_a_classic_one(
    classic: ClassicMemberMetadata | None, tags: bytes
) -> None:
    """Kafka takes a member for a classic one where nothing is said: as Apache Kafka 4.3.1 writes them."""
    assert encode_value(member(classic), 0) == MEMBER + tags
    assert decode_value(ConsumerGroupMemberMetadataValue, MEMBER + tags) == member(classic)


def test_every_record_says_what_its_fields_mean() -> None:
    layouts = {cls: layout_of(cls) for _, cls, _ in RECORD_MESSAGES}
    assert [spec.name for layout in layouts.values() for spec in layout.fields if not spec.doc] == []
