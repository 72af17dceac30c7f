"""What producers were told, what readers were given and what the logs hold in the end: and what is wrong with it.

Every record names its producer, its partition and its number there, so that nothing has to be remembered of how it got
where it is found. The checker knows nothing of the cluster, and of the clients only whether a producer is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class RecordId(NamedTuple):
    """The `number`th record (from 0) that a producer sent to a partition."""

    producer: str
    partition: int
    number: int

    @property
    def value(self) -> bytes:
        """What the record holds."""
        return f"{self.producer}:{self.partition}:{self.number}".encode()

    @staticmethod
    @lru_cache(1 << 20)
    def of(value: bytes | None) -> RecordId | None:
        """Which record holds this; None for none."""
        producer, _, place = (value or b"").decode(errors="replace").partition(":")
        partition, _, number = place.partition(":")
        return RecordId(producer, int(partition), int(number)) if partition.isdigit() and number.isdigit() else None

    def __str__(self) -> str:
        return self.value.decode()


class Given(NamedTuple):
    """A record as a reader was given it."""

    partition: int
    offset: int
    value: bytes | None
    leader_epoch: int | None


class Told(NamedTuple):
    """A reader was told that records are gone, from `divergent_offset` on (None: any), and went on at `next_offset`."""

    partition: int
    divergent_offset: int | None
    next_offset: int


class Fault(Enum):
    """What may be wrong."""

    LOST = "acknowledged, and not there"
    MOVED = "acknowledged at another offset than it has"
    DUPLICATED = "there twice, of an idempotent producer"
    REORDERED = "before one that its producer sent earlier"
    PHANTOM = "sent by nobody, at least not there"
    SKIPPED = "missing between two that are there"
    REPEATED = "given again, or going back"
    VANISHED = "given to a reader, gone without a word"
    UNREAD = "never given to a reader that had the time"
    EPOCHS = "of a leader epoch that cannot be"


class Finding(NamedTuple):
    """One thing that is wrong."""

    fault: Fault
    what: str


@dataclass
class History:
    """See the module.

    Attributes:
        idempotent: the producers that send nothing twice.
        sent: how many records a producer sent to a partition.
        acknowledged: where each was said to be; None where the producer was not told.
        failed: what producers gave up, and why. It may be there all the same.
        reported: what producers were told is gone again, after it had been acknowledged.
        given: what each reader was given and told, in that order.
        final: every partition from its start to its end, when all was over.
    """

    idempotent: set[str] = field(default_factory=set)
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    acknowledged: dict[RecordId, int | None] = field(default_factory=dict)
    failed: dict[RecordId, str] = field(default_factory=dict)
    reported: list[str] = field(default_factory=list)
    given: dict[str, list[Given | Told]] = field(default_factory=dict)
    final: dict[int, list[Given]] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """Everything that is wrong, by kind."""
        return [finding for check in _CHECKS for finding in check(self)]

    def check(self, *excused: Fault) -> None:
        """Raises AssertionError over anything that is wrong, but for the excused faults. Says some of each kind."""
        found = [finding for finding in self.findings() if finding.fault not in excused]
        if not found:
            return
        lines = []
        for fault in Fault:
            of_kind = [finding.what for finding in found if finding.fault is fault]
            lines += [f"{fault.name} ({len(of_kind)}): {what}" for what in of_kind[:5]]
        raise AssertionError("\n".join([f"{len(found)} findings", *lines, *self.failed_lines()]))

    def failed_lines(self) -> list[str]:
        """Some of what producers gave up, for people."""
        return [f"gave up {record}: {why}" for record, why in list(self.failed.items())[:3]]

    def was_sent(self, record: RecordId) -> bool:
        return record.number < self.sent.get((record.producer, record.partition), 0)


def _lost(history: History) -> Iterator[Finding]:
    places: dict[RecordId, list[int]] = {}
    for partition, records in history.final.items():
        for given in records:
            record = RecordId.of(given.value)
            if record is not None and record.partition == partition:
                places.setdefault(record, []).append(given.offset)
    for record, offset in history.acknowledged.items():
        found = places.get(record)
        if found is None:
            yield Finding(Fault.LOST, f"{record}, acknowledged at offset {offset}")
        elif offset is not None and offset not in found:
            yield Finding(Fault.MOVED, f"{record}, acknowledged at offset {offset}, is at {found}")
    for record, found in places.items():
        if len(found) > 1 and record.producer in history.idempotent:
            yield Finding(Fault.DUPLICATED, f"{record} is at {found}")


def _reordered(history: History) -> Iterator[Finding]:
    """Without idempotence nothing is promised: what was tried again at a new leader may come after what is later."""
    for partition, records in history.final.items():
        last: dict[str, RecordId] = {}
        for given in records:
            record = RecordId.of(given.value)
            if record is None or record.producer not in history.idempotent:
                continue
            before = last.get(record.producer)
            if before is not None and record.number < before.number:
                yield Finding(Fault.REORDERED, f"{before} before {record}, at offset {given.offset} of {partition}")
            last[record.producer] = record


def _phantoms(history: History) -> Iterator[Finding]:
    for name, partition, given in _everything(history):
        record = RecordId.of(given.value)
        if record is None or record.partition != partition or not history.was_sent(record):
            yield Finding(Fault.PHANTOM, f"{name}: {given.value!r} at offset {given.offset} of {partition}")


def _gaps(history: History) -> Iterator[Finding]:
    for name, stream in _streams(history):
        expected: dict[int, int] = {}
        for one in stream:
            if isinstance(one, Told):
                expected[one.partition] = one.next_offset
                continue
            where = f"{name}: offset {one.offset} of {one.partition}"
            due = expected.get(one.partition, one.offset)
            if one.offset > due:
                yield Finding(Fault.SKIPPED, f"{where} after {due - 1}")
            elif one.offset < due:
                yield Finding(Fault.REPEATED, f"{where} after {due - 1}")
            expected[one.partition] = one.offset + 1


def _vanished(history: History) -> Iterator[Finding]:
    final = {(partition, one.offset): one for partition, records in history.final.items() for one in records}
    starts = {partition: records[0].offset for partition, records in history.final.items() if records}
    for name, stream in history.given.items():
        undone: dict[int, int] = {}  # what was given later than what is looked at was told to be gone from here on
        for one in reversed(stream):
            if isinstance(one, Told):
                divergent_offset = one.divergent_offset or 0
                undone[one.partition] = min(undone.get(one.partition, divergent_offset), divergent_offset)
                continue
            excused = undone.get(one.partition)
            if excused is not None and one.offset >= excused:
                continue
            if one.offset < starts.get(one.partition, 0):
                continue  # deleted, as retention asks
            left = final.get((one.partition, one.offset))
            if left is None or left.value != one.value or one.leader_epoch not in (None, left.leader_epoch):
                yield Finding(Fault.VANISHED, f"{name}: {one}, where in the end is {left}")


def _unread(history: History) -> Iterator[Finding]:
    for name, stream in history.given.items():
        given = [one for one in stream if isinstance(one, Given)]
        last = {one.partition: one.offset for one in given}
        first = {one.partition: one.offset for one in reversed(given)}
        for partition, records in history.final.items():
            if not records:
                continue
            start, end = records[0].offset, records[-1].offset
            if last.get(partition, -1) < end:
                yield Finding(Fault.UNREAD, f"{name} came to {last.get(partition)} of {partition}, not to {end}")
            if first.get(partition, start) > start:
                yield Finding(Fault.UNREAD, f"{name} began at {first[partition]} of {partition}, not at {start}")


def _epochs(history: History) -> Iterator[Finding]:
    known: dict[tuple[int, int, int], bytes | None] = {}  # no offset is written twice in one epoch
    for name, stream in _streams(history):
        last: dict[int, int] = {}
        for one in stream:
            if isinstance(one, Told):
                last.pop(one.partition, None)
                continue
            if one.leader_epoch is None:
                continue
            where = f"{name}: offset {one.offset} of {one.partition} has leader epoch {one.leader_epoch}"
            if one.leader_epoch < last.get(one.partition, 0):
                yield Finding(Fault.EPOCHS, f"{where}, after {last[one.partition]}")
            last[one.partition] = one.leader_epoch
            other = known.setdefault((one.partition, one.offset, one.leader_epoch), one.value)
            if other != one.value:
                yield Finding(Fault.EPOCHS, f"{where} and is {one.value!r}, elsewhere {other!r}")


_CHECKS: tuple[Callable[[History], Iterator[Finding]], ...] = (
    _lost, _reordered, _phantoms, _gaps, _vanished, _unread, _epochs,
)  # fmt: skip


def _streams(history: History) -> Iterator[tuple[str, list[Given | Told]]]:
    """Everybody who read: the readers, and who looked when all was over."""
    yield from history.given.items()
    for records in history.final.values():
        yield "in the end", list(records)


def _everything(history: History) -> Iterator[tuple[str, int, Given]]:
    for name, stream in _streams(history):
        for one in stream:
            if isinstance(one, Given):
                yield name, one.partition, one
