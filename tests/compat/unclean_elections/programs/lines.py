"""What a program of the story says, one line an event, its fields parted by tabs.

    version   name, version          of the client, first of all
    got       offset, value          a record that the program was given
    committed                        the group has its position
    told      type, place, words     of a reader: an error; `place` is the offset that it names to go on at, or `-`
    stays                            no record came for a while after the first error, or an error came again
    acked     offset, value          a record that the producer was acknowledged
    failed    type, -, words         of a producer: a record that was not written
    lost      type, place, words     of a producer: a callback for losses
    done                             all records of one command have their fate

A reader ends with the record LAST, or at `stays`. A writer has a producer for each name that it is given. It reads
`NAME PREFIX COUNT` from stdin until that ends, and writes with the producer NAME.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Send = Callable[[str], Callable[[], int]]

AFTER_ERROR_SECONDS = 2.0
"""For how long a reader that was told goes on asking, to find out whether its client goes on by itself."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Of every program, in this order."""

    role: str  # read, commit, resume or write
    bootstrap: str
    topic: str
    group: str
    last: str


def arguments() -> Arguments:
    return Arguments(*sys.argv[1:])


def say(event: str, *fields: object) -> None:
    print(event, *(" ".join(str(field).split()) for field in fields), sep="\t", flush=True)


def say_error(event: str, error: str, place: int | None, words: object) -> None:
    say(event, error, "-" if place is None else place, words)


class Reader:
    """When a reader has seen all that the story needs.

    Args:
        last: the value that it ends with.
    """

    def __init__(self, last: str) -> None:
        self._last = last
        self._deadline: float | None = None
        self.is_done = False

    def on_record(self, offset: int, value: str) -> None:
        say("got", offset, value)
        self._deadline = None
        self.is_done |= value == self._last

    def on_error(self, error_type: str, place: int | None, words: object) -> None:
        if self._deadline is not None:
            self._stay()
            return
        say_error("told", error_type, place, words)
        self._deadline = time.monotonic() + AFTER_ERROR_SECONDS

    def on_nothing(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._stay()

    def _stay(self) -> None:
        say("stays")
        self.is_done = True


def commands() -> Iterator[tuple[str, list[str]]]:
    """The producer to write with, and the values to write."""
    for line in sys.stdin:
        name, prefix, count = line.split()
        yield name, [f"{prefix}-{number}" for number in range(int(count))]


def write_all(
    new_producer: Callable[[], Send],
    fate_of: Callable[[BaseException], tuple[str, int | None]] = lambda error: (type(error).__name__, None),
) -> None:
    """Write what is asked for.

    Args:
        new_producer: returns how to start to write a value with a new producer. What that returns waits, and returns
            the offset. Either may raise.
        fate_of: what an error is called, and the offset that it names.
    """
    producers: dict[str, Send] = {}
    for name, values in commands():
        if name not in producers:
            producers[name] = new_producer()
        for value in values:
            try:
                say("acked", producers[name](value)(), value)
            except Exception as error:
                say_error("failed", *fate_of(error), error)
        say("done")
