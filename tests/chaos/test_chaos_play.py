"""A round finds what a fault lost, and says whether it was allowed to, and whether readers were told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.fault import Cost, Fault, Hurt, Stage
from chaos.play import Plan, play


def forget(stage: Stage) -> Iterator[str]:
    """All nodes lose what they have of the topic's first partition."""
    stage.go_on()
    stage.cluster.stop()
    for node in stage.cluster.nodes.values():
        shutil.rmtree(node.directory / f"{stage.topic}-0")
    yield "all"
    stage.cluster.start()


FORGET = Fault(kind="forget", strike=forget, hurts=Hurt.DISK, seconds=(0.0, 0.0))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cost", Cost)
def test_what_is_lost_is_found_and_who_reads_is_told(tmp_path: Path, cost: Cost) -> None:
    fault = replace(FORGET, cost=cost)
    row = play(Plan(kind=fault.kind, faults=[fault], seed=1, seconds=0.1), tmp_path, is_sealed=False)
    assert [one.kind for one in row.faults] == ["forget"], row.error
    assert row.lost > 0
    assert bool(row.error) == (cost is Cost.NOTHING), row.error
    if cost is Cost.TOLD_LOSSES:
        assert row.told_readers > 0
        assert row.unreported == 0
