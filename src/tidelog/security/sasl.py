"""SASL as a client speaks it: what it says first, and what it answers, for PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628).

client                                 broker
first_message()  --------------------->
                 <--------------------- answer
on_answer(answer) -------------------->           until it returns None: then the broker is who it should be

Kafka: `PlainSaslClient`, `OAuthBearerSaslClient`. SCRAM is in `scram`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Protocol

from tidelog.base.errors import ConfigError, SaslAuthenticationError

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_SEPARATOR = "\x01"


class SaslExchange(Protocol):
    """The client's side of one authentication. It raises `SaslAuthenticationError` without saying with whom."""

    @property
    def mechanism(self) -> str:
        """As Kafka names it."""
        ...

    @property
    def hint(self) -> str | None:
        """What to say beside the broker's reason for refusing; None for nothing."""
        ...

    def first_message(self) -> bytes: ...

    def on_answer(self, answer: bytes) -> bytes | None:
        """What to say to this; None if all is said and the broker has shown what it must."""
        ...


class PlainExchange:
    """User and password as they are: the connection has to be encrypted."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self.hint = f"as user {username!r}: check sasl_username and sasl_password"

    def first_message(self) -> bytes:
        return b"\0".join((b"", self._username.encode(), self._password.encode()))

    def on_answer(self, answer: bytes) -> bytes | None:
        if answer:
            raise SaslAuthenticationError(f"the broker asks for more than PLAIN has to say ({len(answer)} bytes)")
        return None


class OAuthBearerExchange:
    """A token that an authorization server has issued.

    Args:
        token: as it was issued.
        extensions: names and values that the broker is told beside it (KIP-342).

    Raises:
        SaslAuthenticationError: one of them cannot be sent.
    """

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise SaslAuthenticationError(
                f"the token of {len(token)} characters is none: letters, digits and -._~+/ are expected, as in a JWT"
            )
        for name, value in (extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise SaslAuthenticationError(
                    f"the extension {name!r} of the token cannot be sent: its name is letters, and not 'auth';"
                    " its value is printable ASCII"
                )
        self._token = token
        self._extensions = dict(extensions or {})
        self.hint: str | None = "check what sasl_oauth_token_callback returns"
        self._is_refused = False

    def first_message(self) -> bytes:
        pairs = [f"auth=Bearer {self._token}", *(f"{name}={value}" for name, value in self._extensions.items())]
        return ("n,," + "".join(_SEPARATOR + pair for pair in pairs) + _SEPARATOR * 2).encode()

    def on_answer(self, answer: bytes) -> bytes | None:
        if self._is_refused:
            raise SaslAuthenticationError(f"the token was refused, {self.hint}")
        if not answer:
            return None
        self._is_refused = True
        self.hint = f"{_told(answer)}; {self.hint}"
        return _SEPARATOR.encode()  # the broker says that it has failed only after this


def _told(answer: bytes) -> str:
    """What a broker says of a token, in words."""
    text = answer.decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return f"the broker says {text[:200]!r}"
    words = {"status": "status", "scope": "scope", "openid-configuration": "ask for a token at"}
    found = [f"{word} {str(told[key])[:200]!r}" for key, word in words.items() if told.get(key)]
    return f"the broker says {', '.join(found) or repr(text[:200])}"


def check_credentials(owner: str, username: str, password: str) -> None:
    """Raises ConfigError: one of them cannot be sent."""
    for name, text in (("sasl_username", username), ("sasl_password", password)):
        if "\0" in text:
            raise ConfigError(f"{owner}({name}=…): it holds a NUL character, which SASL cannot carry")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{owner}({name}=…): it holds a lone surrogate, which is no character") from None
