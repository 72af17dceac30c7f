"""Subscriptions and assignments as consumers write them."""

from __future__ import annotations

import pytest

from tidelog.base.errors import MalformedMessageError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.wire import encode
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    assigned_partitions,
    subscribed_topics,
)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_name_their_topics(version: int) -> None:
    owned = [ConsumerProtocolPartitions("a", [0, 1])]
    told = ConsumerProtocolSubscription(topics=["b", "a"], owned_partitions=owned, generation_id=3, rack_id="r")
    assert subscribed_topics(version.to_bytes(2) + encode(told, version)) == {"a", "b"}


def test_what_newer_versions_add_is_passed_over() -> None:
    told = ConsumerProtocolSubscription(topics=["a"])
    assert subscribed_topics((9).to_bytes(2) + encode(told, 3) + b"more") == {"a"}


def test_assignments_are_told_in_order_and_none_is_none() -> None:
    told = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolPartitions("b", [1]), ConsumerProtocolPartitions("a", [2, 0])]
    )
    expected = [("a", 0), ("a", 2), ("b", 1)]
    assert assigned_partitions((1).to_bytes(2) + encode(told, 1)) == tuple(
        TopicPartition(topic, PartitionIndex(index)) for topic, index in expected
    )
    assert assigned_partitions(b"") == ()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00", b"\x00\x00\x00\x00\x00\x05"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        subscribed_topics(data)
