"""How a listener keeps the keys of an authorization server: read when first needed, then anew after a while, and at
once, though seldom, when a token was signed with a key that is not there. Kafka: `RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from tidelog.base.errors import ConfigError, NetworkError, SaslAuthenticationError
from tidelog.base.ports import Clock
from tidelog.io.json_web_keys import read_keys
from tidelog.metadata.configs.oauth import JWKS_URL
from tidelog.security.json_web_tokens import TokenKeys, UnknownKeyError, require_joserfc
from tidelog.security.oauth_listener import OAuthListener
from tidelog.security.sasl_server import Identity

logger = logging.getLogger("tidelog.server.authentication")

UNKNOWN_KEY_INTERVAL_MS = 10_000
"""Tokens with keys that are not there have the keys read anew at most so often: whoever connects may make such."""

WAIT_SECONDS_MAX = 3.0
"""So long a login waits for keys that are being read. Then the old ones count on, if there are any."""

FetchKeys = Callable[[str], "asyncio.Future[TokenKeys]"]


def check_keys(url: str, listener_name: str) -> None:
    """What can be said of the keys when a node starts.

    Raises:
        ConfigError: they are to be in a file, and are not; or no address is one.
        MissingExtraError: what checks signatures is not installed.
    """
    require_joserfc()
    try:
        urlsplit(url)
        if url.lower().startswith("file:"):
            read_keys(url)
    except (NetworkError, ValueError) as error:
        raise ConfigError(f"{JWKS_URL.name}={url}, of listener {listener_name}: {error}") from None
    if url.lower().startswith("http:"):
        logger.warning(
            "listener %s: the keys of tokens come from %s without TLS: whoever is on the way can be anybody here",
            *(listener_name, url),
        )


class OAuthKeys:
    """Of one listener. Who asks first does not own the reading: others wait for it, or come when it is over.

    Args:
        settings: what is in force there.
        fetch: reads the keys at an address. Its future raises NetworkError, or ValueError for what is no set of keys.
    """

    def __init__(self, settings: OAuthListener, fetch: FetchKeys, clock: Clock) -> None:
        self.settings = settings
        self._fetch = fetch
        self._clock = clock
        self._keys: TokenKeys | None = None
        self._read_at_ms = 0
        self._begun_at_ms: int | None = None
        self._not_before_ms = 0
        self._backoff_ms = settings.retry_backoff_ms
        self._reading: asyncio.Future[TokenKeys] | None = None

    async def identity(self, token: str) -> Identity:
        """Whose a token is. Raises SaslAuthenticationError: it is not good, or the keys cannot be had."""
        if self._keys is None or self._clock.now_ms() - self._read_at_ms >= self.settings.refresh_ms:
            await self._read()
        try:
            return self._check(token)
        except UnknownKeyError:
            begun_at_ms = self._begun_at_ms
            if begun_at_ms is not None and self._clock.now_ms() - begun_at_ms < UNKNOWN_KEY_INTERVAL_MS:
                raise
            await self._read()
            return self._check(token)

    def _check(self, token: str) -> Identity:
        if self._keys is None:
            raise SaslAuthenticationError(f"the keys at {self.settings.url} could not be read yet")
        return self._keys.identity(token, self.settings.rules, self._clock.wall_ms())

    async def _read(self) -> None:
        """Wait a little for the keys, which are being read from now on, unless that failed a moment ago."""
        if self._reading is None and self._clock.now_ms() >= self._not_before_ms:
            self._begun_at_ms = self._clock.now_ms()
            self._reading = self._fetch(self.settings.url)
            self._reading.add_done_callback(self._on_read)
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=WAIT_SECONDS_MAX)

    def _on_read(self, reading: asyncio.Future[TokenKeys]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            self._keys, self._read_at_ms = reading.result(), self._clock.now_ms()
            self._backoff_ms = self.settings.retry_backoff_ms
            return
        logger.error(
            "%s: the keys that tokens of OAUTHBEARER are signed with cannot be read: %s; %s",
            *(self.settings.url, error, "nobody can log in so" if self._keys is None else "the old ones count on"),
        )
        self._not_before_ms = self._clock.now_ms() + self._backoff_ms
        self._backoff_ms = min(self._backoff_ms * 2, self.settings.retry_backoff_ms_max)
