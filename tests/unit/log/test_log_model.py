"""A log under everything that may happen to it, held against a list of batches.

The model knows nothing of segments, indexes or files. After a crash the log may have lost a tail that was not synced,
and nothing else: what is left must be a prefix of the model, down to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.examples import examples
from support.fixtures.logs import DIRECTORY, NOW_MS, batches_of, lineage_of, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, DiskError, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log
from tidelog.records import stamp

PRODUCERS = (5, 6)


@dataclass(frozen=True)
class Batch:
    base: int
    count: int
    epoch: int
    data: bytes
    producer: int = -1
    producer_epoch: int = -1
    sequence: int = -1

    @property
    def end(self) -> int:
        return self.base + self.count


class LogMachine(RuleBasedStateMachine):
    disk: MemoryDisk
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []  # all ever appended and not truncated, those below the log start included
        self.lineage: list[tuple[int, int]] = []
        self.log_start = 0
        self.start_at = 0  # where the log began anew
        self.epoch = 0
        self.synced_end = 0
        self.clock = NOW_MS

    @initialize(
        segment_size_bytes=st.sampled_from([400, 800, 1 << 20]), index_interval_bytes=st.sampled_from([0, 150, 4096])
    )
    def begin(self, segment_size_bytes: int, index_interval_bytes: int) -> None:
        self.settings = {
            "segment_size_bytes": segment_size_bytes,
            "index_interval_bytes": index_interval_bytes,
            "retention_ms": None,
        }
        self.disk = MemoryDisk()
        self.log = self.open(clean=True)
        assert self.log.recovery.lines() == []

    def open(self, *, clean: bool) -> Log:
        return open_log(
            self.disk,
            clean=clean,
            recovery_point=self.synced_end,
            log_start_offset=self.log_start,
            **self.settings,  # type: ignore[arg-type]
        )

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start_at

    def assign(self, epoch: int) -> None:
        if self.lineage and self.lineage[-1][0] == epoch:
            return
        self.lineage = [entry for entry in self.lineage if entry[1] < self.end] + [(epoch, self.end)]

    # Appending.

    def append(self, count: int, size: int, producer: int = -1, producer_epoch: int = -1, sequence: int = -1) -> None:
        self.clock += 1
        batch = make_batch(
            *(bytes([65 + self.end % 26]) * size for _ in range(count)),
            timestamp=self.clock,
            producer_id=producer,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        expected = bytearray(batch)
        stamp(expected, 0, self.end, self.epoch)
        result = self.log.append_as_leader(batch, leader_epoch=LeaderEpoch(self.epoch), now_ms=self.clock)
        assert (result.first_offset, result.last_offset) == (self.end, self.end + count - 1)
        assert not result.is_duplicate
        self.assign(self.epoch)
        self.batches.append(Batch(self.end, count, self.epoch, bytes(expected), producer, producer_epoch, sequence))

    @rule(count=st.integers(1, 4), size=st.integers(0, 60))
    def append_plain(self, count: int, size: int) -> None:
        self.append(count, size)

    def last_of(self, producer: int) -> Batch | None:
        last = next((batch for batch in reversed(self.batches) if batch.producer == producer), None)
        if last is not None and last.end <= self.log_start and self.log.producers.get(producer) is None:
            return None  # its records were deleted; a later loss may have taken what was remembered of them
        return last

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 3), new_epoch=st.booleans())
    def append_idempotent(self, producer: int, count: int, new_epoch: bool) -> None:
        last = self.last_of(producer)
        if last is None:
            self.append(count, 3, producer, 0, 0)
        elif new_epoch:
            self.append(count, 3, producer, last.producer_epoch + 1, 0)
        else:
            self.append(count, 3, producer, last.producer_epoch, last.sequence + last.count)

    @precondition(lambda self: any(batch.producer >= 0 for batch in self.batches))
    @rule(producer=st.sampled_from(PRODUCERS))
    def append_duplicate(self, producer: int) -> None:
        last = self.last_of(producer)
        if last is None:
            return
        result = self.log.append_as_leader(
            bytearray(last.data[:8].replace(last.data[:8], bytes(8)) + last.data[8:]),
            leader_epoch=LeaderEpoch(self.epoch),
            now_ms=self.clock,
        )
        assert result.is_duplicate
        assert (result.first_offset, result.last_offset) == (last.base, last.end - 1)

    @rule(producer=st.sampled_from(PRODUCERS), ahead=st.integers(1, 3))
    def append_out_of_order(self, producer: int, ahead: int) -> None:
        last = self.last_of(producer)
        if last is None:
            return
        batch = make_batch(
            "x",
            producer_id=producer,
            producer_epoch=last.producer_epoch,
            base_sequence=last.sequence + last.count + ahead,
        )
        with pytest.raises(KafkaError) as refused:
            self.log.append_as_leader(batch, leader_epoch=LeaderEpoch(self.epoch), now_ms=self.clock)
        assert refused.value.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(free=st.integers(0, 69))
    def append_to_a_full_disk(self, free: int) -> None:
        self.disk.free_write_bytes = free
        with pytest.raises(DiskError):
            self.log.append_as_leader(make_batch("x"), leader_epoch=LeaderEpoch(self.epoch), now_ms=self.clock)
        self.disk.free_write_bytes = None
        self.assign_if_persisted()

    def assign_if_persisted(self) -> None:
        if lineage_of(self.log) != self.lineage:  # the lineage was written, the batch was not
            self.assign(self.epoch)

    # Leading, cutting, keeping.

    @rule()
    def elect(self) -> None:
        self.epoch += 1
        self.log.assign_leader_epoch(LeaderEpoch(self.epoch))
        self.assign(self.epoch)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end_offset = data.draw(st.integers(self.log_start, self.end + 1))
        self.log.truncate_to(Offset(end_offset))
        end = min([end_offset] + [b.base for b in self.batches if b.base < end_offset < b.end])
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.log_start = min(self.log_start, end)
        self.lineage = [entry for entry in self.lineage if entry[1] < end]
        self.synced_end = min(self.synced_end, self.end)
        self.epoch += 1  # whoever truncates follows a newer leader

    @rule(ahead=st.integers(0, 20))
    def start_anew(self, ahead: int) -> None:
        self.start_at = self.end + ahead
        self.log.truncate_fully_and_start_at(Offset(self.start_at))
        self.batches.clear()
        self.lineage.clear()
        self.log_start = self.start_at
        self.synced_end = min(self.synced_end, self.start_at)
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock)

    @rule(data=st.data())
    def delete_from_the_start(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.log_start, self.end))
        self.log.advance_log_start_offset(Offset(start))
        self.log.delete_segments_before(Offset(start))
        self.log.segments.remove_deleted_files()
        self.log_start = start
        covering = [entry for entry in self.lineage if entry[1] <= start][-1:]
        later = [entry for entry in self.lineage if entry[1] > start]
        self.lineage = [(epoch, max(first, start)) for epoch, first in covering] + later

    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        up_to = data.draw(st.integers(0, self.end))
        self.log.flush(Offset(up_to))
        self.synced_end = max(self.synced_end, min(up_to, self.end))
        assert self.log.recovery_point >= self.synced_end

    # Stopping.

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.synced_end = self.end
        self.log = self.open(clean=True)
        assert not self.log.recovery.is_worth_a_warning
        assert self.log.recovery.replayed_batch_count == 0

    @rule()
    def kill(self) -> None:
        """Like kill -9: all that was written is there."""
        self.log = self.open(clean=False)
        assert self.log.recovery.truncation is None
        assert not self.log.recovery.is_worth_a_warning
        assert self.log.log_end_offset == self.end

    def lose_a_tail(self) -> None:
        """The log was opened after something worse: what is left has to be a prefix, and hold all that was synced."""
        end = self.log.log_end_offset
        assert self.synced_end <= end <= self.end
        assert end in (self.end, self.log_start) or any(batch.base == end for batch in self.batches)
        self.batches = [batch for batch in self.batches if batch.end <= end]
        if self.end != end:  # nothing above the log start is left
            self.batches.clear()
            self.start_at = end
        self.lineage = [entry for entry in self.lineage if entry[1] <= end]
        self.log_start = self.log.log_start_offset
        self.epoch += 1

    @rule(data=st.data())
    def kill_and_cut_the_file(self, data: st.DataObject) -> None:
        base = self.log.segments.base_offsets[-1]
        contents = self.disk.files[f"{DIRECTORY}/{base:020d}.log"].data
        if self.synced_end > base:
            return
        del contents[data.draw(st.integers(0, len(contents))) :]
        before = len(contents)
        self.log = self.open(clean=False)
        self.lose_a_tail()
        assert len(contents) <= before

    @rule(data=st.data())
    def kill_and_flip_a_bit(self, data: st.DataObject) -> None:
        base = self.log.segments.base_offsets[-1]
        contents = self.disk.files[f"{DIRECTORY}/{base:020d}.log"].data
        if self.synced_end > base or not contents:
            return
        position = data.draw(st.integers(0, len(contents) - 1))
        contents[position] ^= 1 << data.draw(st.integers(0, 7))
        self.log = self.open(clean=False)
        assert self.log.recovery.truncation is not None
        self.lose_a_tail()

    @rule(seed=st.integers(0, 1 << 30))
    def lose_power(self, seed: int) -> None:
        self.disk.lose_power(Random(seed))
        self.log = self.open(clean=False)
        self.lose_a_tail()

    # What must hold at every moment.

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.end)
        expected = [batch.data for batch in self.batches if batch.end > self.log_start]
        assert [data for _, data in batches_of(log)] == expected
        assert lineage_of(log) == self.lineage
        assert log.recovery_point <= log.log_end_offset

    @invariant()
    def knows_the_producers(self) -> None:
        if not hasattr(self, "log"):
            return
        for producer in PRODUCERS:
            last = self.last_of(producer)
            known = self.log.producers.get(producer)
            assert (known is None) == (last is None)
            if known is None or last is None:
                continue
            assert known.producer_epoch == last.producer_epoch
            assert known.batches[-1].last_offset == last.end - 1
            assert known.batches[-1].base_sequence == last.sequence


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=examples(150), stateful_step_count=30, report_multiple_bugs=False)
