"""What a user who is not known is asked for a proof with, so that nobody learns who is known (RFC 5802, 9)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from tidelog.metadata.scram_credentials import ScramCredential
from tidelog.security.scram import HASHES, ITERATIONS_MIN, SALT_SIZE_BYTES

USERS_MAX = 1_000
"""So many users are looked at."""

_TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Kafka's tools make salts of these."""


_Kind = tuple[int, bool, int]
"""Of a credential: the size of its salt, whether that is text, and the iterations."""


class ScramStandIns:
    """Of one mechanism. No password leads to one.

    Args:
        known: of the users that there are: a stand-in has the iterations, and the kind of salt, of one of them.
        key: the same on all brokers and told to nobody, or whoever asks two of them learns that a user is not known.
    """

    def __init__(self, mechanism: str, known: Iterable[ScramCredential], key: bytes) -> None:
        self._mechanism = mechanism
        self._key = key
        self._kinds = Counter((len(one.salt), one.salt.isalnum(), one.iterations) for one in islice(known, USERS_MAX))

    def of(self, name: str) -> ScramCredential:
        """The same for a name each time, as long as the users have the same kinds of salts, about as often."""
        kind = max(self._kinds, key=lambda one: self._rank(one, name), default=(SALT_SIZE_BYTES, False, ITERATIONS_MIN))
        size_bytes, is_text, iterations = kind
        salt = self._bytes("salt", name, size_bytes)
        if is_text:
            salt = bytes(_TEXT[byte % len(_TEXT)] for byte in salt)
        key_size_bytes = hashlib.new(HASHES[self._mechanism]).digest_size
        stored_key, server_key = (self._bytes(what, name, key_size_bytes) for what in ("stored", "server"))
        return ScramCredential(salt, stored_key, server_key, iterations)

    def _rank(self, kind: _Kind, name: str) -> float:
        """Rendezvous hashing: the weight is the length of the count in bits, so that one user more changes nothing."""
        drawn = int.from_bytes(self._bytes(f"kind {kind}", name, 7)) / (1 << 56)
        return float(drawn ** (1 / self._kinds[kind].bit_length()))

    def _bytes(self, what: str, name: str, size_bytes: int) -> bytes:
        parts = (self._key, what.encode(), self._mechanism.encode(), name.encode())
        return hashlib.shake_256(b"".join(len(part).to_bytes(4) + part for part in parts)).digest(size_bytes)
