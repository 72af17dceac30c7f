"""Which requests a connection may send, before, while and after it shows whose it is."""

from __future__ import annotations

import pytest

from tidelog.base.errors import Code, SaslAuthenticationError
from tidelog.security.sasl_server import Identity, PlainServerExchange, ServerExchange, Step
from tidelog.security.sasl_session import REAUTHENTICATED_MS_MIN, SaslSession
from tidelog.wire.api import ApiKey

ALICE, BOB = b"\0alice\0a", b"\0bob\0b"
ALWAYS = {"PLAIN": None}


class Expiring:
    """Whoever comes, until a time."""

    mechanism = "EXPIRING"

    def on_message(self, message: bytes) -> Step:
        return Step(identity=Identity(message.decode(), expires_at_ms=5_000))


def start_exchange(mechanism: str) -> ServerExchange | None:
    if mechanism == "EXPIRING":
        return Expiring()
    return PlainServerExchange({"alice": "a", "bob": "b"}) if mechanism == "PLAIN" else None


def authenticate(session: SaslSession, message: bytes, now_ms: int, session_ms: int | None = None) -> int:
    assert session.on_handshake("PLAIN", is_raw=False, now_ms=now_ms) == Code.NONE
    step = session.on_message(message)
    assert step.identity is not None
    return session.on_authenticated(step.identity, {"PLAIN": session_ms}, now_ms=now_ms, wall_ms=0)


def test_only_what_leads_to_an_authentication_is_served_before_it() -> None:
    session = SaslSession(start_exchange)
    assert session.why_refused(ApiKey.API_VERSIONS, 0) is None
    assert session.why_refused(ApiKey.SASL_HANDSHAKE, 0) is None
    assert session.why_refused(ApiKey.METADATA, 0) == "Metadata came before any authentication"
    assert session.why_refused(ApiKey.SASL_AUTHENTICATE, 0) == "SaslAuthenticate came before any authentication"
    assert session.why_refused(12_345, 0) == "API 12345 came before any authentication"
    assert session.on_handshake("PLAIN", is_raw=False, now_ms=0) == Code.NONE
    assert session.why_refused(ApiKey.SASL_AUTHENTICATE, 0) is None
    for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.METADATA):
        assert "in the middle of an authentication by PLAIN" in (session.why_refused(key, 0) or "")


def test_afterwards_everything_is() -> None:
    session = SaslSession(start_exchange)
    assert authenticate(session, ALICE, 0) == 0
    assert session.identity == Identity("alice")
    assert session.why_refused(ApiKey.METADATA, 1 << 50) is None


def test_a_mechanism_that_is_not_offered_begins_nothing() -> None:
    session = SaslSession(start_exchange)
    assert session.on_handshake("GSSAPI", is_raw=False, now_ms=0) == Code.UNSUPPORTED_SASL_MECHANISM
    assert session.why_refused(ApiKey.SASL_AUTHENTICATE, 0) is not None


def test_after_the_end_of_a_session_only_another_authentication_is_served() -> None:
    session = SaslSession(start_exchange)
    assert authenticate(session, ALICE, 100, session_ms=2_000) == 2_000
    assert session.why_refused(ApiKey.PRODUCE, 2_100) is None
    assert session.why_refused(ApiKey.PRODUCE, 2_101) == "Produce came after the end of the session of 'alice'"
    assert session.why_refused(ApiKey.SASL_HANDSHAKE, 2_101) is None
    assert authenticate(session, ALICE, 2_200, session_ms=2_000) == 2_000
    assert session.why_refused(ApiKey.PRODUCE, 4_200) is None


def test_nobody_becomes_another_user_or_changes_the_mechanism() -> None:
    session = SaslSession(start_exchange)
    authenticate(session, ALICE, 0)
    assert session.on_handshake("PLAIN", is_raw=False, now_ms=REAUTHENTICATED_MS_MIN) == Code.NONE
    with pytest.raises(SaslAuthenticationError, match=r"same user, which is 'alice'"):
        session.on_message(BOB)
    session = SaslSession(start_exchange)
    authenticate(session, ALICE, 0)
    assert session.on_handshake("EXPIRING", is_raw=False, now_ms=REAUTHENTICATED_MS_MIN) == Code.NONE
    with pytest.raises(SaslAuthenticationError, match="by the same mechanism"):
        session.on_message(b"alice")


def test_nobody_authenticates_again_at_once_or_without_headers() -> None:
    session = SaslSession(start_exchange)
    authenticate(session, ALICE, 0)
    assert session.on_handshake("PLAIN", is_raw=False, now_ms=REAUTHENTICATED_MS_MIN - 1) == Code.ILLEGAL_SASL_STATE
    assert session.on_handshake("PLAIN", is_raw=True, now_ms=REAUTHENTICATED_MS_MIN) == Code.ILLEGAL_SASL_STATE
    assert session.why_refused(ApiKey.METADATA, 0) is None


def test_a_session_lasts_no_longer_than_what_was_shown() -> None:
    for session_ms, lasts_ms in ((None, 4_000), (1_000, 1_000), (9_000, 4_000)):
        session = SaslSession(start_exchange)
        session.on_handshake("EXPIRING", is_raw=False, now_ms=0)
        identity = session.on_message(b"alice").identity
        assert identity is not None
        told = session.on_authenticated(identity, {"EXPIRING": session_ms}, now_ms=0, wall_ms=1_000)
        assert (told, session.ends_at_ms) == (lasts_ms, lasts_ms)
    session = SaslSession(start_exchange)
    session.on_handshake("EXPIRING", is_raw=False, now_ms=0)
    with pytest.raises(SaslAuthenticationError):
        session.on_authenticated(Identity("alice", expires_at_ms=5_000), {}, now_ms=0, wall_ms=5_000)
    assert session.identity is None


def test_raw_messages_end_with_the_authentication() -> None:
    session = SaslSession(start_exchange)
    session.on_handshake("PLAIN", is_raw=True, now_ms=0)
    assert session.takes_raw_messages
    identity = session.on_message(ALICE).identity
    assert identity is not None
    session.on_authenticated(identity, ALWAYS, now_ms=0, wall_ms=0)
    assert not session.takes_raw_messages
