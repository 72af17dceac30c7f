"""Delegation tokens: created, renewed, ended, and swept once they have expired (KIP-48).

Kafka: `DelegationTokenControlManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import uuid_text
from tidelog.base.ports import Rng
from tidelog.base.principals import USER, Principal, Requester
from tidelog.controller.limits import Room
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.configs.delegation_tokens import TOKEN_EXPIRY_TIME_MS, TOKEN_MAX_LIFETIME_MS, TOKEN_SECRET_KEY
from tidelog.metadata.configs.key import INT64_MAX
from tidelog.metadata.configs.limits import MAX_DELEGATION_TOKENS
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.metadata.features import knows_delegation_tokens
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.delegation_tokens import RemoveDelegationTokenRecord, record_of_token
from tidelog.security.delegation_tokens import TokensByHmac, may_ask_for_tokens, token_hmac

PRINCIPALS_SIZE_BYTES_MAX = 32_767
"""Of the principals of one token together: its record has to find room beside others."""


@dataclass(frozen=True, slots=True)
class TokenToCreate:
    """What is asked for.

    Attributes:
        owner: as whom it authenticates; None for who asks.
        renewers: who may renew it beside the owner.
        max_lifetime_ms: how long it may last at most; None for as long as the settings allow.
    """

    owner: Principal | None = None
    renewers: Sequence[Principal] = ()
    max_lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A token, with what it is used by: whoever has that is its owner."""

    token: DelegationToken
    hmac: bytes = field(repr=False)


def decide_create_token(
    metadata: MetadataView,
    settings: ControllerSettings,
    requester: Requester,
    to_create: TokenToCreate,
    *,
    rng: Rng,
    now_ms: int,
) -> Decision[CreatedToken]:
    """Create a token. `now_ms` is since 1970. Whether somebody may have one for another is asked before.

    Raises:
        KafkaError: as `_secret_key`; INVALID_PRINCIPAL_TYPE: the owner or a renewer is no user; INVALID_REQUEST: their
            names are too long; POLICY_VIOLATION: there are too many (`max.delegation.tokens`).
    """
    secret_key = _secret_key(metadata, settings, requester)
    owner = to_create.owner or requester.principal
    for principal in (owner, *to_create.renewers):
        if principal.type != USER:
            raise refusal(Code.INVALID_PRINCIPAL_TYPE, f"{principal.type!r} has no delegation tokens: a User has")
    renewers = tuple(dict.fromkeys(to_create.renewers))
    size_bytes = sum(len(str(one).encode()) for one in (owner, requester.principal, *renewers))
    if size_bytes > PRINCIPALS_SIZE_BYTES_MAX:
        raise refusal(
            Code.INVALID_REQUEST,
            f"the principals of the token take {size_bytes} bytes; the highest is {PRINCIPALS_SIZE_BYTES_MAX}",
        )
    Room(metadata, settings, MAX_DELEGATION_TOKENS, len(metadata.delegation_tokens)).take()
    lifetime_ms = settings.broker[TOKEN_MAX_LIFETIME_MS]
    if to_create.max_lifetime_ms is not None:
        lifetime_ms = min(to_create.max_lifetime_ms, lifetime_ms)
    max_timestamp_ms = _later(now_ms, lifetime_ms)
    token = DelegationToken(
        _new_token_id(metadata, rng),
        owner,
        requester.principal,
        renewers,
        now_ms,
        max_timestamp_ms,
        min(max_timestamp_ms, _later(now_ms, settings.broker[TOKEN_EXPIRY_TIME_MS])),
    )
    return Decision((record_of_token(token),), CreatedToken(token, token_hmac(secret_key, token.token_id)))


def _new_token_id(metadata: MetadataView, rng: Rng) -> str:
    """An id that no token has, and that does not look like a command line option."""
    while True:
        token_id = uuid_text(rng.uuid())
        if token_id not in metadata.delegation_tokens and not token_id.startswith("-"):
            return token_id


