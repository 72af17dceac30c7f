"""The other way round: our consumers in groups of Apache Kafka, in the same tests as on a node of ours."""

from __future__ import annotations

import pytest

from integration.test_consumers_in_groups import (
    test_a_committed_position_that_the_log_does_not_have_is_told,
    test_a_pattern_finds_topics_that_come_later,
    test_a_static_member_that_comes_again_has_what_it_had,
    test_commits_say_how_far_and_of_which_epoch,
    test_members_share_a_topic_and_take_over_where_another_came_to,
    test_who_does_not_come_back_in_time_loses_all_is_told_and_joins_again,
    topic,
)
from support.clients.kafka_peer import KafkaPeer

__all__ = [
    "test_a_committed_position_that_the_log_does_not_have_is_told",
    "test_a_pattern_finds_topics_that_come_later",
    "test_a_static_member_that_comes_again_has_what_it_had",
    "test_commits_say_how_far_and_of_which_epoch",
    "test_members_share_a_topic_and_take_over_where_another_came_to",
    "test_who_does_not_come_back_in_time_loses_all_is_told_and_joins_again",
    "topic",
]


@pytest.fixture(scope="module")
def group_node(kafka_peer: KafkaPeer) -> KafkaPeer:
    return kafka_peer
