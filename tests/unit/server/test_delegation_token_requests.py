"""Requests about delegation tokens, at a node: who sees which tokens, and which one gets what it asks for (KIP-48)."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code
from tidelog.base.principals import ANONYMOUS, Principal, Requester
from tidelog.cli import app
from tidelog.cli.command import FAILED
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.metadata.configs import BrokerSettings
from tidelog.security.authorizer import ANYTHING
from tidelog.security.delegation_tokens import token_hmac
from tidelog.server.api.handlers import (
    api_38_create_delegation_token as create_api,
)
from tidelog.server.api.handlers import (
    api_39_renew_delegation_token as renew_api,
)
from tidelog.server.api.handlers import (
    api_40_expire_delegation_token as expire_api,
)
from tidelog.server.api.handlers import (
    api_41_describe_delegation_token as describe_api,
)
from tidelog.server.api.request_context import RequestContext
from tidelog.server.membership.token_expiry import TokenExpiry
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport import server_connection
from tidelog.server.transport.listener_roles import BROKER
from tidelog.wire import ApiKey, RequestHeader
from tidelog.wire.messages.api_38_create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.wire.messages.api_39_renew_delegation_token import RenewDelegationTokenRequest
from tidelog.wire.messages.api_40_expire_delegation_token import ExpireDelegationTokenRequest
from tidelog.wire.messages.api_41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

SECRET = "what all nodes share"
ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
SECONDS_MAX = 60.0


class Rights:
    """An authorizer by a list of what is allowed, and of whom: the node itself asks what nodes ask."""

    deniable = ANYTHING

    def __init__(self, *allowed: tuple[Principal, AclOperation, AclResourceType, str]) -> None:
        self.allowed = allowed

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if operation is AclOperation.CLUSTER_ACTION:
            return True
        return (requester.principal, operation, resource_type, name) in self.allowed

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        raise AssertionError("nobody asks")


class NextWeek(SystemClock):
    """When every token has expired."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 7 * 86_400_000


