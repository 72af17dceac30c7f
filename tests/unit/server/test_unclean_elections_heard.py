"""What a broker remembers of unclean elections, for coordinators that it loads later."""

from __future__ import annotations

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.server.transactions.transaction_coordinators import UncleanElections

A, B = (TopicPartition("t", PartitionIndex(index)) for index in range(2))


def test_of_each_partition_the_last_election_counts() -> None:
    elections = UncleanElections()
    assert elections.heard_ms() == {}
    elections.on_elected([A, B], 1_000)
    before = elections.heard_ms()
    elections.on_elected([B], 2_000)
    assert elections.heard_ms() == {A: 1_000, B: 2_000}
    assert before == {A: 1_000, B: 1_000}
