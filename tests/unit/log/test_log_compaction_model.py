"""A compacted log under everything that may happen to it, held against the records that were appended.

The power may fail at any change of the disk. Of the names in the directory a prefix of the changes survives, as on
a file system with a journal; of the bytes, what was synced, and an arbitrary part of the rest.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from support.examples import examples
from support.fixtures.cleaning import clean, key_values
from support.fixtures.logs import DIRECTORY, NOW_MS, make_batch, open_log, records_of
from support.fixtures.memory_disk import Contents, MemoryDisk, MemoryFile
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log

SEEDS = 150
STEPS = 25
KEYS = (b"a", b"b", b"c", b"d", b"e")
PRODUCERS = (5, 6)


class PowerCutError(BaseException):
    """The machine stops here. Nobody catches it but the model."""


class JournalDisk(MemoryDisk):
    """Stops at the `stop_at`-th change of anything, and remembers the names after each change."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[dict[str, Contents]] = [{}]
        self.changes = 0
        self.stop_at: int | None = None

    def admit(self, path: str, operation: str) -> None:
        super().admit(path, operation)
        self.changes += 1
        if self.changes == self.stop_at:
            self.stop_at = None
            raise PowerCutError(path, operation)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        self.journal.append(dict(self.files))
        return file

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.journal.append(dict(self.files))

    def remove(self, path: str) -> None:
        super().remove(path)
        self.journal.append(dict(self.files))

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.journal = [dict(self.files)]

    def lose_power(self, random: Random) -> None:
        survivors = random.choice(self.journal)
        self.files, self._synced_names = dict(survivors), dict(survivors)
        super().lose_power(random)
        self.journal = [dict(self.files)]


class Sent(NamedTuple):
    producer_id: int
    sequence: int
    base_offset: int
    end_offset: int
    key: bytes
    values: tuple[str | None, ...]


class Model:
    """The log, and all that was appended to it and is not lost for good reason."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = JournalDisk()
        self.settings: dict[str, Any] = {
            "cleanup_policy": frozenset({"compact", "delete"}),
            "segment_size_bytes": self.random.choice([300, 500, 1000]),
            "index_interval_bytes": self.random.choice([0, 100, 4096]),
            "delete_retention_ms": self.random.choice([0, 3, 1000]),
            "min_cleanable_dirty_ratio": 0.0,
            "retention_ms": None,
        }
        self.sent: list[Sent] = []
        self.log_start_offset = self.synced_offset = self.first_dirty_offset = self.leader_epoch = 0
        self.now_ms = NOW_MS
        self.log = self.opened()

    def opened(self) -> Log:
        start, point = self.log_start_offset, self.synced_offset
        return open_log(self.disk, clean=False, recovery_point=point, log_start_offset=start, **self.settings)

    def batch(self, sent: Sent) -> bytearray:
        identity: dict[str, Any] = {
            "producer_id": sent.producer_id,
            "producer_epoch": 0,
            "base_sequence": sent.sequence,
        }
        return make_batch(*sent.values, key=sent.key, **(identity if sent.producer_id >= 0 else {}))

    def append(self) -> None:
        random = self.random
        producer_id = random.choice((-1, -1, *PRODUCERS))
        known = self.log.producers.get(producer_id)
        sequence = 0 if known is None else known.batches[-1].last_sequence + 1
        values = tuple(random.choice([None, "v", "w" * 40]) for _ in range(random.randint(1, 4)))
        end_offset = self.log.log_end_offset
        sent = Sent(producer_id, sequence, end_offset, end_offset + len(values), random.choice(KEYS), values)
        self.log.append_as_leader(self.batch(sent), leader_epoch=LeaderEpoch(self.leader_epoch), now_ms=self.now_ms)
        self.sent.append(sent)

    def flush(self) -> None:
        self.log.flush()
        self.synced_offset = self.log.recovery_point

    def compact(self) -> None:
        if self.random.random() < 0.7:
            self.log.roll(self.now_ms)
            self.flush()
        self.disk.stop_at = self.disk.changes + self.random.randint(1, 90)
        first, size = max(self.first_dirty_offset, self.log_start_offset), self.random.choice([150, 400, 1 << 20])
        done = clean(self.log, first_dirty_offset=first, now_ms=self.now_ms, dedupe_size_bytes=size)
        self.first_dirty_offset = self.first_dirty_offset if done is None else done

    def delete_from_the_start(self) -> None:
        self.log_start_offset = self.random.randint(self.log_start_offset, self.log.log_end_offset)
        self.log.advance_log_start_offset(Offset(self.log_start_offset))
        self.disk.stop_at = self.disk.changes + self.random.randint(1, 12)
        self.log.delete_segments_before(Offset(self.log_start_offset))
        self.log.segments.remove_deleted_files()

    def lose_power(self) -> None:
        self.disk.lose_power(self.random)
        self.restart()

    def restart(self) -> None:
        self.log = self.opened()
        assert self.log.recovery.damages == []
        assert self.log.log_end_offset >= self.synced_offset
        self.sent = [sent for sent in self.sent if sent.end_offset <= self.log.log_end_offset]
        self.leader_epoch += 1
        self.log.assign_leader_epoch(LeaderEpoch(self.leader_epoch))

    def check(self) -> None:
        start, end = self.log_start_offset, self.log.log_end_offset
        assert self.log.log_start_offset == start
        records = {
            sent.base_offset + index: (sent.key, None if value is None else value.encode())
            for sent in self.sent
            for index, value in enumerate(sent.values)
        }
        left = [record for record in records_of(self.log) if record.offset >= start]
        assert [(record.key, record.value) for record in left] == [records[record.offset] for record in left]
        latest = {key: value for offset, (key, value) in sorted(records.items()) if offset >= start}
        if not start or all(record.offset >= start for record in records_of(self.log)):
            assert key_values(self.log) == {key: value for key, value in latest.items() if value is not None}
        for offset in range(start, end):
            assert len(self.log.read(Offset(offset), size_bytes_max=1, end_offset=Offset(end)))
        for producer_id in PRODUCERS:
            mine = [sent for sent in self.sent if sent.producer_id == producer_id and sent.end_offset > start]
            if mine:
                again = self.log.append_as_leader(
                    self.batch(mine[-1]), leader_epoch=LeaderEpoch(self.leader_epoch), now_ms=self.now_ms
                )
                assert (again.is_duplicate, again.first_offset) == (True, mine[-1].base_offset)


@pytest.mark.parametrize("seed", range(examples(SEEDS)))
def test_no_stop_at_any_moment_loses_a_key_or_forgets_a_producer(seed: int) -> None:
    model = Model(seed)
    steps = [model.append] * 4 + [model.flush, model.compact, model.compact, model.delete_from_the_start]
    steps += [model.lose_power, model.restart]
    for _ in range(STEPS):
        model.now_ms += model.random.randint(0, 3)
        try:
            model.random.choice(steps)()
        except PowerCutError:
            model.random.choice([model.lose_power, model.lose_power, model.restart])()
        model.disk.stop_at = None
        model.check()
    assert model.disk.exists(DIRECTORY)
