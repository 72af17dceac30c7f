"""MetadataNeverGoesBack, OwnWritesSeen, RevokedStaysDenied: what clients see of single values (KIP-1243).

Each value is a register that one client writes, one write at a time: an access rule is there or not, a password is this
one or that. Clients that share what they have seen are one context, as in `metadata_reads`: a read is held against all
that its context had seen, or written, when it was begun.

A write without an answer may take effect at any time, or never. So nobody writes that register again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from typing import Any, NamedTuple

from tidelog.base.ids import Offset
from tidelog.sim.checkers.views import Broken

Register = Hashable
"""The name of one."""


class Sight(NamedTuple):
    """What an answer says of a register.

    Attributes:
        told: in words.
        fits: whether a value of it is one that the answer may be of.
        is_grant: whether somebody was let do, or in, what another value forbids.
    """

    told: str
    fits: Callable[[Any], bool]
    is_grant: bool = False

    @classmethod
    def of(cls, value: object) -> Sight:
        """The answer says the value itself."""
        return cls(repr(value), partial(eq, value))


@dataclass(slots=True)
class _Context:
    """The place of a value among those of its register, by register.

    Attributes:
        written: of the last one that it was told is written.
        seen: of the latest one that it has surely seen.
    """

    written: dict[Register, int] = field(default_factory=dict)
    seen: dict[Register, int] = field(default_factory=dict)
    token: Offset | None = None

    def copy(self) -> _Context:
        return _Context(self.written.copy(), self.seen.copy(), self.token)


class BegunRegisterWrite(NamedTuple):
    """A write that was not answered yet."""

    register: Register
    place: int


class BegunRegisterRead(NamedTuple):
    """A read that was not answered yet, and what its context knew when it was begun."""

    context: str
    known: _Context


class Registers:
    """The invariants, for all registers and contexts of a cluster. A register begins with None."""

    never_goes_back = "MetadataNeverGoesBack"
    own_writes_seen = "OwnWritesSeen"
    revoked_stays_denied = "RevokedStaysDenied"
    names = (never_goes_back, own_writes_seen, revoked_stays_denied)

    def __init__(self) -> None:
        self._values: dict[Register, list[object]] = {}
        self._contexts: dict[str, _Context] = {}

    def __contains__(self, register: Register) -> bool:
        return register in self._values

    def values(self, register: Register) -> list[object]:
        """All that it may have had, the first one first."""
        return self._values.get(register, [None])

    def begin_write(self, register: Register, value: object) -> BegunRegisterWrite:
        """A write is sent."""
        values = self._values.setdefault(register, [None])
        values.append(value)
        return BegunRegisterWrite(register, len(values) - 1)

    def on_written(self, context: str, begun: BegunRegisterWrite) -> None:
        """A context was told that it is done."""
        self._context(context).written[begun.register] = begun.place

    def begin_read(self, context: str) -> BegunRegisterRead:
        """A read is sent."""
        return BegunRegisterRead(context, self._context(context).copy())

    def on_answered(
        self, begun: BegunRegisterRead, sights: Mapping[Register, Sight], token: Offset | None = None
    ) -> Iterator[Broken]:
        """The answer of a read.

        Args:
            token: the metadata offset that the answer reflects; None where it does not say.
        """
        now, known, who = self._context(begun.context), begun.known, begun.context
        if token is not None:
            if known.token is not None and token < known.token:
                yield Broken(self.never_goes_back, f"{who} was answered as of offset {token}, after {known.token}")
            now.token = token if now.token is None else max(token, now.token)
        for register, sight in sights.items():
            written, seen = known.written.get(register, 0), known.seen.get(register, 0)
            places = [place for place, value in enumerate(self.values(register)) if sight.fits(value)]
            if not any(place >= written for place in places):
                invariant = self.revoked_stays_denied if sight.is_grant else self.own_writes_seen
                wrote = f"{who} wrote {self.values(register)[written]!r} to {register}"
                yield Broken(invariant, f"{wrote}, and was told {sight.told}")
            elif not any(place >= seen for place in places):
                had = f"{who} was told {sight.told} of {register}"
                yield Broken(self.never_goes_back, f"{had}, after {self.values(register)[seen]!r}")
            else:
                first = next(place for place in places if place >= max(written, seen))
                now.seen[register] = max(first, now.seen.get(register, 0))

    def _context(self, name: str) -> _Context:
        return self._contexts.setdefault(name, _Context())
