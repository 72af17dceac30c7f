"""What clients see of the metadata is watched in runs: reads that go back, and writes that are not seen, are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.descriptions import TopicDescription
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.one_node import OneNodeStory
from tidelog.sim.runs.report import Report
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld

MINUTES = 0.2
PLAN = WorkloadPlan(producers=0, consumers=1, administers=True)
Found = dict[str, TopicDescription]


def run(seed: int) -> Report:
    with SimulatedWorld(seed) as world:
        return OneNodeStory(world, PLAN).run(MINUTES, [Fault("kill", 3_000, lasts_ms=300)])


def plant(monkeypatch: pytest.MonkeyPatch, choose: Callable[[list[Found]], Found]) -> None:
    """Answer one of the answers so far in place of the last."""
    describe_topics, answers = AsyncAdmin.describe_topics, []

    async def chosen(
        self: AsyncAdmin, topics: Iterable[str] | None = None, *, include_eligible_leaders: bool = False
    ) -> Found:
        answers.append(await describe_topics(self, topics, include_eligible_leaders=include_eligible_leaders))
        return choose(answers)

    monkeypatch.setattr(AsyncAdmin, "describe_topics", chosen)


def test_nothing_goes_back_and_all_is_seen() -> None:
    report = run(1)
    assert report.broken == ()
    assert report.checks["MetadataNeverGoesBack"] == report.checks["OwnWritesSeen"] > 5


def test_an_answer_that_is_one_write_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, lambda answers: answers[-2] if len(answers) > 1 else answers[-1])
    assert run(1).broken_names == {"OwnWritesSeen"}


def test_an_answer_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the restart, the leader epochs from before it are told once more."""

    def older(answers: list[Found]) -> Found:
        now = answers[-1]
        if len(answers) % 2:
            return now
        return {
            name: next(answer[name] for answer in answers if name in answer and len(answer[name].partitions) == size)
            for name, size in ((name, len(topic.partitions)) for name, topic in now.items())
        }

    plant(monkeypatch, older)
    assert run(1).broken_names == {"MetadataNeverGoesBack"}
