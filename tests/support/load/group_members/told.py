"""What every member program is told, and what it tells: lines on stdout, each written before what it says is committed.

owns 0,3,4          the partitions it has, whenever that changes
revoked             partitions were taken from it
read 3 100 149      it was given these records of partition 3, both ends inclusive
closed              it left the group
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

__all__ = ["CLASSIC", "CONSUMER", "PROTOCOLS", "WITHOUT_OFFSETS", "Told", "Voice", "listen"]

PROTOCOLS = CLASSIC, CONSUMER = "classic", "consumer"

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 200
WITHOUT_OFFSETS = "Failed to fetch committed offsets"
"""So librdkafka begins what it tells of an OffsetFetch that was refused, and does not send again.

It keeps its assignment, its heartbeats are answered, and it reads nothing until it is assigned something anew
(confluentinc/librdkafka issue 5586). `NOT_COORDINATOR` does it: the coordinator moved since the member was assigned.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """The arguments of a member program. `instance` makes it a static member.

    Of the protocol `consumer` (KIP-848) `strategy` is the coordinator's assignor, and the node says the times.
    """

    bootstrap: str
    topic: str
    group: str
    strategy: str
    instance: str | None
    protocol: str


def listen() -> tuple[Told, threading.Event]:
    """The arguments, and what is set once the program shall leave: its stdin ended."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "group", "strategy"):
        parser.add_argument(name)
    parser.add_argument("--instance")
    parser.add_argument("--protocol", choices=PROTOCOLS, default=CLASSIC)
    leaving = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    return Told(**vars(parser.parse_args())), leaving


class Voice:
    """Tells what a member has and reads."""

    def __init__(self) -> None:
        self._owned: frozenset[int] | None = None

    def owns(self, partitions: Collection[int]) -> None:
        if self._owned != (owned := frozenset(partitions)):
            self._owned = owned
            self._say("owns " + ",".join(map(str, sorted(owned))))

    def revoked(self) -> None:
        self._say("revoked")

    def read(self, partition: int, offsets: Iterable[int]) -> None:
        """These offsets, ascending; one line for each run without a gap."""
        first = last = -1
        for offset in offsets:
            if offset != last + 1 or last < 0:
                if last >= 0:
                    self._say(f"read {partition} {first} {last}")
                first = offset
            last = offset
        if last >= 0:
            self._say(f"read {partition} {first} {last}")

    def closed(self) -> None:
        self._say("closed")

    @staticmethod
    def _say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
