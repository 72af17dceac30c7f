"""The admin client and delegation tokens: what is sent, and what becomes of the answers (KIP-48)."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import in_turn, run
from tidelog import ConfigError, KafkaError, UnsupportedVersionError, aio
from tidelog.base.errors import Code
from tidelog.cli import tokens as commands
from tidelog.client.admin.token_descriptions import TokenDescription
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_38_create_delegation_token as create
from tidelog.wire.messages import api_39_renew_delegation_token as renew
from tidelog.wire.messages import api_40_expire_delegation_token as expire
from tidelog.wire.messages import api_41_describe_delegation_token as describe

HMAC = b"\xffsecret"
TOKEN = TokenDescription("an-id", HMAC, "User:alice", "User:bob", ("User:c", "User:d"), 1_000, 2_000, 3_000)


def row(token_id: str = "an-id", issued_ms: int = 1_000) -> describe.DescribedDelegationToken:
    return describe.DescribedDelegationToken(
        principal_type="User",
        principal_name="alice",
        token_requester_principal_type="User",
        token_requester_principal_name="bob",
        issue_timestamp=issued_ms,
        expiry_timestamp=2_000,
        max_timestamp=3_000,
        token_id=token_id,
        hmac=HMAC,
        renewers=[describe.DescribedDelegationTokenRenewer("User", name) for name in ("d", "c")],
    )


def created() -> create.CreateDelegationTokenResponse:
    return create.CreateDelegationTokenResponse(
        principal_name="alice",
        token_requester_principal_name="bob",
        issue_timestamp_ms=1_000,
        expiry_timestamp_ms=2_000,
        max_timestamp_ms=3_000,
        token_id="an-id",
        hmac=HMAC,
    )


def test_a_token_is_created_for_oneself_or_for_another() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        loading = create.CreateDelegationTokenResponse(error_code=Code.REQUEST_TIMED_OUT)
        cluster.on(ApiKey.CREATE_DELEGATION_TOKEN, in_turn(loading, created()))
        token = await admin.create_delegation_token(renewers=["User:d", "User:c"])
        assert token == TOKEN
        assert "secret" not in repr(token)
        asked = cluster.messages(ApiKey.CREATE_DELEGATION_TOKEN)[-1]
        assert (asked.owner_principal_type, asked.owner_principal_name, asked.max_lifetime_ms) == (None, None, -1)
        assert [(one.principal_type, one.principal_name) for one in asked.renewers] == [("User", "d"), ("User", "c")]
        await admin.create_delegation_token(owner="User:alice", max_lifetime_ms=5)
        asked = cluster.messages(ApiKey.CREATE_DELEGATION_TOKEN)[-1]
        assert (asked.owner_principal_type, asked.owner_principal_name, asked.max_lifetime_ms) == ("User", "alice", 5)
        with pytest.raises(ConfigError, match="'alice' is no principal"):
            await admin.create_delegation_token(owner="alice")

    run(work)


def test_an_old_broker_creates_none_for_another() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.CREATE_DELEGATION_TOKEN] = (1, 2)
        cluster.on(ApiKey.CREATE_DELEGATION_TOKEN, in_turn(created()))
        assert (await admin.create_delegation_token()).requester is None
        with pytest.raises(UnsupportedVersionError):
            await admin.create_delegation_token(owner="User:alice")

    run(work)


def test_a_token_is_renewed_and_ended() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.on(ApiKey.RENEW_DELEGATION_TOKEN, in_turn(renew.RenewDelegationTokenResponse(expiry_timestamp_ms=7)))
        cluster.on(ApiKey.EXPIRE_DELEGATION_TOKEN, in_turn(expire.ExpireDelegationTokenResponse(expiry_timestamp_ms=8)))
        assert await admin.renew_delegation_token(HMAC) == 7
        await admin.renew_delegation_token(HMAC, period_ms=5)
        assert await admin.expire_delegation_token(HMAC) == 8
        await admin.expire_delegation_token(HMAC, period_ms=0)
        assert [one.renew_period_ms for one in cluster.messages(ApiKey.RENEW_DELEGATION_TOKEN)] == [-1, 5]
        assert [one.expiry_time_period_ms for one in cluster.messages(ApiKey.EXPIRE_DELEGATION_TOKEN)] == [-1, 0]

    run(work)


def test_a_period_that_brokers_would_take_for_another_is_refused() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        for ask in (
            admin.create_delegation_token(max_lifetime_ms=0),
            admin.renew_delegation_token(HMAC, period_ms=0),
            admin.expire_delegation_token(HMAC, period_ms=-1),
        ):
            with pytest.raises(ValueError, match="or None"):
                await ask

    run(work)


def test_tokens_are_described_the_oldest_first() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        answer = describe.DescribeDelegationTokenResponse(tokens=[row("younger", 1_500), row()])
        cluster.on(ApiKey.DESCRIBE_DELEGATION_TOKEN, in_turn(answer))
        first, second = await admin.describe_delegation_tokens()
        assert first == TOKEN
        assert second.token_id == "younger"
        await admin.describe_delegation_tokens(["User:alice"])
        await admin.describe_delegation_tokens([])
        asked = [one.owners for one in cluster.messages(ApiKey.DESCRIBE_DELEGATION_TOKEN)]
        assert asked[0] is None
        assert [(one.principal_type, one.principal_name) for one in asked[1]] == [("User", "alice")]
        assert asked[2] == []

    run(work)


def test_what_is_refused_is_an_error() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        code = Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        cluster.on(ApiKey.CREATE_DELEGATION_TOKEN, in_turn(create.CreateDelegationTokenResponse(error_code=code)))
        cluster.on(ApiKey.RENEW_DELEGATION_TOKEN, in_turn(renew.RenewDelegationTokenResponse(error_code=code)))
        cluster.on(ApiKey.EXPIRE_DELEGATION_TOKEN, in_turn(expire.ExpireDelegationTokenResponse(error_code=code)))
        cluster.on(ApiKey.DESCRIBE_DELEGATION_TOKEN, in_turn(describe.DescribeDelegationTokenResponse(error_code=code)))
        for ask in (
            admin.create_delegation_token(),
            admin.renew_delegation_token(HMAC),
            admin.expire_delegation_token(HMAC),
            admin.describe_delegation_tokens(),
        ):
            with pytest.raises(KafkaError) as error:
                await ask
            assert error.value.code == code

    run(work)


class ScriptedAdmin:
    """What the commands ask of an `Admin`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __enter__(self) -> ScriptedAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_delegation_token(self, **asked: Any) -> TokenDescription:
        self.asked.append(("create", asked))
        return TOKEN

    def describe_delegation_tokens(self, owners: Any = None) -> list[TokenDescription]:
        self.asked.append(("describe", owners))
        return [TOKEN]

    def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None) -> int:
        self.asked.append(("renew", hmac, period_ms))
        return 4_000

    def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None) -> int:
        self.asked.append(("expire", hmac, period_ms))
        return (1 << 63) - 1


