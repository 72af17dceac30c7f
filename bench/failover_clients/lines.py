"""What a client's program is told and says: a record every few milliseconds into one partition, and reads them again.

    PROGRAM BOOTSTRAP TOPIC [--group=PROTOCOL] [--debug]

It writes to partition 0 with acks=all, and reads that partition from its end on, both with the client's defaults; with
`--group`, as the only member of a group of that protocol (classic or consumer), which is called as the topic. It says
one line for each record that was acknowledged, and one for each that it was given. Both times are nanoseconds of the
system's clock, so that programs in any language can be compared:

    acknowledged SENT_NS AT_NS
    read SENT_NS AT_NS

`SENT_NS` is the record's value, padded. With `--debug` the client says on stderr what it does. The program runs until
it is killed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

EVERY_SECONDS = 0.005
SIZE_BYTES = 100


class Arguments(NamedTuple):
    """Of every program."""

    bootstrap: str
    topic: str
    group_protocol: str | None
    is_debugged: bool


def arguments() -> Arguments:
    bootstrap, topic = (one for one in sys.argv[1:] if not one.startswith("--"))
    protocol = next((one.partition("=")[2] for one in sys.argv if one.startswith("--group=")), None)
    return Arguments(bootstrap, topic, protocol, "--debug" in sys.argv)


def value_of(sent_ns: int) -> bytes:
    return str(sent_ns).encode().ljust(SIZE_BYTES)


def say_acknowledged(sent_ns: int) -> None:
    _say("acknowledged", sent_ns)


def say_read(value: bytes | None) -> None:
    _say("read", int(value or b"0"))


def _say(event: str, sent_ns: int) -> None:
    os.write(1, f"{event} {sent_ns} {time.time_ns()}\n".encode())  # as a whole, whichever thread it is
