"""SCRAM as a client speaks it: RFC 5802, with SHA-256 (RFC 7677) and SHA-512.

client                                              broker
n,,n=user,r=NONCE           ------------------------>
                            <------------------------ r=NONCE+THEIRS,s=SALT,i=ITERATIONS
c=biws,r=NONCE+THEIRS,p=PROOF ---------------------->           the client knows the password
                            <------------------------ v=SIGNATURE   the broker knows what is derived from it

A password is its UTF-8: Kafka's tools and clients derive the stored keys from that, without SASLprep, so that a
prepared one would be another where the two differ. Kafka: `ScramSaslClient`, `ScramFormatter`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import NamedTuple

from tidelog.base.errors import SaslAuthenticationError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanisms to the names that `hashlib` has for their hashes."""

SALT_SIZE_BYTES = 24
"""Of those that are made here."""
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 1_000_000
"""Of which a client takes a second or so; whoever asks for more means to keep it busy."""

_GS2_HEADER = "n,,"  # no channel binding, and nobody is acted for


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """`Hi` of RFC 5802. It takes a millisecond for some thousand iterations: not for an event loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


class ScramKeys(NamedTuple):
    """What is derived from a password."""

    client_key: bytes
    server_key: bytes


class ScramSecret:
    """A user and a password. Its keys are derived once for a salt and a number of iterations.

    Args:
        mechanism: one of HASHES.
        by_token: whether the user is the id of a delegation token, and the password its HMAC in base64 (KIP-48).
    """

    def __init__(self, mechanism: str, username: str, password: str, *, by_token: bool = False) -> None:
        self.mechanism = mechanism
        self.username = username
        self.by_token = by_token
        self.hash_name = HASHES[mechanism]
        self._password = password.encode()
        self._derived: tuple[bytes, int, ScramKeys] | None = None

    def keys(self, salt: bytes, iterations: int) -> ScramKeys:
        """The keys of this salt."""
        if self._derived is None or self._derived[:2] != (salt, iterations):
            salted = hashlib.pbkdf2_hmac(self.hash_name, self._password, salt, iterations)
            keys = ScramKeys(self.hmac(salted, b"Client Key"), self.hmac(salted, b"Server Key"))
            self._derived = (salt, iterations, keys)
        return self._derived[2]

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)


class ScramExchange:
    """One authentication.

    Args:
        secret: whose.
        nonce: never used before, and not to be guessed; printable, without commas.
    """

    def __init__(self, secret: ScramSecret, nonce: str) -> None:
        self.mechanism = secret.mechanism
        who = "delegation token" if secret.by_token else "user"
        self.hint = f"as {who} {secret.username!r}: check sasl_username and sasl_password"
        self._secret = secret
        self._nonce = nonce
        name = secret.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}{',tokenauth=true' if secret.by_token else ''}"
        self._signature: bytes | None = None
        self._is_verified = False

    def first_message(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def on_answer(self, answer: bytes) -> bytes | None:
        if self._is_verified:
            raise SaslAuthenticationError("the broker goes on after the end of the exchange")
        if self._signature is None:
            return self._final_message(answer)
        self._verify(answer)
        return None

    def _final_message(self, answer: bytes) -> bytes:
        server_first, attributes = _attributes(answer)
        if "m" in attributes:
            raise SaslAuthenticationError(f"the broker wants an extension of SCRAM that is unknown: {attributes['m']}")
        nonce = attributes.get("r", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslAuthenticationError(
                "the broker's nonce does not begin with the client's, or adds nothing to it:"
                " it is no answer to this exchange"
            )
        salt = _decoded(attributes.get("s", ""))
        iterations = attributes.get("i", "")
        if not salt or not (iterations.isascii() and iterations.isdigit() and len(iterations) < 12):
            raise SaslAuthenticationError("the broker's first SCRAM message lacks the salt or the iterations")
        if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise SaslAuthenticationError(
                f"the broker asks for {int(iterations)} iterations of the hash, and {ITERATIONS_MIN} to"
                f" {ITERATIONS_MAX} are done here: fewer would make the password easy to guess. Have the credentials of"
                f" user {self._secret.username!r} stored with another number"
            )
        secret = self._secret
        keys = secret.keys(salt, int(iterations))
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = ",".join((self._first_bare, server_first, without_proof)).encode()
        client_signature = secret.hmac(hashlib.new(secret.hash_name, keys.client_key).digest(), signed)
        proof = bytes(one ^ other for one, other in zip(keys.client_key, client_signature, strict=True))
        self._signature = secret.hmac(keys.server_key, signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, answer: bytes) -> None:
        _, attributes = _attributes(answer)
        if "e" in attributes:
            raise SaslAuthenticationError(f"the broker says {attributes['e'][:200]!r}, {self.hint}")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(attributes.get("v", "")), self._signature):
            raise SaslAuthenticationError(
                "the broker's signature is wrong: it does not know the password, and may be somebody else"
            )
        self._is_verified = True


def _attributes(answer: bytes) -> tuple[str, dict[str, str]]:
    """A message's text and its attributes by letter."""
    try:
        text = answer.decode()
        pairs = [attribute.split("=", 1) for attribute in text.split(",")]
        return text, dict(pairs)
    except ValueError:  # not UTF-8, or no pairs
        raise SaslAuthenticationError(f"the broker sent {len(answer)} bytes that are no message of SCRAM") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise SaslAuthenticationError("the broker sent what is not base64 in a message of SCRAM") from None
