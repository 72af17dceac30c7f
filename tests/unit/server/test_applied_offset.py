"""Who waits for the published metadata, and what becomes of them."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset
from tidelog.server.broker.applied_offset import AppliedOffset


def test_each_waits_for_as_much_as_it_wants() -> None:
    async def scenario() -> None:
        applied = AppliedOffset()
        early, late = (asyncio.ensure_future(applied.reached(Offset(end))) for end in (2, 5))
        await asyncio.sleep(0)
        applied.on_published(Offset(3))
        await early
        assert not late.done()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert len(applied) == 0
        await applied.reached(Offset(3))

    asyncio.run(scenario())


def test_who_waits_when_it_is_over_is_told_so_and_so_is_who_comes_later() -> None:
    async def scenario() -> None:
        applied = AppliedOffset()
        waiting = asyncio.ensure_future(applied.reached(Offset(1)))
        await asyncio.sleep(0)
        applied.on_stopped()
        for told in (waiting, applied.reached(Offset(1))):
            with pytest.raises(KafkaError) as caught:
                await told
            assert caught.value.code == Code.REQUEST_TIMED_OUT

    asyncio.run(scenario())
