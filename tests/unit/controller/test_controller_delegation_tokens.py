"""Delegation tokens at the controller: who gets one, for how long, and what becomes of it (KIP-48)."""

from __future__ import annotations

from typing import TypeVar

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset
from tidelog.base.principals import ANONYMOUS, Principal, Requester
from tidelog.controller import METADATA_VERSION, ControllerSettings, ControllerState
from tidelog.controller.delegation_tokens import PRINCIPALS_SIZE_BYTES_MAX, CreatedToken, TokenToCreate
from tidelog.journal import Decision
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs import BrokerSettings
from tidelog.security.delegation_tokens import token_hmac
from tidelog.sim.world.rng import SeededRng

R = TypeVar("R")

SECRET = "what all nodes share"
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
BY_ALICE, BY_BOB, BY_CAROL = (Requester(one, "10.0.0.1") for one in (ALICE, BOB, CAROL))
MAX_MS, EXPIRY_MS = 10_000, 3_000
NOW_MS = 1_000_000
FOR_EVER_MS = (1 << 63) - 1


def new_state(**changes: str) -> ControllerState:
    """With what is set for tokens, and `changes`, at the newest level."""
    static = {
        "delegation.token.secret.key": SECRET,
        "delegation.token.max.lifetime.ms": str(MAX_MS),
        "delegation.token.expiry.time.ms": str(EXPIRY_MS),
    }
    return at_level(METADATA_VERSION, ControllerSettings(broker=BrokerSettings.of(static | changes)))


def at_level(level: int, settings: ControllerSettings) -> ControllerState:
    return ControllerState(settings, MetadataImage(features={"metadata.version": level}))


def done(state: ControllerState, decision: Decision[R]) -> R:
    for record in decision.records:
        state.apply(record)
    return decision.reply


def create(
    state: ControllerState,
    requester: Requester = BY_ALICE,
    *renewers: Principal,
    owner: Principal | None = None,
    lifetime_ms: int | None = None,
) -> CreatedToken:
    to_create = TokenToCreate(owner, renewers, lifetime_ms)
    seed = len(state.metadata.delegation_tokens)
    return done(state, state.decide_create_token(requester, to_create, rng=SeededRng(seed), now_ms=NOW_MS))


def renew(
    state: ControllerState, requester: Requester, hmac: bytes, period_ms: int | None = None, *, now_ms: int = NOW_MS
) -> int:
    return done(state, state.decide_renew_token(requester, hmac, period_ms=period_ms, now_ms=now_ms))


def expire(
    state: ControllerState, requester: Requester, hmac: bytes, period_ms: int | None = None, *, now_ms: int = NOW_MS
) -> int:
    return done(state, state.decide_expire_token(requester, hmac, period_ms=period_ms, now_ms=now_ms))


def test_a_token_is_its_requesters_unless_it_is_for_another() -> None:
    state = new_state()
    created = create(state, BY_ALICE, BOB, BOB)
    token = created.token
    assert state.metadata.delegation_tokens == {token.token_id: token}
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
    assert len(token.token_id) == 22
    assert created.hmac == token_hmac(SECRET, token.token_id)
    other = create(state, BY_ALICE, owner=CAROL).token
    assert (other.owner, other.requester) == (CAROL, ALICE)
    assert other.token_id != token.token_id


@pytest.mark.parametrize(
    ("lifetime_ms", "lasts_ms", "counts_ms"),
    [(None, MAX_MS, EXPIRY_MS), (FOR_EVER_MS, MAX_MS, EXPIRY_MS), (5_000, 5_000, EXPIRY_MS), (2_000, 2_000, 2_000)],
)
def test_it_lasts_as_long_as_it_may_and_counts_until_it_has_to_be_renewed(
    lifetime_ms: int | None, lasts_ms: int, counts_ms: int
) -> None:
    token = create(new_state(), lifetime_ms=lifetime_ms).token
    assert token.issue_timestamp_ms == NOW_MS
    assert token.max_timestamp_ms == NOW_MS + lasts_ms
    assert token.expiry_timestamp_ms == NOW_MS + counts_ms


def test_times_beyond_what_the_protocol_can_say_are_its_last() -> None:
    highest = str(FOR_EVER_MS)
    settings = {"delegation.token.max.lifetime.ms": highest, "delegation.token.expiry.time.ms": highest}
    state = new_state(**settings)
    created = create(state)
    assert created.token.max_timestamp_ms == created.token.expiry_timestamp_ms == FOR_EVER_MS
    assert renew(state, BY_ALICE, created.hmac) == FOR_EVER_MS
    assert expire(state, BY_ALICE, created.hmac, FOR_EVER_MS) == FOR_EVER_MS


@pytest.mark.parametrize("requester", [BY_ALICE, BY_BOB], ids=["owner", "renewer"])
@pytest.mark.parametrize(("period_ms", "adds_ms"), [(None, EXPIRY_MS), (2_000, 2_000), (FOR_EVER_MS, EXPIRY_MS)])
def test_owner_and_renewers_renew(requester: Requester, period_ms: int | None, adds_ms: int) -> None:
    state = new_state()
    created = create(state, BY_ALICE, BOB)
    now_ms = NOW_MS + 1_000
    assert renew(state, requester, created.hmac, period_ms, now_ms=now_ms) == now_ms + adds_ms
    (token,) = state.metadata.delegation_tokens.values()
    assert token == created.token._replace(expiry_timestamp_ms=now_ms + adds_ms)


