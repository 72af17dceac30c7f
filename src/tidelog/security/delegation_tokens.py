"""What a delegation token authenticates by, and as whom (KIP-48).

    HMAC = HMAC-SHA512(delegation.token.secret.key, id)     what whoever created it was told: to be kept secret
    user = id, password = base64(HMAC)                      by SCRAM, with the extension tokenauth=true

Every node derives that of the id and the secret: the metadata has neither HMACs nor passwords.

Kafka: `DelegationTokenManager`, `DelegationTokenCache`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from functools import lru_cache

from tidelog.base.principals import ANONYMOUS, Requester
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.scram_credentials import ScramCredential
from tidelog.security.sasl_server import Identity
from tidelog.security.scram import HASHES, ITERATIONS_MIN
from tidelog.security.scram_server import credential_of

CREDENTIALS_KEPT_MAX = 1_024
"""Derived ones: each takes some milliseconds, and some hundred bytes."""


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """What a token is used by, and asked about by."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_credentials(
    image: MetadataImage, secret_key: str | None, mechanism: str, token_id: str, now_ms: int
) -> ScramCredential | None:
    """What a client that logs in with a token is checked against; None if there is no such token, or it has expired.

    The first time it takes as long as the iterations do, some milliseconds: not for an event loop.

    Args:
        secret_key: `delegation.token.secret.key`; None where there are no tokens.
        mechanism: one of HASHES.
        now_ms: since 1970.
    """
    token = image.delegation_tokens.get(token_id)
    if not secret_key or token is None or token.is_expired(now_ms):
        return None
    return _derived(secret_key, mechanism, token_id)


def token_identity(image: MetadataImage, token_id: str, now_ms: int) -> Identity | None:
    """Who a client is that logged in with a token: its owner, until it expires. None as of `token_credentials`.

    Args:
        now_ms: since 1970.
    """
    token = image.delegation_tokens.get(token_id)
    if token is None or token.is_expired(now_ms):
        return None
    expires_at_ms = min(token.expiry_timestamp_ms, token.max_timestamp_ms)
    return Identity(token.owner.name, expires_at_ms=expires_at_ms, by_token=True)


@lru_cache(maxsize=CREDENTIALS_KEPT_MAX)
def _derived(secret_key: str, mechanism: str, token_id: str) -> ScramCredential:
    """The salt is the same at all nodes, and after a restart: nothing that comes at random has to be kept."""
    salt = hmac.digest(secret_key.encode(), f"salt {mechanism} {token_id}".encode(), HASHES[mechanism])
    password = b64encode(token_hmac(secret_key, token_id)).decode()
    return credential_of(mechanism, password, salt, ITERATIONS_MIN)


def may_ask_for_tokens(requester: Requester) -> bool:
    """Whether somebody may ask for tokens, or about them: nobody whom a token authenticated, for a token that leaked
    would renew itself for ever, and nobody who was not authenticated.
    """
    return not requester.by_token and requester.principal != ANONYMOUS


class TokensByHmac:
    """Finds a token by its HMAC, in a time that tells nothing of how much of it is right.

    What is looked up is a hash of it, of which nobody can choose a part; what is found is compared in constant time.

    Args:
        secret_key: `delegation.token.secret.key`; where there is none, nothing is found.
    """

    def __init__(self, secret_key: str | None) -> None:
        self._secret_key = secret_key
        self._ids: dict[bytes, str] = {}

    def add(self, token_id: str) -> None:
        """There is such a token. It may be known already."""
        if self._secret_key:
            self._ids[_key(token_hmac(self._secret_key, token_id))] = token_id

    def remove(self, token_id: str) -> None:
        """There is no such token any more."""
        if self._secret_key:
            self._ids.pop(_key(token_hmac(self._secret_key, token_id)), None)

    def find(self, shown: bytes) -> str | None:
        """The id of the token with this HMAC; None if there is none."""
        token_id = self._ids.get(_key(shown))
        if not self._secret_key or token_id is None:
            return None
        return token_id if hmac.compare_digest(token_hmac(self._secret_key, token_id), shown) else None

    def clone(self) -> TokensByHmac:
        """O(tokens), references only."""
        copy = TokensByHmac(self._secret_key)
        copy._ids = dict(self._ids)
        return copy


def _key(token_hmac: bytes) -> bytes:
    return hashlib.sha256(token_hmac).digest()
