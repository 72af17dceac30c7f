"""The machines of real nodes under faults, recorded, and played once more by themselves."""

from __future__ import annotations

from collections import Counter

import pytest

from support.fixtures.recorded_machines import Trace, recording, replay
from tidelog.quorum.node import QuorumNode
from tidelog.replica import FollowerReplica, LeaderReplica
from tidelog.server.broker import broker
from tidelog.server.quorum import metadata_quorum
from tidelog.sim.runs.run import run_seed


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Trace]:
    traces: list[Trace] = []
    monkeypatch.setattr(broker, "LeaderReplica", recording(LeaderReplica, traces))
    monkeypatch.setattr(broker, "FollowerReplica", recording(FollowerReplica, traces))
    monkeypatch.setattr(metadata_quorum, "QuorumNode", recording(QuorumNode, traces))
    return traces


@pytest.mark.parametrize("seed", [3, 8])
def test_what_real_nodes_did_under_faults_their_machines_do_once_more(seed: int, traces: list[Trace]) -> None:
    report = run_seed(seed, nodes=3, minutes=0.1)
    assert not report.broken
    replayed: Counter[type] = Counter()
    for trace in traces:
        replayed[trace.kind] += replay(trace)
    assert min(replayed[kind] for kind in (LeaderReplica, FollowerReplica, QuorumNode)) > 100, replayed


def test_a_machine_that_is_another_than_was_recorded_is_noticed(traces: list[Trace]) -> None:
    run_seed(3, nodes=3, minutes=0.02)
    trace = next(trace for trace in traces if trace.kind is LeaderReplica and len(trace.calls) > 10)
    place = next(place for place, call in enumerate(trace.calls) if call.name == "on_appended")
    del trace.calls[place]
    with pytest.raises(AssertionError):
        replay(trace)