def test_no_renewal_goes_beyond_the_last_time() -> None:
    state = new_state()
    created = create(state, lifetime_ms=4_000)
    assert renew(state, BY_ALICE, created.hmac, now_ms=NOW_MS + 3_000) == NOW_MS + 4_000


def test_a_token_ends_sooner_or_at_once() -> None:
    state = new_state()
    created = create(state, BY_ALICE, BOB)
    assert expire(state, BY_BOB, created.hmac, 0) == NOW_MS
    assert state.metadata.delegation_tokens[created.token.token_id].expiry_timestamp_ms == NOW_MS
    assert expire(state, BY_BOB, created.hmac, now_ms=NOW_MS + 99_000) == NOW_MS + 99_000  # even an expired one
    assert state.metadata.delegation_tokens == {}
    assert refused(lambda: expire(state, BY_BOB, created.hmac)) == Code.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_can_be_ended_later_than_it_would() -> None:
    """As with Kafka: whoever may renew it may."""
    state = new_state()
    created = create(state)
    assert expire(state, BY_ALICE, created.hmac, 8_000) == NOW_MS + 8_000
    assert expire(state, BY_ALICE, created.hmac, 80_000) == NOW_MS + MAX_MS


SECRETLESS = [new_state(**{"delegation.token.secret.key": ""}), ControllerState(ControllerSettings())]


def refused(ask: object) -> Code:
    assert callable(ask)
    with pytest.raises(KafkaError) as error:
        ask()
    assert SECRET not in str(error.value)
    return error.value.code


@pytest.mark.parametrize("act", [renew, expire])
def test_others_may_neither_renew_nor_end_it(act: object) -> None:
    assert callable(act)
    state = new_state()
    created = create(state, BY_ALICE, owner=BOB)
    for requester in (BY_CAROL, BY_ALICE):  # not even who had it created for another
        assert refused(lambda: act(state, requester, created.hmac, 5)) == Code.DELEGATION_TOKEN_OWNER_MISMATCH  # noqa: B023
    unknown = token_hmac("another secret", created.token.token_id)
    for hmac in (unknown, b"", created.hmac[:-1], created.hmac + b"\0"):
        assert refused(lambda: act(state, BY_BOB, hmac, 5)) == Code.DELEGATION_TOKEN_NOT_FOUND  # noqa: B023
    later = NOW_MS + EXPIRY_MS + 1
    assert refused(lambda: act(state, BY_BOB, created.hmac, 5, now_ms=later)) == Code.DELEGATION_TOKEN_EXPIRED
    assert list(state.metadata.delegation_tokens.values()) == [created.token]


@pytest.mark.parametrize(
    "requester", [Requester(ANONYMOUS, "h"), Requester(ALICE, "h", by_token=True)], ids=["nobody", "by a token"]
)
def test_whom_no_user_authenticated_asks_in_vain(requester: Requester) -> None:
    state = new_state()
    hmac = create(state).hmac
    for ask in (lambda: create(state, requester), lambda: renew(state, requester, hmac)):
        assert refused(ask) == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert refused(lambda: expire(state, requester, hmac)) == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("state", SECRETLESS)
def test_without_a_secret_there_are_none(state: ControllerState) -> None:
    for ask in (lambda: create(state), lambda: renew(state, BY_ALICE, b""), lambda: expire(state, BY_ALICE, b"")):
        assert refused(ask) == Code.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_level_that_has_no_words_for_them_has_none() -> None:
    state = at_level(13, new_state().settings)
    for ask in (lambda: create(state), lambda: renew(state, BY_ALICE, b""), lambda: expire(state, BY_ALICE, b"")):
        assert refused(ask) == Code.UNSUPPORTED_VERSION
    create(at_level(14, state.settings))


def test_only_users_have_tokens() -> None:
    state, group = new_state(), Principal("Group", "g")
    assert refused(lambda: create(state, owner=group)) == Code.INVALID_PRINCIPAL_TYPE
    assert refused(lambda: create(state, BY_ALICE, BOB, group)) == Code.INVALID_PRINCIPAL_TYPE
    long = Principal("User", "é" * (PRINCIPALS_SIZE_BYTES_MAX // 2))
    assert refused(lambda: create(state, BY_ALICE, long)) == Code.INVALID_REQUEST
    assert state.metadata.delegation_tokens == {}


def test_what_expired_is_swept() -> None:
    state = new_state()
    short, long = create(state, lifetime_ms=1_000).token, create(state).token
    ids = [short.token_id, "it went meanwhile", long.token_id]
    assert done(state, state.decide_sweep_tokens(ids, now_ms=NOW_MS + 1_000)) == ()
    assert done(state, state.decide_sweep_tokens(ids, now_ms=NOW_MS + 1_001)) == (short.token_id,)
    assert list(state.metadata.delegation_tokens) == [long.token_id]


def test_a_clone_and_a_state_of_an_image_find_tokens_too() -> None:
    state = new_state()
    created = create(state)
    for other in (state.clone(), ControllerState(state.settings, state.metadata.image(Offset(5)))):
        assert renew(other, BY_ALICE, created.hmac, 1_000) == NOW_MS + 1_000
        expire(other, BY_ALICE, created.hmac)
    assert renew(state, BY_ALICE, created.hmac, 2_000) == NOW_MS + 2_000


def test_the_hmac_shows_nowhere() -> None:
    created = create(new_state())
    assert "hmac" not in repr(created)


def test_no_id_looks_like_an_option_of_a_command() -> None:
    state = new_state()
    ids = {create(state).token.token_id for _ in range(200)}
    assert (len(ids), [one for one in ids if one.startswith("-")]) == (200, [])
