"""What the settings say of tokens at a listener with OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.base.errors import ConfigError
from tidelog.metadata.configs import oauth
from tidelog.metadata.configs.sasl import OAUTHBEARER, sasl_value
from tidelog.security.json_web_tokens import TokenRules


@dataclass(frozen=True, slots=True)
class OAuthListener:
    """How tokens are checked.

    Attributes:
        url: of the keys.
        rules: what tokens have to say.
        refresh_ms: after so long the keys are read anew.
        retry_backoff_ms: how long to wait after they could not be read, which doubles up to `retry_backoff_ms_max`.
    """

    url: str
    rules: TokenRules
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_ms_max: int


def oauth_listener(texts: Mapping[str, str], name: str) -> OAuthListener:
    """What is set for a listener. Raises ConfigError: there are no keys to check tokens with; says what to set."""
    url = sasl_value(texts, oauth.JWKS_URL, name, OAUTHBEARER)
    if url is None:
        raise ConfigError(
            f"listener.name.{name.lower()}.{oauth.JWKS_URL.name}: listener {name} offers OAUTHBEARER, and has no keys "
            "to check the signatures of tokens with: set it to the jwks_uri of the authorization server, or to "
            "file:///… (tokens without a signature are not taken)"
        )
    return OAuthListener(
        url,
        TokenRules(
            sasl_value(texts, oauth.EXPECTED_ISSUER, name, OAUTHBEARER),
            sasl_value(texts, oauth.EXPECTED_AUDIENCE, name, OAUTHBEARER),
            sasl_value(texts, oauth.CLOCK_SKEW_SECONDS, name, OAUTHBEARER),
            sasl_value(texts, oauth.SUB_CLAIM_NAME, name, OAUTHBEARER),
            sasl_value(texts, oauth.SCOPE_CLAIM_NAME, name, OAUTHBEARER),
        ),
        sasl_value(texts, oauth.JWKS_REFRESH_MS, name, OAUTHBEARER),
        sasl_value(texts, oauth.JWKS_RETRY_BACKOFF_MS, name, OAUTHBEARER),
        sasl_value(texts, oauth.JWKS_RETRY_BACKOFF_MAX_MS, name, OAUTHBEARER),
    )
