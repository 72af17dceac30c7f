"""A quorum of one: what is on disk before what is written, and the file that remembers it."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError, CorruptLogError, InvariantBrokenError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import QuorumState, format_quorum_state, parse_quorum_state
from tidelog.quorum.voter import TRANSITIONS, Cause, LeaderChange, QuorumVoter, Role

ONE = BrokerId(1)


def voter(state: QuorumState | None = None) -> QuorumVoter:
    return QuorumVoter(ONE, (ONE,), state)


@pytest.mark.parametrize(
    ("in_file", "in_log", "elected"), [(None, None, 1), (4, None, 5), (4, 3, 5), (4, 7, 8), (None, 7, 8), (0, 0, 1)]
)
def test_an_epoch_is_above_all_that_is_known(in_file: int | None, in_log: int | None, elected: int) -> None:
    one = voter(None if in_file is None else QuorumState(LeaderEpoch(in_file)))
    one.on_started(None if in_log is None else LeaderEpoch(in_log))
    ready = one.take_ready()
    assert ready.state == QuorumState(LeaderEpoch(elected), leader_id=ONE)
    assert ready.leader_change == LeaderChange(LeaderEpoch(elected), ONE, (ONE,))
    assert ready.high_watermark is None
    assert one.role is Role.LEADER


def test_nothing_is_committed_before_a_record_of_the_epoch_is() -> None:
    one = voter()
    one.on_started(None)
    one.take_ready()
    one.on_synced(Offset(7))
    assert one.take_ready().high_watermark is None
    one.on_epoch_opened(Offset(7))
    one.on_synced(Offset(7))
    assert one.take_ready().high_watermark is None
    one.on_synced(Offset(8))
    assert one.take_ready().high_watermark == 8
    one.on_synced(Offset(6))
    assert one.take_ready().high_watermark == 8
    one.on_stopped()
    one.on_synced(Offset(9))
    assert one.take_ready().high_watermark == 8


def test_an_epoch_is_on_disk_before_anything_is_written_in_it() -> None:
    one = voter()
    one.on_started(None)
    with pytest.raises(InvariantBrokenError):
        one.on_epoch_opened(Offset(0))


def test_what_is_owed_comes_out_once() -> None:
    one = voter()
    one.on_started(None)
    first, second = one.take_ready(), one.take_ready()
    assert first.state is not None
    assert (second.state, second.leader_change) == (None, None)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("cause", Cause)
def test_transitions_are_those_of_the_table(role: Role, cause: Cause) -> None:
    one = voter()
    one.role = role
    happen = {Cause.STARTED: lambda: one.on_started(None), Cause.STOPPED: one.on_stopped}[cause]
    if (role, cause) in TRANSITIONS:
        happen()
        assert one.role is TRANSITIONS[role, cause]
    else:
        with pytest.raises(InvariantBrokenError):
            happen()


def test_a_quorum_of_more_is_refused() -> None:
    for voters in ((ONE, BrokerId(2)), (BrokerId(2),), ()):
        with pytest.raises(ConfigError, match=r"controller\.quorum\.voters: this release runs a quorum of one"):
            QuorumVoter(ONE, voters, None)


def test_copies_are_independent() -> None:
    one = voter()
    one.on_started(None)
    copy = one.clone()
    assert copy.canonical_key() == one.canonical_key()
    copy.take_ready()
    assert copy.canonical_key() != one.canonical_key()


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
    )
)
def test_a_state_survives_its_file(state: QuorumState) -> None:
    if state.voted_directory_id == UUID(int=0):
        return
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
