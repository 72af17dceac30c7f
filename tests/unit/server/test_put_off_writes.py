"""Writes that followers put off come after their fetch has left, in turns."""

from __future__ import annotations

import asyncio
import logging

import pytest

from support.fixtures.waiting import until
from tidelog.server.replication.put_off_writes import PutOffWrites
from tidelog.server.tasks import Tasks


class Writer:
    def __init__(self, written: list[str], name: str, *, is_broken: bool = False) -> None:
        self._written, self._name, self._is_broken = written, name, is_broken

    def write(self) -> None:
        self._written.append(self._name)
        if self._is_broken:
            raise ZeroDivisionError("a bug")


def test_they_are_written_in_their_order_with_turns_for_others_in_between() -> None:
    async def story() -> None:
        written: list[str] = []
        writes = PutOffWrites(Tasks("replication"))
        first, second = Writer(written, "first"), Writer(written, "second")
        writes.add(first)
        writes.add(second)
        writes.add(first)
        await asyncio.sleep(0)
        assert written == [], "what was asked leaves first"
        seen = []
        while len(written) < 2:
            await asyncio.sleep(0)
            seen.append(len(written))
        assert (written, 1 in seen) == (["first", "second"], True)
        writes.add(second)
        await until(lambda: len(written) == 3)

    asyncio.run(story())


def test_a_bug_of_one_keeps_none_from_writing(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        written: list[str] = []
        writes = PutOffWrites(Tasks("replication"))
        writes.add(Writer(written, "broken", is_broken=True))
        writes.add(Writer(written, "other"))
        await until(lambda: len(written) == 2)
        assert written == ["broken", "other"]

    with caplog.at_level(logging.CRITICAL, logger="tidelog.server.tasks"):
        asyncio.run(story())
