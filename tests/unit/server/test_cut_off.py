"""What a node's log says of leaders that are cut off: once for an incident, however many they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.server.replication.cut_off import GATHER_SECONDS, CutOffLeaders
from tidelog.server.replication.leader_driver import LeaderDriver
from tidelog.sim.world.world import SimulatedWorld


class Led:
    """As much of a `LeaderDriver` as has a name."""

    def __init__(self, name: str) -> None:
        self.partition = SimpleNamespace(topic_partition=name)


def leading(name: str) -> LeaderDriver:
    return cast(LeaderDriver, Led(name))


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@pytest.fixture
def told() -> Told:
    return Told()


def test_an_incident_is_told_of_once_and_so_is_its_end(told: Told) -> None:
    async def story() -> None:
        leaders = CutOffLeaders()
        cut_off = [leading(f"flights-{number}") for number in range(7)]
        for each in cut_off:
            leaders.on_changed(each, True)
        await asyncio.sleep(2 * GATHER_SECONDS)
        ((level, line),) = told.lines
        assert level == "WARNING"
        assert "flights-0, flights-1, flights-2, flights-3, flights-4 and 2 more for" in line
        for each in cut_off[1:]:
            leaders.on_changed(each, False)
        await asyncio.sleep(2 * GATHER_SECONDS)
        assert len(told.lines) == 1, "one is cut off still"
        leaders.on_changed(cut_off[0], False)
        await asyncio.sleep(2 * GATHER_SECONDS)
        assert [level for level, _ in told.lines] == ["WARNING", "INFO"]

    play(story(), told)


def test_what_is_over_in_a_moment_is_not_told_of(told: Told) -> None:
    async def story() -> None:
        leaders = CutOffLeaders()
        leaders.on_changed(leading("flights-0"), True)
        one = leading("flights-1")
        leaders.on_changed(one, True)
        leaders.on_changed(one, False)
        await asyncio.sleep(2 * GATHER_SECONDS)
        ((_, line),) = told.lines
        assert "flights-1" not in line
        leaders.on_changed(one, True)
        leaders.stop()
        await asyncio.sleep(2 * GATHER_SECONDS)
        assert len(told.lines) == 1

    play(story(), told)


def play(story: Coroutine[object, object, None], told: Told) -> None:
    logger = logging.getLogger("tidelog.server.replication")
    level = logger.level
    logger.addHandler(told)
    logger.setLevel(logging.INFO)
    try:
        with SimulatedWorld(1) as world:
            world.run(story, limit_seconds=60)
    finally:
        logger.removeHandler(told)
        logger.setLevel(level)
