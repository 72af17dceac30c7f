"""Who waits for the metadata of a token, and how that ends (KIP-1243)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Iterator
from functools import partial
from types import SimpleNamespace

import pytest

from support.clients.token_client import LATE, OneNode, codes_of, metadata, play, produce
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import Offset
from tidelog.security.authorizer import AllowEverything
from tidelog.server.api.fetch_sessions import PARTITION_BYTES
from tidelog.server.api.long_requests import kept_bytes
from tidelog.server.api.tokens import LOOKED_AT_ONCE_MAX, TokenGate
from tidelog.server.transport.listeners import CLIENTS
from tidelog.wire import ConsistencyState, decode
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic

WAIT_SECONDS = 5
STALE = Code.STALE_METADATA
MISSING = "other"


def test_many_wait_at_once_and_each_is_answered_when_its_own_metadata_is_there() -> None:
    async def story(one: OneNode) -> None:
        first = one.last_offset + 1
        askers = [one.client(first + number % 6) for number in range(60)]
        clients = [await each.__aenter__() for each in askers]
        asking = [asyncio.ensure_future(client.ask(metadata("flights"))) for client in clients]
        await one.until(lambda: one.waiting == 60)
        await one.make("a")  # two records
        await one.until(lambda: one.waiting == 40)
        async with one.client() as other:  # nobody else is held up
            assert codes_of(await other.ask(metadata("flights"))) == [0]
        await one.make("b")
        await one.make("c")
        for client, answer in zip(clients, await asyncio.gather(*asking), strict=True):
            assert codes_of(answer) == [0]
            assert client.sends is not None
            assert (client.stamps[-1].token or 0) >= (client.sends.token or 0)
        for each in askers:
            await each.__aexit__(None, None, None)

    play(story)


def test_nothing_is_left_of_a_client_that_goes_away() -> None:
    async def story(one: OneNode) -> None:
        async with one.client(LATE) as client:
            asking = asyncio.ensure_future(client.ask(metadata("flights")))
            await one.until(lambda: one.waiting)
        with pytest.raises(NetworkError):
            await asking
        await one.until(lambda: not one.waiting)
        assert not [task for task in asyncio.all_tasks() if "TokenGate" in repr(task)]

    play(story)


def test_a_broker_that_stops_says_so_to_those_who_wait() -> None:
    async def story(one: OneNode) -> None:
        loop = asyncio.get_running_loop()
        async with one.client(LATE) as reads, one.client(LATE) as writes:
            asking = asyncio.ensure_future(reads.ask(metadata("flights")))
            writing = asyncio.ensure_future(writes.ask(produce(MISSING), version=12))
            await one.until(lambda: one.waiting == 2)
            began = loop.time()
            await one.simulated.stop()
            assert codes_of(await asking) == [STALE]
            with pytest.raises(NetworkError):
                await writing
            assert loop.time() - began < WAIT_SECONDS

    play(story)


def test_the_wait_can_be_set() -> None:
    async def story(one: OneNode) -> None:
        one.simulated._properties["metadata.consistency.wait.ms.max"] = "0"
        await one.simulated.stop()
        await one.simulated.start()
        loop = asyncio.get_running_loop()
        async with one.client(LATE) as client:
            began = loop.time()
            assert codes_of(await client.ask(metadata("flights"))) == [STALE]
            assert loop.time() - began < 0.1

    play(story)


def test_waiting_leaves_the_request_as_it_came() -> None:
    """What comes behind it on the connection takes its place in the buffer."""

    async def story(one: OneNode) -> None:
        async with one.client(one.last_offset + 1) as client:
            first = asyncio.ensure_future(client.ask(produce(MISSING), version=12))
            await one.until(lambda: one.waiting)
            second = asyncio.ensure_future(client.ask(metadata(*"abcdefghijklmnopqrstuvwxyz" * 20)))
            await asyncio.sleep(0.1)
            await one.make(MISSING)
            (topic,) = (await first).responses
            assert topic.partition_responses[0].error_code == Code.NONE
            await second
        assert one.node.broker.partition(MISSING, 0).log.log_end_offset == Offset(1)

    play(story)


def test_who_finds_no_room_to_wait_is_refused_at_once() -> None:
    """Whatever tokens are made up: what waits for them takes no more memory than is set."""

    async def story(one: OneNode) -> None:
        one.node.listeners.memory[CLIENTS].requests.limit_bytes = 530  # a quarter is not for those who wait
        loop = asyncio.get_running_loop()
        async with one.client(LATE) as first, one.client(LATE) as second, one.client(LATE) as reads:
            waits = asyncio.ensure_future(first.ask(produce(MISSING), version=12))
            await one.until(lambda: one.waiting == 1)
            began = loop.time()
            many = [f"{MISSING}-{number}" for number in range(40)]
            with pytest.raises(NetworkError):
                await second.ask(produce("x" * 240), version=12)
            assert codes_of(await reads.ask(metadata(*many))) == [STALE]
            assert loop.time() - began < 1
            with pytest.raises(NetworkError):
                await waits
            assert one.waiting == 0
        async with one.client(one.last_offset + 1) as later:
            waits = asyncio.ensure_future(later.ask(produce(MISSING), version=12))
            await one.until(lambda: one.waiting)
            await one.make(MISSING)
            assert (await waits).responses[0].partition_responses[0].error_code == Code.NONE

    play(story)


MANY = 3_000


def follow(*, session_epoch: int = -1) -> FetchRequest:
    """A partition that is there and holds nothing, many times over."""
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)] * MANY
    topics = [FetchTopic(topic="flights", partitions=asked)]
    return FetchRequest(max_wait_ms=30_000, min_bytes=1, session_epoch=session_epoch, topics=topics)


def requests_kept() -> set[int]:
    """By identity, those that list anything."""
    return {id(each) for each in gc.get_objects() if isinstance(each, FetchRequest) and each.topics}


@pytest.mark.parametrize(("session_epoch", "held_bytes"), [(-1, PARTITION_BYTES), (0, 0)])
def test_a_long_fetch_that_waits_holds_what_it_follows_and_no_more(session_epoch: int, held_bytes: int) -> None:
    async def story(one: OneNode) -> None:
        requests = one.node.listeners.memory[CLIENTS].requests
        asked = follow(session_epoch=session_epoch)
        before = requests_kept()  # asked, and what other tests left
        async with one.client() as client:
            waits = asyncio.ensure_future(client.ask(asked, version=12))
            await one.until(lambda: requests.used_bytes > held_bytes)
            await one.until(lambda: requests.used_bytes == held_bytes)
            assert not waits.done()
            assert requests_kept() == before
            async with one.client() as other:
                await other.ask(produce("flights"), version=12)
            assert (await waits).error_code == 0
            assert requests.used_bytes == 0

    play(story)


def test_a_long_request_is_counted_whenever_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(one: OneNode) -> None:
        requests = one.node.listeners.memory[CLIENTS].requests
        names = [f"{number}" for number in range(MANY)]
        executor, counted_bytes = one.node.executor, []

        def compute(work: partial[object]) -> Awaitable[object]:
            if work.func is decode:
                counted_bytes.append(requests.used_bytes)
            return executor.run(work)

        monkeypatch.setattr(executor, "compute", compute)
        async with one.client(one.last_offset + 1) as client:
            waits = asyncio.ensure_future(client.ask(metadata(*names)))
            await one.until(lambda: one.waiting)
            frame_bytes = requests.used_bytes
            await one.make("other")
            assert codes_of(await waits) == [Code.UNKNOWN_TOPIC_OR_PARTITION] * MANY
            assert counted_bytes == [kept_bytes(frame_bytes)] * 2
            assert requests.used_bytes == 0

    play(story)


def test_what_takes_long_to_look_at_is_looked_at_in_turns() -> None:
    """A short request may belong to a session that follows very much."""
    looks = 0

    def are_denied(node: object, request: bool) -> Iterator[bool]:
        nonlocal looks
        for _ in range(5 * LOOKED_AT_ONCE_MAX):
            looks += 1
            yield False
        yield request

    gate, known = TokenGate(SimpleNamespace(cluster_id="c", authorizer=AllowEverything())), api(ApiKey.FETCH)
    gate._denials = {ApiKey.FETCH: are_denied}
    assert gate.must_wait(known, False, ConsistencyState("c", LATE)) is None
    assert looks <= LOOKED_AT_ONCE_MAX + 1

    async def story() -> None:
        for is_denied in (False, True):
            looking, turns = (
                asyncio.ensure_future(gate.must_wait_in_turns(known, is_denied, ConsistencyState("c", 1))),
                0,
            )
            while not looking.done():
                await asyncio.sleep(0)
                turns += 1
            assert await looking is is_denied
            assert turns >= 5

    asyncio.run(story())
