"""The settings by which a listener checks the tokens of OAUTHBEARER. Each may be set for one listener, as
`listener.name.NAME.sasl.oauthbearer.…`, and for the mechanism there, as `listener.name.NAME.oauthbearer.sasl.…`.

Kafka: `BrokerJwtValidator`, `RefreshingHttpsJwks`.
"""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import CLASS, INT, LIST, LONG, STRING, ConfigKey

JWKS_URL = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.url",
    STRING.or_none,
    None,
    "Where the keys are that the authorization server signs tokens with, as a JSON Web Key Set: https://…, or "
    "file:///… for a file on each node. A listener with OAUTHBEARER needs it.",
    pattern=(r"(?i:(https?://[^/?#]+|file:///).*)", "https://…, http://… or file:///…"),
)
JWKS_REFRESH_MS = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    LONG,
    "3600000",
    "After so long the keys are read anew before the next token is checked.",
    minimum=1,
)
JWKS_RETRY_BACKOFF_MS = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    LONG,
    "100",
    "How long a node waits before it asks for the keys again after it has not got them. The time doubles.",
    minimum=1,
)
JWKS_RETRY_BACKOFF_MAX_MS = ConfigKey(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    LONG,
    "10000",
    "The longest of these times.",
    minimum=1,
)
EXPECTED_ISSUER = ConfigKey(
    "sasl.oauthbearer.expected.issuer",
    STRING.or_none,
    None,
    "Who has to have made a token (its claim iss); unset for anybody who signs with one of the keys.",
)
EXPECTED_AUDIENCE = ConfigKey(
    "sasl.oauthbearer.expected.audience",
    LIST,
    "",
    "For whom a token has to have been made: one of these is in its claim aud. Empty for anybody.",
)
CLOCK_SKEW_SECONDS = ConfigKey(
    "sasl.oauthbearer.clock.skew.seconds",
    INT,
    "30",
    "By how much the clock of the authorization server may differ.",
    minimum=0,
)
SUB_CLAIM_NAME = ConfigKey(
    "sasl.oauthbearer.sub.claim.name",
    STRING,
    "sub",
    "The claim that names the user.",
    pattern=(r".+", "the name of a claim"),
)
SCOPE_CLAIM_NAME = ConfigKey(
    "sasl.oauthbearer.scope.claim.name",
    STRING,
    "scope",
    "The claim with the scopes. What a user may do is said by access rules, and not by scopes: the claim has to be a "
    "text or a list of texts, where it is there.",
    pattern=(r".+", "the name of a claim"),
)

VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's names of what checks signed tokens."""
SERVER_CALLBACK_HANDLER = ConfigKey(
    "sasl.server.callback.handler.class",
    CLASS.or_none,
    None,
    "Which of Kafka's classes checks tokens. The one that checks signatures is what a node does without it too; tokens "
    "without a signature, which Kafka takes by default, are refused.",
    choices=VALIDATORS,
)

OAUTH_CONFIGS: tuple[ConfigKey[Any], ...] = (
    JWKS_URL,
    JWKS_REFRESH_MS,
    JWKS_RETRY_BACKOFF_MS,
    JWKS_RETRY_BACKOFF_MAX_MS,
    EXPECTED_ISSUER,
    EXPECTED_AUDIENCE,
    CLOCK_SKEW_SECONDS,
    SUB_CLAIM_NAME,
    SCOPE_CLAIM_NAME,
)
