"""What happened in a run, as one number: two runs are the same if their traces are."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

from tidelog.base.ports import Buffer

EVENTS_KEPT = 200


class Trace:
    """Every byte on a network and every operation on a disk, in order, with its time.

    Attributes:
        count: of events so far.
        last: the last of them, to be read by people.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._hash = blake2b(digest_size=16)

    def add(self, now_us: int, event: str, data: Buffer = b"") -> None:
        """Something happened.

        Args:
            now_us: virtual time.
            event: what, and where; no address in memory, and nothing else that differs from run to run.
            data: the bytes that it was about.
        """
        self.count += 1
        line = f"{now_us} {event} {len(data)}\n"
        self.last.append(line)
        self._hash.update(line.encode())
        self._hash.update(data)

    @property
    def digest(self) -> str:
        """Of all events so far."""
        return self._hash.hexdigest()