class Asking:
    """A node that runs, and requests of users to it."""

    def __init__(self, **settings: str) -> None:
        properties = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:0",
            "log.dirs": "logs",
        }
        more = {key.replace("_", "."): value for key, value in settings.items()}
        self.node = Node(
            NodeConfig.from_properties(properties | more),
            disk=MemoryDisk(),
            network=RealNetwork(),
            clock=SystemClock(),
            rng=SystemRng(),
            executor=InlineExecutor(),
        )
        self.node.authorizer = Rights()

    def context(self, key: ApiKey, who: Principal, *, by_token: bool = False) -> RequestContext:
        connection = cast(Any, None)
        requester = Requester(who, "10.0.0.1", by_token)
        return RequestContext(RequestHeader(key, 3, 1, None, None), connection, BROKER, forwarded_for=requester)

    async def create(
        self, who: Principal, *renewers: Principal, owner: Principal | None = None, **more: int
    ) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[CreatableRenewers(*one) for one in renewers],
            **more,
        )
        context = self.context(ApiKey.CREATE_DELEGATION_TOKEN, who)
        return await create_api.handle(self.node, request, context)

    async def describe(
        self, who: Principal, *owners: Principal, is_of_all: bool = True, by_token: bool = False
    ) -> DescribeDelegationTokenResponse:
        named = [DescribeDelegationTokenOwner(*one) for one in owners]
        request = DescribeDelegationTokenRequest(owners=named or (None if is_of_all else []))
        context = self.context(ApiKey.DESCRIBE_DELEGATION_TOKEN, who, by_token=by_token)
        return await describe_api.handle(self.node, request, context)

    async def seen(self, who: Principal, *owners: Principal) -> set[str]:
        return {one.token_id for one in (await self.describe(who, *owners)).tokens}

    async def renew(self, who: Principal, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = await renew_api.handle(self.node, request, self.context(ApiKey.RENEW_DELEGATION_TOKEN, who))
        return answer.error_code, answer.expiry_timestamp_ms

    async def expire(self, who: Principal, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await expire_api.handle(self.node, request, self.context(ApiKey.EXPIRE_DELEGATION_TOKEN, who))
        return answer.error_code, answer.expiry_timestamp_ms


def run(scenario: Callable[[Asking], Awaitable[None]], **settings: str) -> None:
    async def bounded() -> None:
        asking = Asking(**settings)
        async with asyncio.timeout(SECONDS_MAX):
            await asking.node.start()
            await scenario(asking)
            await asking.node.stop()

    asyncio.run(bounded())


def with_tokens(scenario: Callable[[Asking], Awaitable[None]], **settings: str) -> None:
    run(scenario, **{"delegation_token_secret_key": SECRET, **settings})


def test_a_token_is_created_renewed_and_ended() -> None:
    async def scenario(asking: Asking) -> None:
        created = await asking.create(ALICE, BOB)
        assert created.error_code == Code.NONE
        assert (created.principal_type, created.principal_name) == ALICE
        assert created.hmac == token_hmac(SECRET, created.token_id)
        token = asking.node.image.delegation_tokens[created.token_id]  # at once: own writes
        assert token.renewers == (BOB,)
        assert created.max_timestamp_ms - created.issue_timestamp_ms == 604_800_000
        assert created.expiry_timestamp_ms - created.issue_timestamp_ms == 86_400_000
        [told] = (await asking.describe(ALICE)).tokens
        assert told.hmac == created.hmac
        assert [(one.principal_type, one.principal_name) for one in told.renewers] == [BOB]
        code, until_ms = await asking.renew(BOB, created.hmac, 1_000)
        assert code == Code.NONE
        assert asking.node.image.delegation_tokens[created.token_id].expiry_timestamp_ms == until_ms
        assert until_ms < created.expiry_timestamp_ms
        assert (await asking.expire(ALICE, created.hmac, 5_000))[0] == Code.NONE
        assert (await asking.expire(ALICE, created.hmac))[0] == Code.NONE
        assert asking.node.image.delegation_tokens == {}
        assert await asking.renew(ALICE, created.hmac) == (Code.DELEGATION_TOKEN_NOT_FOUND, -1)
        assert await asking.expire(ALICE, created.hmac) == (Code.DELEGATION_TOKEN_NOT_FOUND, -1)

    with_tokens(scenario)


def test_whom_one_may_act_for_and_whose_tokens_one_sees() -> None:
    async def scenario(asking: Asking) -> None:
        own = (await asking.create(ALICE, BOB)).token_id
        refused = await asking.create(ALICE, owner=CAROL)
        assert refused.error_code == Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("carol", "alice")
        assert (refused.token_id, refused.hmac, refused.expiry_timestamp_ms) == ("", b"", -1)
        create_tokens = ALICE, AclOperation.CREATE_TOKENS, AclResourceType.USER, "User:carol"
        asking.node.authorizer = Rights(create_tokens)
        created = await asking.create(ALICE, owner=CAROL)
        assert (created.error_code, created.principal_name) == (Code.NONE, "carol")
        for_carol = created.token_id
        assert await asking.seen(ALICE) == {own, for_carol}
        assert await asking.seen(BOB) == {own}
        assert await asking.seen(CAROL) == {for_carol}
        assert await asking.seen(DAVE) == set()
        asking.node.authorizer = Rights((DAVE, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, own))
        assert await asking.seen(DAVE) == {own}
        asking.node.authorizer = Rights((DAVE, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, "User:carol"))
        assert await asking.seen(DAVE) == {for_carol}
        assert await asking.seen(ALICE, CAROL) == {for_carol}
        assert await asking.seen(ALICE, BOB) == {own}  # who may renew it
        assert await asking.seen(ALICE, BOB, CAROL) == {own, for_carol}
        assert await asking.seen(ALICE, DAVE) == set()
        assert (await asking.describe(ALICE, is_of_all=False)).tokens == []

    with_tokens(scenario)


def test_only_who_was_authenticated_and_not_by_a_token_asks() -> None:
    async def scenario(asking: Asking) -> None:
        not_allowed = Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        created = await asking.create(ALICE)
        assert (await asking.create(ANONYMOUS)).error_code == not_allowed
        assert (await asking.create(ANONYMOUS, owner=ALICE)).error_code == not_allowed
        assert (await asking.renew(ANONYMOUS, created.hmac))[0] == not_allowed
        assert (await asking.expire(ANONYMOUS, created.hmac))[0] == not_allowed
        assert (await asking.describe(ANONYMOUS)).error_code == not_allowed
        assert (await asking.describe(ALICE, by_token=True)).error_code == not_allowed
        assert list(asking.node.image.delegation_tokens) == [created.token_id]

    with_tokens(scenario)


def test_the_commands_work_on_a_node(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(asking: Asking) -> None:
        bootstrap = f"127.0.0.1:{asking.node.listeners.first.port}"

        async def tokens(*arguments: str, status: int = 0) -> list[dict[str, Any]]:
            command = ["tokens", *arguments, "--bootstrap", bootstrap, "--output", "json"]
            assert await asyncio.to_thread(app.run, command) == status
            return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

        await tokens("create", status=FAILED)  # nobody was authenticated
        monkeypatch.setattr(server_connection, "ANONYMOUS", ALICE)
        [created] = await tokens("create", "--renewer", "User:bob", "--max-lifetime", "3600")
        token_id = created["token"]
        assert created["hmac"] == b64encode(token_hmac(SECRET, token_id)).decode()
        assert created["expires"] == created["max"]
        [listed] = await tokens("list", "--owner", "User:bob")
        assert listed | {"hmac": created["hmac"]} == created
        assert await tokens("list", "--owner", "User:carol") == []
        [renewed] = await tokens("renew", token_id, "--period", "60")
        assert renewed["expires"] < created["expires"]
        await tokens("renew", "another", status=FAILED)
        [ended] = await tokens("expire", token_id)
        assert ended["token"] == token_id
        assert await tokens("list") == []

    with_tokens(scenario)


def test_without_a_secret_there_are_no_tokens() -> None:
    async def scenario(asking: Asking) -> None:
        disabled = Code.DELEGATION_TOKEN_AUTH_DISABLED
        assert (await asking.create(ALICE)).error_code == disabled
        assert (await asking.renew(ALICE, b"x"))[0] == disabled
        assert (await asking.expire(ALICE, b"x"))[0] == disabled
        assert (await asking.describe(ALICE)).error_code == disabled

    run(scenario)


def test_the_active_controller_sweeps_what_has_expired() -> None:
    async def scenario(asking: Asking) -> None:
        created = await asking.create(ALICE)
        kept = await asking.create(ALICE)
        await asking.expire(ALICE, created.hmac, 0)
        assert set(asking.node.image.delegation_tokens) == {created.token_id, kept.token_id}
        while len(asking.node.image.delegation_tokens) > 1:
            await asyncio.sleep(0.001)
        assert set(asking.node.image.delegation_tokens) == {kept.token_id}

    with_tokens(scenario, delegation_token_expiry_check_interval_ms="1")


def test_many_are_swept_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.server.membership.token_expiry.SWEPT_AT_ONCE_MAX", 2)

    async def scenario(asking: Asking) -> None:
        for _ in range(5):
            await asking.create(ALICE)
        await TokenExpiry(asking.node, BrokerSettings.of({}), SystemClock()).sweep()
        assert len(asking.node.image.delegation_tokens) == 5
        await TokenExpiry(asking.node, BrokerSettings.of({}), NextWeek()).sweep()
        await asking.node.caught_up()
        assert asking.node.image.delegation_tokens == {}

    with_tokens(scenario)


def test_neither_messages_nor_records_show_what_a_token_is_used_by() -> None:
    async def scenario(asking: Asking) -> None:
        created = await asking.create(ALICE)
        [told] = (await asking.describe(ALICE)).tokens
        renewal = RenewDelegationTokenRequest(hmac=created.hmac)
        ending = ExpireDelegationTokenRequest(hmac=created.hmac)
        for shown in (created, told, renewal, ending):
            assert repr(created.hmac) not in repr(shown)
        disk = cast(MemoryDisk, asking.node._disk)
        log = b"".join(file.data for path, file in disk.files.items() if "__cluster_metadata" in path)
        assert created.token_id.encode() in log
        assert created.hmac not in log
        assert SECRET.encode() not in log

    with_tokens(scenario)
