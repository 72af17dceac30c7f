"""The other way round: our admin client and Apache Kafka, in the same tests as on a node of ours."""

from __future__ import annotations

import pytest

from integration.test_admin_takes_over import (
    test_a_producer_is_fenced_and_what_it_had_open_is_aborted,
    test_all_members_are_put_out,
    test_static_members_are_put_out_and_the_others_go_on,
    test_what_has_a_configuration_is_listed,
    topic,
)
from support.clients.kafka_peer import KafkaPeer

__all__ = [
    "test_a_producer_is_fenced_and_what_it_had_open_is_aborted",
    "test_all_members_are_put_out",
    "test_static_members_are_put_out_and_the_others_go_on",
    "test_what_has_a_configuration_is_listed",
    "topic",
]


@pytest.fixture(scope="module")
def any_node(kafka_peer: KafkaPeer) -> KafkaPeer:
    return kafka_peer
