"""Who waits for the metadata of a token, and how that ends (KIP-1243)."""

from __future__ import annotations

import asyncio

import pytest

from support.token_client import LATE, OneNode, codes_of, metadata, play, produce
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import Offset
from tidelog.server.listeners import CLIENTS

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
