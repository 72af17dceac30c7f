"""What an exactly-once sink may write, given what it has decided."""

from __future__ import annotations

import pytest

from tidelog.spark.sink_decisions import (
    RUNS_MAX,
    Committable,
    SinkAheadError,
    SinkFencedError,
    SinkOtherQueryError,
    SinkState,
    SinkStateError,
    Writing,
    decided,
    joined,
    run_of,
    transactional_id,
)

ONE = Committable(0, 0, 11, 2)
OTHER = Committable(1, 3, 12, 0)


def state_of(*runs: str, batch: int | None = None) -> SinkState:
    state = None
    for run in runs:
        state = joined(state, Writing("q", run, 0))
    assert state is not None
    return state if batch is None else decided(state, Writing("q", runs[-1], batch), [ONE])


def test_a_batch_is_decided_once_and_by_the_latest_run() -> None:
    state = joined(None, Writing("q", "run-1", 0))
    assert not state.is_decided(0)
    after = decided(state, Writing("q", "run-1", 0), [OTHER, ONE])
    assert after.is_decided(0)
    assert not after.is_decided(1)
    assert after.committables == (ONE, OTHER)
    assert after.decided_run_id == "run-1"
    assert decided(after, Writing("q", "run-1", 0), [OTHER]) is after
    restarted = joined(after, Writing("q", "run-2", 0))
    assert restarted.run_ids == ("run-1", "run-2")
    assert restarted.committables == (ONE, OTHER)
    assert restarted.decided_run_id == "run-1"
    # What the run before decided stands, whoever replays the batch.
    assert decided(restarted, Writing("q", "run-2", 0), [OTHER]) is restarted
    assert decided(restarted, Writing("q", "run-2", 1), []).decided_run_id == "run-2"


def test_an_older_run_is_fenced() -> None:
    state = state_of("run-1", "run-2")
    with pytest.raises(SinkFencedError, match=r"^\[SINK_FENCED\] query q was started again \(run run-2\)"):
        joined(state, Writing("q", "run-1", 4))
    with pytest.raises(SinkFencedError):
        decided(state, Writing("q", "run-1", 4), [ONE])
    assert joined(state, Writing("q", "run-2", 4)) is state


def test_another_query_is_refused_until_it_is_given_up() -> None:
    state = state_of("run-1", batch=7)
    other = Writing("new", "run-9", 0)
    with pytest.raises(SinkOtherQueryError, match=r"(?s)^\[SINK_OTHER_QUERY\].*batch 7.*sinkReset=q"):
        joined(state, other)
    with pytest.raises(SinkOtherQueryError):
        joined(state, other, reset="elsewhere")
    taken = joined(state, other, reset="q")
    assert taken == SinkState("new", ("run-9",))
    with pytest.raises(SinkOtherQueryError, match="query new has taken the sink over from query q"):
        decided(taken, Writing("q", "run-1", 8), [])
    # The option may stay where it is: it names what is given up, and no more.
    later = decided(taken, other, [ONE])
    assert joined(later, Writing("new", "run-10", 1), reset="q").is_decided(0)


def test_a_batch_that_expired_is_written_anew_once() -> None:
    state = state_of("run-1", batch=7)
    again = joined(state, Writing("q", "run-2", 7), reset="run-1")
    assert not again.is_decided(7)
    assert again.is_decided(6)
    assert again.committables == ()
    decided_again = decided(again, Writing("q", "run-2", 7), [OTHER])
    assert joined(decided_again, Writing("q", "run-3", 7), reset="run-1").is_decided(7)
    # Another batch than the one that expired is not touched.
    assert joined(state, Writing("q", "run-2", 8), reset="run-1").is_decided(7)


def test_a_batch_before_the_latest_one_is_refused() -> None:
    state = state_of("run-1", batch=7)
    with pytest.raises(SinkAheadError, match=r"(?s)^\[SINK_AHEAD\] batch 6 .*batch 7.*another sinkId"):
        joined(state, Writing("q", "run-2", 6))


def test_nothing_is_decided_where_the_record_is_gone() -> None:
    for state in (None, state_of("run-1")):
        with pytest.raises(SinkStateError, match="was the topic of decisions deleted"):
            decided(state, Writing("q", "run-2", 0), [ONE])


def test_the_runs_that_are_remembered_are_bounded() -> None:
    state = state_of(*(f"run-{number}" for number in range(RUNS_MAX + 5)))
    assert len(state.run_ids) == RUNS_MAX
    assert state.run_ids[-1] == f"run-{RUNS_MAX + 4}"


def test_a_state_is_read_as_it_was_written() -> None:
    for state in (state_of("run-1"), state_of("run-1", "run-2", batch=3)):
        assert SinkState.from_json(state.to_json()) == state
    for text in (b"", b"[]", b'{"v":1}', b'{"v":1,"query":"q","runs":[],"batch":0,"run":"r","transactions":[[1]]}'):
        with pytest.raises(SinkStateError, match="never wrote"):
            SinkState.from_json(text)
    with pytest.raises(SinkStateError, match="of version 2"):
        SinkState.from_json(b'{"v":2}')


def test_a_transactional_id_says_which_run_it_is_of() -> None:
    name = transactional_id("sink", "run-1", 3, 0)
    assert run_of("sink", name) == "run-1"
    for other in ("sin", "sink2", "sink:txn"):
        assert run_of(other, name) is None
    assert run_of("sink", "sink/decisions") is None
    assert run_of("sink", transactional_id("sink:txn", "run-1", 3, 0)) is None