def at(command: Any, **given: Any) -> Any:
    common = {"bootstrap": "", "timeout": 1.0, "output": "json", "log_level": "warning"}
    return command(**common, **given)


def test_the_commands_show_the_hmac_at_creation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin()
    monkeypatch.setattr(commands, "open_admin", lambda *_: admin)
    secret = b64encode(HMAC).decode()
    [shown] = at(commands.CreateToken, owner=None, renewer=("User:c",), max_lifetime=1.5).run().rows
    assert shown["hmac"] == secret
    assert shown["expires"] == "1970-01-01T00:00:02+00:00"
    others = [
        *at(commands.ListTokens, owner=()).run().rows,
        *at(commands.RenewToken, token="an-id", period=2.0).run().rows,
        *at(commands.ExpireToken, token="an-id", period=None).run().rows,
    ]
    assert secret not in json.dumps(others)
    assert [one["expires"] for one in others] == ["1970-01-01T00:00:02+00:00", "1970-01-01T00:00:04+00:00", None]
    assert admin.asked == [
        ("create", {"owner": None, "renewers": ("User:c",), "max_lifetime_ms": 1_500}),
        ("describe", None),
        ("describe", None),
        ("renew", HMAC, 2_000),
        ("describe", None),
        ("expire", HMAC, None),
    ]


def test_a_token_that_one_may_not_see_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "open_admin", lambda *_: ScriptedAdmin())
    with pytest.raises(KafkaError, match="'another': there is none that you may see"):
        at(commands.RenewToken, token="another", period=None).run()
