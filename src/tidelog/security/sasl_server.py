"""SASL as a broker speaks it: what it answers, and who the client turns out to be, for PLAIN and OAUTHBEARER.

client                                 broker
message              ----------------> on_message(message)
                     <---------------- Step.answer             until Step.identity says who it is

Whoever is refused learns the mechanism, and nothing of the reason: not whether such a user is known. SCRAM is in
`scram_server`. Kafka: `PlainSaslServer`, `OAuthBearerSaslServer`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelog.base.errors import SaslAuthenticationError

SEPARATOR = "\x01"
PAIRS_MAX = 100
"""In a message of OAUTHBEARER."""
_GS2_HEADER = re.compile(r"n,(?:a=([^,]*))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_TOLD_OF_BAD_TOKENS = '{"status":"invalid_token"}'
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9\-._~+/]+=*)")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who authenticated.

    Attributes:
        name: of the user.
        expires_at_ms: when what was shown stops being good, as a wall clock says; None for never.
        by_token: whether it was a delegation token.
    """

    name: str
    expires_at_ms: int | None = None
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What the broker owes for one message.

    Attributes:
        answer: the mechanism's own bytes.
        identity: who the client is; None while it has more to show.
        token: to be checked, and then told by `on_checked`, before there is an answer; None for none.
    """

    answer: bytes = b""
    identity: Identity | None = None
    token: str | None = None


class ServerExchange(Protocol):
    """The broker's side of one authentication. Nothing is to be asked of it after an error, or an identity."""

    @property
    def mechanism(self) -> str:
        """As Kafka names it."""
        ...

    def on_message(self, message: bytes) -> Step:
        """What is owed for this.

        Raises:
            SaslAuthenticationError: the client is not who it says, or speaks another mechanism. Its text may be told.
        """
        ...


def refused(mechanism: str) -> SaslAuthenticationError:
    """For whoever is not who they say. It is the same whatever the reason."""
    return SaslAuthenticationError(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )


class PlainServerExchange:
    """User and password as they are (RFC 4616).

    Args:
        passwords: of the users that the listener knows.
    """

    mechanism = "PLAIN"

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def on_message(self, message: bytes) -> Step:
        """See `ServerExchange`. An unknown user's password is compared too, with none."""
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise refused(self.mechanism)
        authorization_id, user, password = parts
        name = _decoded(user)
        known = None if name is None else self._passwords.get(name)
        is_right = hmac.compare_digest((known or "").encode(), password)
        if not name or known is None or not known or not is_right or authorization_id not in (b"", user):
            raise refused(self.mechanism)
        return Step(identity=Identity(name))


class OAuthBearerServerExchange:
    """A token of an authorization server (RFC 7628). The driver has it checked: the keys may have to be fetched.

    on_message(token) -> Step.token, on_checked(identity)   the client is let in
                                   , on_refused(reason)     its error, then
    on_message(\\x01)                                        the end
    """

    mechanism = "OAUTHBEARER"

    def __init__(self) -> None:
        self._authorization_id = ""
        self._failure: str | None = None
        self._reason: SaslAuthenticationError | None = None
        self._is_checked = False

    def on_message(self, message: bytes) -> Step:
        """See `ServerExchange`."""
        if self._failure is not None:
            raise SaslAuthenticationError(self._failure) from self._reason
        if self._is_checked:
            raise refused(self.mechanism)
        text = _decoded(message)
        header = None if text is None else _GS2_HEADER.match(text)
        if text is None or header is None:
            raise refused(self.mechanism)
        rest = text[header.end() :]
        if not rest.startswith(SEPARATOR) or not rest.endswith(SEPARATOR * 2) or rest.count(SEPARATOR) > PAIRS_MAX:
            raise refused(self.mechanism)
        pairs = [_PAIR.fullmatch(pair) for pair in rest[1:-2].split(SEPARATOR)]
        if any(pair is None for pair in pairs):
            raise refused(self.mechanism)
        found = [(pair[1], pair[2]) for pair in pairs if pair is not None]
        shown = [value for name, value in found if name == "auth"]
        token = _BEARER.fullmatch(shown[0]) if len(shown) == 1 else None
        if token is None or len({name for name, _ in found}) != len(found):
            raise refused(self.mechanism)
        self._authorization_id = header[1] or ""
        self._is_checked = True
        return Step(token=token[1])

    def on_checked(self, identity: Identity) -> Step:
        """The token is good. Raises SaslAuthenticationError: it is somebody else's than the client says."""
        if self._authorization_id not in ("", identity.name):
            raise refused(self.mechanism)
        return Step(identity=identity)

    def on_refused(self, reason: SaslAuthenticationError) -> Step:
        """The token is not: its sender is told so, and has to answer once more. The reason is for the node's log."""
        self._failure, self._reason = _TOLD_OF_BAD_TOKENS, reason
        return Step(answer=_TOLD_OF_BAD_TOKENS.encode())


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None
