"""A connection that closes starts a question; only a refusal of the broker's port costs it its leaderships early."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.waiting import until
from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.cli.ports import free_ports
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.metadata.features import own_features
from tidelog.net.address import Address
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.server.broker.broker import Broker
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.wire.messages.api_62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from tidelog.wire.messages.api_63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

SECONDS_MAX = 60.0
ANSWER_MS_MAX = 30_000
HOST = "127.0.0.1"
US, OTHER = BrokerId(1), BrokerId(2)
FOREVER_MS = "3600000"


class CountingNetwork(RealNetwork):
    """The machine's own, which says how often a port was asked."""

    def __init__(self) -> None:
        self.answers: list[bool] = []

    async def refuses(self, host: str, port: int) -> bool:
        answer = await super().refuses(host, port)
        self.answers.append(answer)
        return answer


class Other:
    """Another broker, as far as the controller hears of it."""

    def __init__(self, node: Node, port: int) -> None:
        self.node = node
        self.port = port
        self.epoch = BrokerEpoch(0)
        self.connection: Connection

    async def connect(self) -> None:
        port = self.node.listeners.advertised("CONTROLLER").port
        self.connection = await open_connection(RealNetwork(), Address(HOST, port), ConnectionSettings("broker-2"))

    async def register(self, incarnation: int = 1) -> None:
        await self.connect()
        request = BrokerRegistrationRequest(
            broker_id=OTHER,
            cluster_id=self.node.cluster_id,
            incarnation_id=UUID(int=incarnation),
            listeners=[Listener("PLAINTEXT", HOST, self.port, 0)],
            features=[Feature(*one) for one in own_features()],
            log_dirs=[UUID(int=77)],
        )
        answer = await self.connection.request(request, BrokerRegistrationResponse, timeout_ms=ANSWER_MS_MAX)
        assert not answer.error_code
        self.epoch = BrokerEpoch(answer.broker_epoch)

    async def beat(self) -> None:
        """It is let in, if it was not, and heard of."""
        request = BrokerHeartbeatRequest(
            broker_id=OTHER, broker_epoch=self.epoch, current_metadata_offset=self.node.image.last_offset or 0
        )
        answer = await self.connection.request(request, BrokerHeartbeatResponse, timeout_ms=ANSWER_MS_MAX)
        assert not answer.error_code
        await self.node.caught_up()

    @property
    def is_fenced(self) -> bool:
        return self.node.image.brokers[OTHER].is_fenced

    def reset(self) -> None:
        """As a middle box does."""
        link = self.connection._link
        transport = link._transport  # type: ignore[union-attr]
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.connection.close()


Scenario = Callable[[Other, CountingNetwork], Awaitable[None]]