def decide_renew_token(
    metadata: MetadataView,
    settings: ControllerSettings,
    tokens: TokensByHmac,
    requester: Requester,
    hmac: bytes,
    *,
    period_ms: int | None,
    now_ms: int,
) -> Decision[int]:
    """Have a token count for longer. Returns until when, in ms since 1970.

    Args:
        period_ms: for how long; None for as long as the settings allow, which is the most too.

    Raises:
        KafkaError: as `_secret_key`; DELEGATION_TOKEN_NOT_FOUND; DELEGATION_TOKEN_EXPIRED;
            DELEGATION_TOKEN_OWNER_MISMATCH: neither owner nor renewer asks.
    """
    _secret_key(metadata, settings, requester)
    token = _found(metadata, tokens, hmac)
    _check_counts(token, now_ms)
    _check_may_renew(token, requester)
    lifetime_ms = settings.broker[TOKEN_EXPIRY_TIME_MS]
    if period_ms is not None:
        lifetime_ms = min(period_ms, lifetime_ms)
    return _until(token, _later(now_ms, lifetime_ms))


def decide_expire_token(
    metadata: MetadataView,
    settings: ControllerSettings,
    tokens: TokensByHmac,
    requester: Requester,
    hmac: bytes,
    *,
    period_ms: int | None,
    now_ms: int,
) -> Decision[int]:
    """Have a token count until a time that may be sooner, or end it at once. Returns until when, in ms since 1970.

    Args:
        period_ms: for how long from now on; None to end it, even if it has expired.

    Raises:
        KafkaError: as `decide_renew_token`.
    """
    _secret_key(metadata, settings, requester)
    token = _found(metadata, tokens, hmac)
    _check_may_renew(token, requester)
    if period_ms is None:
        return Decision((RemoveDelegationTokenRecord(token_id=token.token_id),), now_ms)
    _check_counts(token, now_ms)
    return _until(token, _later(now_ms, period_ms))


def decide_sweep_tokens(metadata: MetadataView, token_ids: Iterable[str], *, now_ms: int) -> Decision[tuple[str, ...]]:
    """Remove those of some tokens that have expired; the reply is which. One may have been renewed meanwhile."""
    found = (metadata.delegation_tokens.get(token_id) for token_id in token_ids)
    expired = tuple(one.token_id for one in found if one is not None and one.is_expired(now_ms))
    return Decision(tuple(RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired), expired)


def _secret_key(metadata: MetadataView, settings: ControllerSettings, requester: Requester) -> str:
    """What tokens are made with.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: who asks was not authenticated, or by a token;
            DELEGATION_TOKEN_AUTH_DISABLED: there are no tokens here; UNSUPPORTED_VERSION: metadata.version is too low.
    """
    if not may_ask_for_tokens(requester):
        raise refusal(
            Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are asked for on a connection that a user authenticated, and not by a token",
        )
    secret_key = settings.broker[TOKEN_SECRET_KEY]
    if not secret_key:
        raise refusal(
            Code.DELEGATION_TOKEN_AUTH_DISABLED,
            f"there are no delegation tokens: {TOKEN_SECRET_KEY.name} is not set at the controller",
        )
    if not knows_delegation_tokens(metadata.features):
        raise refusal(Code.UNSUPPORTED_VERSION, "metadata.version is too low for delegation tokens: raise it")
    return secret_key


def _found(metadata: MetadataView, tokens: TokensByHmac, hmac: bytes) -> DelegationToken:
    token_id = tokens.find(hmac)
    token = None if token_id is None else metadata.delegation_tokens.get(token_id)
    if token is None:
        raise refusal(Code.DELEGATION_TOKEN_NOT_FOUND, "no delegation token has this HMAC")
    return token


def _check_counts(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise refusal(Code.DELEGATION_TOKEN_EXPIRED, f"delegation token {token.token_id} has expired")


def _check_may_renew(token: DelegationToken, requester: Requester) -> None:
    if not token.may_renew(requester.principal):
        raise refusal(
            Code.DELEGATION_TOKEN_OWNER_MISMATCH,
            f"{requester.principal} neither owns delegation token {token.token_id} nor may renew it",
        )


def _until(token: DelegationToken, expiry_timestamp_ms: int) -> Decision[int]:
    changed = token._replace(expiry_timestamp_ms=min(token.max_timestamp_ms, expiry_timestamp_ms))
    return Decision((record_of_token(changed),), changed.expiry_timestamp_ms)


def _later(now_ms: int, period_ms: int) -> int:
    """A time that the protocol can say."""
    return min(now_ms + period_ms, INT64_MAX)
