"""SCRAM as a broker speaks it: RFC 5802 with what it keeps of a password, from which the password cannot be had.

A user who is not known is asked for a proof all the same (`scram_stand_ins`), and is refused as a wrong password is.
Kafka: `ScramSaslServer`, `ScramFormatter`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable

from tidelog.base.errors import SaslAuthenticationError
from tidelog.metadata.scram_credentials import ScramCredential
from tidelog.security.sasl_server import Identity, Step, refused
from tidelog.security.scram import HASHES, ScramSecret

_NAME = r"(?:[^,=\0]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_PRINTABLE})(?:,[A-Za-z]+=[^,\0]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


FindCredential = Callable[[str, bool], ScramCredential | None]
"""(name, whether it is that of a delegation token) to what is kept of it; None for an unknown one."""

Identify = Callable[[str, bool], Identity | None]
"""The same, to who that is: a delegation token is its owner. None for what counts no more by now."""


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """What to keep of a password. It takes as long as the iterations do: not for an event loop."""
    secret = ScramSecret(mechanism, "", password)
    keys = secret.keys(salt, iterations)
    stored_key = hashlib.new(secret.hash_name, keys.client_key).digest()
    return ScramCredential(salt, stored_key, keys.server_key, iterations)


def _of_that_name(name: str, by_token: bool) -> Identity:
    return Identity(name, by_token=by_token)


class ScramServerExchange:
    """One authentication.

    Args:
        mechanism: one of HASHES.
        find_credential: what is kept of a user.
        nonce: never used before, and not to be guessed; printable, without commas.
        stand_in: what a user is asked for a proof with who is not known (`ScramStandIns`).
        identify: who a name is that has shown its proof.
    """

    def __init__(
        self,
        mechanism: str,
        find_credential: FindCredential,
        nonce: str,
        stand_in: Callable[[str], ScramCredential],
        *,
        identify: Identify = _of_that_name,
    ) -> None:
        self.mechanism = mechanism
        self._hash_name = HASHES[mechanism]
        self._find_credential = find_credential
        self._nonce = nonce
        self._stand_in = stand_in
        self._identify = identify
        self._asked: tuple[re.Match[str], str, bytes, ScramCredential, Identity | None] | None = None
        self._is_over = False

    def on_message(self, message: bytes) -> Step:
        """See `ServerExchange`."""
        if self._is_over:
            raise refused(self.mechanism)
        try:
            text = message.decode()
        except UnicodeDecodeError:
            self._is_over = True
            raise refused(self.mechanism) from None
        try:
            return self._on_first(text) if self._asked is None else self._on_final(text)
        except SaslAuthenticationError:
            self._is_over = True
            raise

    def _on_first(self, text: str) -> Step:
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None:
            raise refused(self.mechanism)
        name = _plain_name(first["name"])
        if first["authorization_id"] is not None and _plain_name(first["authorization_id"]) != name:
            raise refused(self.mechanism)
        by_token = ",tokenauth=true" in f"{first['extensions']},"
        found = self._find_credential(name, by_token)
        known = None if found is None else self._identify(name, by_token)
        credential = found or self._stand_in(name)
        nonce = first["nonce"] + self._nonce
        answer = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._asked = first, nonce, answer.encode(), credential, known
        return Step(answer.encode())

    def _on_final(self, text: str) -> Step:
        assert self._asked is not None
        first, nonce, server_first, credential, identity = self._asked
        self._is_over = True
        final = _CLIENT_FINAL.fullmatch(text)
        if final is None or not hmac.compare_digest(final["nonce"], nonce):
            raise refused(self.mechanism)
        if _unbase64(final["binding"]) not in (first["header"].encode(), b"n,,"):  # Java's client says n,, always
            raise refused(self.mechanism)
        proof = _unbase64(final["proof"])
        signed = b",".join((first["bare"].encode(), server_first, final["without_proof"].encode()))
        signature = hmac.digest(credential.stored_key, signed, self._hash_name)
        if len(proof) != len(signature):
            raise refused(self.mechanism)
        client_key = (int.from_bytes(proof) ^ int.from_bytes(signature)).to_bytes(len(signature))
        is_right = hmac.compare_digest(hashlib.new(self._hash_name, client_key).digest(), credential.stored_key)
        if not is_right or identity is None:
            raise refused(self.mechanism)
        verifier = hmac.digest(credential.server_key, signed, self._hash_name)
        return Step(b"v=" + b64encode(verifier), identity)


def _plain_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def _unbase64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return b""
