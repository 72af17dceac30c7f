"""What happened in a run, as one number: two runs are the same if their traces are."""

from __future__ import annotations

from hashlib import blake2b

from tidelog.base.ports import Buffer

_HASHED_AT_ONCE = 256
"""Pieces: to hash them one by one would cost more than to write them down."""


class Trace:
    """Every byte on a network and every operation on a disk, in order, with its time."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._hash = blake2b(digest_size=16)

    def add(self, now_us: int, event: str, data: Buffer = b"") -> None:
        """Something happened.

        Args:
            now_us: virtual time.
            event: what, and where; no address in memory, and nothing else that differs from run to run.
            data: the bytes that it was about.
        """
        pieces = self._pieces
        pieces.append(f"{now_us} {event} {len(data)}\n".encode())
        pieces.append(bytes(data))
        if len(pieces) >= _HASHED_AT_ONCE:
            self._hash_pieces()

    @property
    def digest(self) -> str:
        """Of all events so far."""
        self._hash_pieces()
        return self._hash.hexdigest()

    def _hash_pieces(self) -> None:
        self._hash.update(b"".join(self._pieces))
        self._pieces.clear()
