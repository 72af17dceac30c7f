"""kafka-delegation-tokens and our own admin client, about the same tokens of a node (KIP-48)."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from support.clients.kafka_tools import KafkaTools
from support.fixtures.memory_disk import MemoryDisk
from tidelog import KafkaError, aio
from tidelog.base.errors import Code
from tidelog.base.principals import Principal
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport import server_connection

SECONDS_MAX = 120.0
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "logs",
    "delegation.token.secret.key": "what all nodes share",
}

Tool = Callable[..., Awaitable[str]]
"""kafka-delegation-tokens at the node; `status` is what it has to end with."""


def run(tools: KafkaTools, directory: Path, scenario: Callable[[Tool, aio.Admin], Awaitable[None]]) -> None:
    """A node in this process, so that a test can say who connects."""
    nothing = directory / "client.properties"
    nothing.touch()

    async def bounded() -> None:
        node = Node(
            NodeConfig.from_properties(PROPERTIES),
            disk=MemoryDisk(),
            network=RealNetwork(),
            clock=SystemClock(),
            rng=SystemRng(),
            executor=InlineExecutor(),
        )
        await node.start()
        bootstrap = f"127.0.0.1:{node.listeners.first.port}"
        at = ("--bootstrap-server", bootstrap, "--command-config", str(nothing))

        async def tool(*arguments: str, status: int = 0) -> str:
            ran = await asyncio.to_thread(partial(tools.run, "kafka-delegation-tokens", *at, *arguments, status=status))
            return ran.output + ran.errors

        async with aio.Admin(bootstrap) as admin:
            await scenario(tool, admin)
        await node.stop()

    asyncio.run(asyncio.wait_for(bounded(), SECONDS_MAX))


@pytest.fixture
def as_alice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects is alice."""
    monkeypatch.setattr(server_connection, "ANONYMOUS", Principal("User", "alice"))


def rows(said: str) -> dict[str, str]:
    """HMACs by the ids of tokens, as the tool prints them."""
    return dict(re.findall(r"^([\w-]{22}) +([A-Za-z0-9+/]{86}==) +User:", said, re.MULTILINE))


@pytest.mark.usefixtures("as_alice")
def test_kafkas_tool_creates_renews_describes_and_ends_tokens(tools: KafkaTools, tmp_path: Path) -> None:
    async def scenario(tool: Tool, admin: aio.Admin) -> None:
        said = await tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        [(token_id, hmac)] = rows(said).items()
        [token] = await admin.describe_delegation_tokens()
        assert (token.token_id, b64encode(token.hmac).decode()) == (token_id, hmac)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert token.max_ms - token.issued_ms == 604_800_000

        own = await admin.create_delegation_token(max_lifetime_ms=60_000)
        said = await tool("--describe", "--owner-principal", "User:alice")
        assert rows(said) == {token_id: hmac, own.token_id: b64encode(own.hmac).decode()}
        assert rows(await tool("--describe", "--owner-principal", "User:bob")) == {token_id: hmac}
        assert rows(await tool("--describe", "--owner-principal", "User:carol")) == {}
        assert rows(await tool("--describe")) == {}  # it names no owners, which is not all of them: so answers Kafka

        assert "Completed renew operation" in await tool("--renew", "--renew-time-period", "3600000", "--hmac", hmac)
        [renewed, _] = await admin.describe_delegation_tokens()
        assert renewed.expires_ms < token.expires_ms
        assert await admin.renew_delegation_token(own.hmac, period_ms=10_000) < own.expires_ms

        assert "Completed expire operation" in await tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert [one.token_id for one in await admin.describe_delegation_tokens()] == [own.token_id]
        assert "DelegationTokenNotFound" in await tool("--renew", "--renew-time-period", "-1", "--hmac", hmac, status=1)

    run(tools, tmp_path, scenario)


def test_nobody_has_none(tools: KafkaTools, tmp_path: Path) -> None:
    async def scenario(tool: Tool, admin: aio.Admin) -> None:
        said = await tool("--create", "--max-life-time-period", "-1", status=1)
        assert "UnsupportedByAuthentication" in said
        with pytest.raises(KafkaError) as error:
            await admin.describe_delegation_tokens()
        assert error.value.code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    run(tools, tmp_path, scenario)