def run(scenario: Scenario, **settings: str) -> None:
    async def main() -> None:
        properties = {
            "node.id": str(US),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{HOST}:0,CONTROLLER://{HOST}:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{US}@{HOST}:0",
            "log.dirs": "logs",
            "broker.session.timeout.ms": FOREVER_MS,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        network = CountingNetwork()
        node = Node(
            NodeConfig.from_properties(properties),
            disk=MemoryDisk(),
            network=network,
            clock=SystemClock(),
            rng=SystemRng(),
            executor=InlineExecutor(),
        )
        async with asyncio.timeout(SECONDS_MAX):
            await node.start()
            other = Other(node, free_ports(HOST, [None])[0])
            await other.register()
            await other.beat()
            assert not other.is_fenced
            await scenario(other, network)
            other.connection.close()
            await node.stop()

    asyncio.run(main())


@asynccontextmanager
async def serving(port: int, *, accepts: bool = True) -> AsyncIterator[None]:
    """Somebody listens; one that stands still accepts nobody, which its system does in its place."""
    with socket.create_server((HOST, port)) as listening:
        listening.setblocking(False)
        if not accepts:
            yield
            return
        server = await asyncio.start_server(lambda _, writer: writer.close(), sock=listening)
        async with server:
            yield


def test_a_process_that_is_gone_is_fenced_long_before_its_session_ends() -> None:
    async def scenario(other: Other, network: CountingNetwork) -> None:
        other.connection.close()
        await until(lambda: other.is_fenced)
        assert network.answers[-1]

    run(scenario)


def test_where_it_is_turned_off_the_session_alone_counts() -> None:
    async def scenario(other: Other, network: CountingNetwork) -> None:
        other.connection.close()
        await until(lambda: not other.node.broker_watch._contacts.get(OTHER))
        assert not other.node.broker_watch._probes
        assert not network.answers

    run(scenario, broker_early_fencing_enable="false")


@pytest.mark.parametrize("closed_by", ["it", "a middle box", "the controller", "the controller, for it was idle"])
@pytest.mark.parametrize("accepts", [True, False])
def test_a_connection_that_closes_costs_a_living_broker_nothing(closed_by: str, accepts: bool) -> None:
    """As one does that authenticates anew, is idle, has a middle box in its way, or stands still (SIGSTOP)."""

    async def scenario(other: Other, network: CountingNetwork) -> None:
        async with serving(other.port, accepts=accepts):
            if closed_by == "it":
                other.connection.close()
            elif closed_by == "a middle box":
                other.reset()
            else:
                _, connection = other.node.broker_watch._contacts[OTHER]
                if closed_by == "the controller":
                    connection.close()
                else:
                    for _ in range(3):
                        connection.sweep(1)
            await until(lambda: len(network.answers) >= 3)
            assert not any(network.answers)
            assert not other.is_fenced
            await other.connect()
            await other.beat()
            await until(lambda: not other.node.broker_watch._probes)
            assert not other.is_fenced

    run(scenario)


def test_a_broker_that_comes_and_goes_is_asked_and_stays() -> None:
    async def scenario(other: Other, network: CountingNetwork) -> None:
        async with serving(other.port):
            for number in range(1, 6):
                asked = len(network.answers)
                other.connection.close()
                await until(lambda: len(network.answers) > asked)  # noqa: B023
                await other.connect()
                await other.beat()
                assert not other.is_fenced, number
            assert not any(network.answers)

    run(scenario)


def test_a_broker_whose_port_refuses_though_it_lives_is_taken_for_dead_once() -> None:
    """Something in between answers in its name. It is back with its next heartbeat, and is not suspected again."""

    async def scenario(other: Other, network: CountingNetwork) -> None:
        other.connection.close()
        await until(lambda: other.is_fenced)
        for _ in range(3):
            await other.connect()
            await other.beat()
            assert not other.is_fenced
            _, connection = other.node.broker_watch._contacts[OTHER]
            other.connection.close()
            await until(lambda: connection not in other.node.connections.open)  # noqa: B023
            assert not other.node.broker_watch._probes
        assert network.answers.count(True) == 1

    run(scenario)


def test_an_older_connection_of_a_broker_says_nothing_of_its_next_incarnation() -> None:
    async def scenario(other: Other, network: CountingNetwork) -> None:
        older = other.connection
        await other.register(incarnation=2)
        await other.beat()
        _, connection = other.node.broker_watch._contacts[OTHER]
        older.close()
        await until(lambda: connection in other.node.connections.open and len(other.node.connections.open) <= 3)
        await other.beat()
        assert not other.is_fenced
        assert not network.answers

    run(scenario)


def test_a_node_that_stops_asks_for_nobody() -> None:
    """It hangs up on everybody, on itself too, while its controller is still the active one."""

    async def scenario(other: Other, network: CountingNetwork) -> None:
        stopping = asyncio.ensure_future(other.node.stop())
        await stopping
        assert not other.node.broker_watch._probes
        assert not network.answers

    run(scenario)


def test_a_port_that_was_asked_before_a_leadership_began_says_nothing_in_it() -> None:
    """Who was heard of then is known there alone: what was suspected before knows nothing of it."""

    async def scenario(other: Other, network: CountingNetwork) -> None:
        watch = other.node.broker_watch
        asked, answer = asyncio.Event(), asyncio.Event()

        async def refuses(host: str, port: int) -> bool:
            asked.set()
            await answer.wait()
            return True

        network.refuses = refuses  # type: ignore[method-assign]
        other.connection.close()
        await asked.wait()
        watch._of = None  # as when this node stood still for long
        await other.connect()
        await other.beat()
        answer.set()
        await until(lambda: not watch._probes)
        await other.node.caught_up()
        assert not other.is_fenced

    run(scenario)


def test_a_broker_that_was_let_in_refuses_nobody_while_it_tidies_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be many strays, and a connection that closes meanwhile would have it taken for dead."""
    set_strays_aside, answers = Broker.set_strays_aside, []

    async def looking(self: Broker) -> None:
        us = self.image.brokers[US]
        endpoint = us.endpoint("PLAINTEXT")
        assert endpoint is not None
        assert not us.is_fenced
        answers.append(await RealNetwork().refuses(HOST, endpoint.port))
        await set_strays_aside(self)

    monkeypatch.setattr(Broker, "set_strays_aside", looking)

    async def scenario(other: Other, network: CountingNetwork) -> None:
        assert answers == [False]

    run(scenario)


# Who refuses.


def test_a_port_that_nobody_listens_on_refuses_and_one_that_nobody_accepts_on_does_not() -> None:
    async def scenario() -> None:
        network = RealNetwork()
        (port,) = free_ports(HOST, [None])
        assert await network.refuses(HOST, port)
        assert await network.refuses("localhost", port), "whatever addresses that is"
        async with serving(port, accepts=False):
            assert not await network.refuses(HOST, port)
            assert not await network.refuses("localhost", port), "one address is enough"
        assert not await network.refuses("no-such-host.invalid", port)

    asyncio.run(scenario())


def test_a_queue_that_is_full_is_no_refusal() -> None:
    async def scenario() -> None:
        with socket.socket() as listening:
            listening.bind((HOST, 0))
            listening.listen(0)
            port = listening.getsockname()[1]
            waiting = [socket.socket() for _ in range(4)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex((HOST, port))
            asking = asyncio.ensure_future(RealNetwork().refuses(HOST, port))
            done, _ = await asyncio.wait({asking}, timeout=0.2)
            assert not any(one.result() for one in done)
            asking.cancel()
            for one in waiting:
                one.close()

    asyncio.run(scenario())
