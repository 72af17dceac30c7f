"""Settings of delegation tokens (KIP-48)."""

from __future__ import annotations

from tidelog.metadata.configs.key import LONG, PASSWORD, ConfigKey, keys_in

TOKEN_SECRET_KEY = ConfigKey(
    "delegation.token.secret.key",
    PASSWORD.or_none,
    None,
    "The secret that delegation tokens are made with. All nodes, controllers included, need the same; without it there "
    "are no tokens, and with another one all tokens are lost.",
)
TOKEN_MAX_LIFETIME_MS = ConfigKey(
    "delegation.token.max.lifetime.ms",
    LONG,
    "604800000",
    "How long a delegation token lasts at most, however often it is renewed. A client may ask for less.",
    minimum=1,
)
TOKEN_EXPIRY_TIME_MS = ConfigKey(
    "delegation.token.expiry.time.ms",
    LONG,
    "86400000",
    "How long a delegation token lasts unless it is renewed, and how long it lasts again from then on.",
    minimum=1,
)
TOKEN_EXPIRY_CHECK_INTERVAL_MS = ConfigKey(
    "delegation.token.expiry.check.interval.ms",
    LONG,
    "3600000",
    "How often the active controller removes delegation tokens that have expired. They count no more as soon as they "
    "have.",
    minimum=1,
)

TOKEN_CONFIGS = keys_in(globals())
