"""When the keys of an authorization server are read, and what counts while they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tidelog.base.errors import ConfigError, NetworkError, SaslAuthenticationError
from tidelog.base.ports import Clock
from tidelog.security.json_web_tokens import TokenKeys, TokenRules
from tidelog.security.oauth_listener import OAuthListener
from tidelog.server.transport import oauth_keys
from tidelog.server.transport.oauth_keys import UNKNOWN_KEY_INTERVAL_MS, OAuthKeys, check_keys

pytest.importorskip("joserfc")
from support.fixtures.json_web_tokens import Signer

WALL_MS = 1_800_000_000_000
OLD, NEW = Signer("old"), Signer("new")
SETTINGS = OAuthListener("https://issuer/keys", TokenRules(), 60_000, 100, 400)


@dataclass
class Now:
    now: int = 1_000

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return WALL_MS


class Issuer:
    """Answers with its keys; `content` None: it is down."""

    def __init__(self) -> None:
        self.content: bytes | None = OLD.key_set()
        self.asked = 0
        self.hangs = False

    def fetch(self, url: str) -> asyncio.Future[TokenKeys]:
        assert url == SETTINGS.url
        self.asked += 1
        return asyncio.ensure_future(self._answer())

    async def _answer(self) -> TokenKeys:
        await asyncio.sleep(0)
        while self.hangs:
            await asyncio.sleep(0)
        if self.content is None:
            raise NetworkError("connection refused")
        return TokenKeys(self.content)


def token(signer: Signer) -> str:
    return signer.token({"sub": "alice", "iat": WALL_MS / 1000, "exp": WALL_MS / 1000 + 60})


def run(scenario: Callable[[OAuthKeys, Issuer, Now], Awaitable[None]]) -> None:
    async def bounded() -> None:
        issuer, now = Issuer(), Now()
        async with asyncio.timeout(60):
            await scenario(OAuthKeys(SETTINGS, issuer.fetch, cast(Clock, now)), issuer, now)

    asyncio.run(bounded())


def test_keys_are_read_once_for_all_who_wait() -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        found = await asyncio.gather(*(keys.identity(token(OLD)) for _ in range(5)))
        assert [one.name for one in found] == ["alice"] * 5
        now.now += SETTINGS.refresh_ms - 1
        await keys.identity(token(OLD))
        assert issuer.asked == 1

    run(scenario)


def test_who_is_hung_up_on_while_reading_takes_nobody_along() -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        first = asyncio.ensure_future(keys.identity(token(OLD)))
        second = asyncio.ensure_future(keys.identity(token(OLD)))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name == "alice"
        assert issuer.asked == 1

    run(scenario)


def test_who_comes_and_goes_has_the_keys_read_no_more_often() -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        issuer.hangs = True
        for _ in range(20):
            one = asyncio.ensure_future(keys.identity(token(OLD)))
            await asyncio.sleep(0)
            one.cancel()
        assert issuer.asked == 1
        issuer.hangs = False
        assert (await keys.identity(token(OLD))).name == "alice"

    run(scenario)


def test_old_keys_count_while_a_server_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_keys, "WAIT_SECONDS_MAX", 0.01)

    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        await keys.identity(token(OLD))
        issuer.hangs = True
        now.now += SETTINGS.refresh_ms
        for _ in range(3):
            assert (await keys.identity(token(OLD))).name == "alice"
        assert issuer.asked == 2
        issuer.hangs = False

    run(scenario)


def test_keys_are_read_anew_after_a_while_and_one_that_is_gone_counts_no_more() -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        await keys.identity(token(OLD))
        issuer.content = NEW.key_set()
        now.now += SETTINGS.refresh_ms
        with pytest.raises(SaslAuthenticationError, match="'old', and 0 keys fit"):
            await keys.identity(token(OLD))
        assert (await keys.identity(token(NEW))).name == "alice"
        assert issuer.asked == 2

    run(scenario)


def test_a_new_key_counts_at_once_and_strange_ones_ask_seldom() -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        await keys.identity(token(OLD))
        issuer.content = NEW.key_set()
        for _ in range(3):
            with pytest.raises(SaslAuthenticationError):
                await keys.identity(token(NEW))
        assert issuer.asked == 1
        now.now += UNKNOWN_KEY_INTERVAL_MS
        assert (await keys.identity(token(NEW))).name == "alice"
        for _ in range(3):
            with pytest.raises(SaslAuthenticationError):
                await keys.identity(token(Signer("strange")))
        assert issuer.asked == 2

    run(scenario)


def test_the_old_keys_count_on_while_there_are_no_new_ones(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        await keys.identity(token(OLD))
        issuer.content = None
        now.now += SETTINGS.refresh_ms
        assert (await keys.identity(token(OLD))).name == "alice"
        assert "connection refused; the old ones count on" in caplog.text

    run(scenario)


def test_who_has_no_keys_lets_nobody_in_and_asks_again_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(keys: OAuthKeys, issuer: Issuer, now: Now) -> None:
        for content, pause_ms in ((None, 100), (b"[]", 200), (None, 400), (None, 400)):
            issuer.content, before = content, issuer.asked
            for _ in range(2):
                with pytest.raises(SaslAuthenticationError, match="could not be read yet"):
                    await keys.identity(token(OLD))
            assert issuer.asked == before + 1
            now.now += pause_ms - 1
            with pytest.raises(SaslAuthenticationError, match="could not be read yet"):
                await keys.identity(token(OLD))
            assert issuer.asked == before + 1
            now.now += 1
        assert "is no JSON Web Key Set" in caplog.text
        issuer.content = OLD.key_set()
        assert (await keys.identity(token(OLD))).name == "alice"

    run(scenario)


def test_what_can_be_told_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(ConfigError, match="of listener OUT: No such file"):
        check_keys(file.as_uri(), "OUT")
    file.write_bytes(b"{}")
    with pytest.raises(ConfigError, match="no JSON Web Key Set"):
        check_keys(file.as_uri(), "OUT")
    file.write_bytes(OLD.key_set())
    check_keys(file.as_uri(), "OUT")
    check_keys("https://issuer/keys", "OUT")
    with pytest.raises(ConfigError, match="Invalid IPv6"):
        check_keys("https://[issuer/keys", "OUT")
    assert not caplog.records
    check_keys("http://issuer/keys", "OUT")
    assert "without TLS" in caplog.text
