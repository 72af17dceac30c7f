"""The file that remembers the epoch and the vote of a voter: Kafka's own."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.quorum import QuorumState, format_quorum_state, parse_quorum_state

ONE = BrokerId(1)


def test_the_file_is_kafkas() -> None:
    written = format_quorum_state(QuorumState(LeaderEpoch(2), leader_id=ONE))
    assert written == (
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


IDS = st.none() | st.integers(0, 2**31 - 1).map(BrokerId)


@given(
    st.builds(
        QuorumState,
        leader_epoch=st.integers(0, 2**31 - 1).map(LeaderEpoch),
        leader_id=IDS,
        voted_id=IDS,
        voted_directory_id=st.none() | st.uuids(),
        has_records=st.booleans(),
        is_lost=st.booleans(),
    )
)
def test_a_state_survives_its_file(state: QuorumState) -> None:
    if state.voted_directory_id == UUID(int=0):
        return
    assert parse_quorum_state(format_quorum_state(state)) == state


def test_what_kafka_does_not_know_stands_in_the_file_only_where_it_is_so() -> None:
    state = QuorumState(LeaderEpoch(2), has_records=True, is_lost=True)
    fields = json.loads(format_quorum_state(state))
    assert (fields["tidelogHasRecords"], fields["tidelogIsLost"]) == (True, True)
    assert not [name for name in json.loads(format_quorum_state(QuorumState(LeaderEpoch(2)))) if "tidelog" in name]


@pytest.mark.parametrize("number", [0, 2**31 - 1])
def test_the_smallest_and_the_largest_numbers_are_read(number: int) -> None:
    state = QuorumState(LeaderEpoch(number), leader_id=BrokerId(number), voted_id=BrokerId(number))
    assert parse_quorum_state(format_quorum_state(state)) == state


def test_the_older_file_is_read() -> None:
    older = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":3,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert parse_quorum_state(older) == QuorumState(LeaderEpoch(7), leader_id=ONE, voted_id=BrokerId(3))


GOOD = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "votedDirectoryId": "A" * 22, "data_version": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data_version": 2}, "data_version 2 is not known"),
        ({"data_version": None}, "data_version None"),
        ({"leaderEpoch": -1}, "leaderEpoch is -1; a whole number from 0"),
        ({"leaderEpoch": "2"}, "leaderEpoch is '2'"),
        ({"leaderId": True}, "leaderId is True"),
        ({"votedId": 2**31}, "votedId is 2147483648"),
        ({"leaderId": -2}, "leaderId is -2; a whole number from -1 to 2147483647"),
        ({"tidelogIsLost": 1}, "tidelogIsLost is 1; true or false is expected"),
        ({"tidelogHasRecords": "true"}, "tidelogHasRecords is 'true'; true or false is expected"),
        ({"votedDirectoryId": "x"}, "votedDirectoryId"),
        ({"votedDirectoryId": 5}, "votedDirectoryId"),
    ],
)
def test_a_file_that_was_never_written_so_stops_the_voter(change: dict[str, object], says: str) -> None:
    with pytest.raises(CorruptLogError, match=says) as refused:
        parse_quorum_state(json.dumps({**GOOD, **change}).encode(), path="/d/quorum-state")
    assert str(refused.value).startswith("/d/quorum-state: ")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null", b"1"])
def test_a_file_that_is_something_else_stops_the_voter(data: bytes) -> None:
    with pytest.raises(CorruptLogError):
        parse_quorum_state(data)
