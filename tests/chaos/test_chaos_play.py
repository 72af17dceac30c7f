"""A round finds what a fault lost, and says whether it was allowed to, and whether readers were told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from chaos.fault import Cost, Fault, Hurt, Stage
from chaos.operator_faults import elect
from chaos.play import Plan, judge, play
from chaos.stranger_faults import half_send, join_with_much
from support.load.histories import Given, History, RecordId, Told


def forget(stage: Stage) -> Iterator[str]:
    """All nodes lose what they have of the topic's first partition: nobody leads it before an operator says so."""
    stage.go_on()
    stage.cluster.stop()
    for node in stage.cluster.nodes.values():
        shutil.rmtree(node.directory / f"{stage.topic}-0")
    yield "all"
    stage.cluster.start()
    elect(stage, 0)


FORGET = Fault(kind="forget", strike=forget, hurts=Hurt.DISK, seconds=(0.0, 0.0), cost=Cost.TOLD_LOSSES)


@pytest.mark.timeout(240)
def test_what_is_lost_is_found_and_who_reads_is_told(tmp_path: Path) -> None:
    row = play(Plan(kind=FORGET.kind, faults=[FORGET], seed=1, seconds=0.1), tmp_path, is_sealed=False)
    assert not row.error
    assert [one.kind for one in row.faults] == ["forget"]
    assert row.lost > 0
    assert row.told_readers > 0
    assert row.unreported == 0


class StoppedNode:
    """A node that takes connections, as its system does for it, and no bytes."""

    host, port = "127.0.0.1", 1
    is_running = False  # by the time that its memory is looked at: another fault has killed it

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, _: int) -> None:
        self.asked += 1
        raise TimeoutError


@pytest.mark.parametrize("fault", [half_send, join_with_much])
def test_a_stranger_waits_once_for_a_node_that_is_stopped(
    fault: Callable[[Stage], Iterator[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = StoppedNode()
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: node.ask(node.port))
    stage = cast(Stage, SimpleNamespace(victim=lambda: node, go_on=lambda: None))
    assert len(list(fault(stage))) == 1
    assert node.asked == 1


def history(*, is_lost: bool = False, told: bool = False, reported: bool = False) -> History:
    """One record, acknowledged at offset 0 and read there."""
    record = RecordId("ours", 0, 0)
    given = Given(0, 0, record.value, 0)
    seen = History(idempotent={"ours"}, sent={("ours", 0): 1}, acknowledged={record: 0})
    seen.final = {0: [] if is_lost else [given]}
    seen.given = {"ours": [given, *([Told(0, 0, 0)] if told else []), *([given] if told and not is_lost else [])]}
    seen.reported = ["a loss"] if reported else []
    return seen


def test_a_fault_that_may_cost_nothing_has_cost_nothing_and_nobody_was_told_so() -> None:
    judge(history(), Cost.NOTHING)
    for wrong, why in (
        (history(is_lost=True, told=True), r"LOST \(1\)"),
        (history(told=True), "a reader was told of a loss that is none"),
        (history(reported=True), "told of losses that are none"),
    ):
        with pytest.raises(AssertionError, match=why):
            judge(wrong, Cost.NOTHING)


def test_a_fault_that_may_lose_records_has_told_so() -> None:
    judge(history(), Cost.TOLD_LOSSES)
    judge(history(is_lost=True, told=True), Cost.TOLD_LOSSES)
    with pytest.raises(AssertionError, match=r"VANISHED \(1\)"):
        judge(history(is_lost=True, reported=True), Cost.TOLD_LOSSES)
    unread = history(is_lost=True)
    unread.given = {"ours": []}
    with pytest.raises(AssertionError, match="1 records lost, and nobody was told"):
        judge(unread, Cost.TOLD_LOSSES)
