"""Connections by broker: shared, opened again, never hammered."""

from __future__ import annotations

import asyncio

import pytest

from support.fixtures.scripted_broker import ScriptedBroker
from tidelog.base.errors import NetworkError
from tidelog.base.ids import BrokerId
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import ConnectionSettings
from tidelog.net.pool import ConnectionPool

ONE = BrokerId(1)


def make_pool(first_ms: int = 1, longest_ms: int = 2) -> ConnectionPool:
    return ConnectionPool(RealNetwork(), ConnectionSettings(client_id="t"), Backoff(first_ms, longest_ms, SystemRng()))


def test_one_connection_serves_all_who_ask_at_once_and_lanes_are_apart() -> None:
    async def work() -> None:
        async with ScriptedBroker() as broker:
            pool = make_pool()
            pool.set_addresses({ONE: Address("127.0.0.1", broker.port)})
            found = await asyncio.gather(*(pool.connection(ONE) for _ in range(5)))
            assert len(set(map(id, found))) == 1
            other = await pool.connection(ONE, "fetch")
            assert other is not found[0]
            assert broker.connections == 2
            assert pool.open_connections() == [found[0]]
            await pool.close()
            with pytest.raises(NetworkError, match="the client is closed"):
                await pool.connection(ONE)

    asyncio.run(work())


def test_a_connection_that_broke_is_opened_again() -> None:
    async def work() -> None:
        async with ScriptedBroker() as broker:
            pool = make_pool()
            pool.set_addresses({ONE: Address("127.0.0.1", broker.port)})
            first = await pool.connection(ONE)
            first.close()
            assert pool.ready(ONE) is None
            second = await pool.connection(ONE)
            assert second is not first
            assert pool.ready(ONE) is second
            await pool.close()

    asyncio.run(work())


def test_after_failures_the_next_attempt_waits() -> None:
    async def work() -> None:
        async with ScriptedBroker() as broker:
            pool = make_pool(first_ms=40, longest_ms=40)
            pool.set_addresses({ONE: Address("127.0.0.1", broker.port)})
            await broker.stop()
            with pytest.raises(NetworkError, match="connection refused"):
                await pool.connection(ONE)
            await broker.start()
            start = asyncio.get_running_loop().time()
            await pool.connection(ONE)
            assert asyncio.get_running_loop().time() - start >= 0.03
            await pool.close()

    asyncio.run(work())


def test_a_broker_that_moved_is_left_and_found_again() -> None:
    async def work() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            pool = make_pool()
            pool.set_addresses({ONE: Address("127.0.0.1", old.port)})
            first = await pool.connection(ONE)
            pool.set_addresses({ONE: Address("127.0.0.1", new.port)})
            assert "moved away" in str(first.closed)
            assert (await pool.connection(ONE)).address.port == new.port
            await pool.close()

    asyncio.run(work())


def test_a_broker_that_nobody_knows_is_an_error() -> None:
    async def work() -> None:
        pool = make_pool()
        with pytest.raises(NetworkError, match="broker 1 is not in the cluster's metadata"):
            await pool.connection(ONE)
        await pool.close()

    asyncio.run(work())
