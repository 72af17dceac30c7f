"""No command shows a negative lag: a reader, or a follower, may be ahead of what was asked a moment before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli import groups, quorum
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.cluster_descriptions import QuorumDescription, QuorumReplica
from tidelog.client.admin.group_descriptions import GroupDescription
from tidelog.client.core.values import CommittedOffset, OffsetAndEpoch

P0 = TopicPartition("flights", PartitionIndex(0))


class AdminOfOneGroup:
    """It has committed 382."""

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset

    def list_group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return {P0: CommittedOffset(382)}

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {}

    def list_offsets(self, asked: dict[TopicPartition, str]) -> dict[TopicPartition, OffsetAndEpoch]:
        return {P0: OffsetAndEpoch(self._end_offset, 1, None)}


@pytest.mark.parametrize(("end_offset", "lag"), [(390, 8), (382, 0), (380, 0)])
def test_the_lag_of_a_group(end_offset: int, lag: int) -> None:
    group = GroupDescription("readers", "Empty", "consumer", "", 1, ())
    (row,) = groups._offset_rows(cast(Admin, AdminOfOneGroup(end_offset)), group)
    assert (row["log_end"], row["lag"]) == (end_offset, lag)


def test_the_lag_of_voters() -> None:
    ends = ((1, 10), (2, 8), (3, 12))
    voters = tuple(QuorumReplica(node_id, None, end_offset, None, None) for node_id, end_offset in ends)
    description = QuorumDescription(1, 4, 10, voters, (), {})
    assert [row["lag"] for row in quorum._replicas(description)] == [0, 2, 0]
    assert quorum._summary(description)["lag_max"] == 2
