"""The list of the replicas in a log directory, as text."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.log.files.replica_list import entry_lines, format_replica_list, parse_replica_list

ONE = TopicId(UUID(int=1)), PartitionIndex(0)
TWO = TopicId(UUID(int=1)), PartitionIndex(1)
Replicas = set[tuple[TopicId, PartitionIndex]]
REPLICAS = st.sets(st.tuples(st.uuids().map(TopicId), st.integers(0, 99_999).map(PartitionIndex)))


def test_it_is_text() -> None:
    assert (
        format_replica_list(entry_lines([ONE]), {TWO})
        == b"0\n2\nAAAAAAAAAAAAAAAAAAAAAQ 0\nAAAAAAAAAAAAAAAAAAAAAQ 1 lost\n"
    )
    assert format_replica_list([]) == b"0\n0\n"


@given(REPLICAS, REPLICAS)
def test_what_was_written_comes_back(
    whole: set[tuple[TopicId, PartitionIndex]], lost: set[tuple[TopicId, PartitionIndex]]
) -> None:
    assert parse_replica_list(format_replica_list(entry_lines(whole - lost), lost), "x") == (whole | lost, lost)


@pytest.mark.parametrize("end", range(len(format_replica_list(entry_lines([ONE, TWO])))))
def test_what_was_cut_short_counts_for_nothing(end: int) -> None:
    with pytest.raises(CorruptLogError, match="x"):
        parse_replica_list(format_replica_list(entry_lines([ONE, TWO]))[:end], "x")


@pytest.mark.parametrize(
    "data", [b"", b"\0\xff", b"1\n0\n", b"0\n1\nAAAA 0\n", b"0\n1\nAAAAAAAAAAAAAAAAAAAAAQ x\n", b"0\n5\n"]
)
def test_what_was_never_written_so_counts_for_nothing(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match="x"):
        parse_replica_list(data, "x")
