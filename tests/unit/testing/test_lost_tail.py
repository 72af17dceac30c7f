"""A replica loses the end of its log: exactly what it is told to, in the middle of a batch too."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fixtures.logs import FLIGHTS, NOW_MS, lineage_of, make_batch, open_log, values_of
from tidelog.base.ids import BrokerEpoch, LeaderEpoch, Offset
from tidelog.io.disk import RealDisk
from tidelog.log import Log
from tidelog.log.directory import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, LogDirectory
from tidelog.log.files.incarnation import NOTHING
from tidelog.log.run_files import RunFiles
from tidelog.records import COMPRESSION_IDS
from tidelog.testing.lost_tail import end_of_log, lose_tail

BATCHES = [("0", "1", "2", "3"), ("4", "5", "6"), ("7", "8", "9")]


def opened(directory: Path, *, clean: bool = True) -> Log:
    return open_log(RealDisk(), directory=str(directory / str(FLIGHTS)), clean=clean)


@pytest.fixture(params=COMPRESSION_IDS)
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Of a node that stopped cleanly. Its log holds ten records of an idempotent producer, a batch in each epoch."""
    disk = RealDisk()
    held = LogDirectory.open(disk, str(tmp_path))
    log = opened(tmp_path)
    sequence = 0
    for epoch, values in enumerate(BATCHES):
        batch = make_batch(
            *values,
            timestamps=[NOW_MS + int(value) for value in values],
            compression=request.param,
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
        )
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(epoch), now_ms=NOW_MS)
        sequence += len(values)
    log.close()
    for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
        held.write_offsets(name, {FLIGHTS: log.log_end_offset})
    RunFiles(disk, str(tmp_path)).mark_clean_shutdown(BrokerEpoch(3))
    held.close()
    return tmp_path


@pytest.mark.parametrize("end_offset", range(1, 11))
def test_what_is_left_is_a_whole_log(directory: Path, end_offset: int) -> None:
    lose_tail(directory, FLIGHTS, end_offset)

    epoch = 0 if end_offset <= 4 else 1 if end_offset <= 7 else 2
    assert end_of_log(directory / str(FLIGHTS)) == (end_offset, epoch)
    held = LogDirectory.open(RealDisk(), str(directory))
    assert held.read_offsets(HIGH_WATERMARK_FILE) == {FLIGHTS: end_offset}
    assert held.read_offsets(RECOVERY_POINT_FILE) == {FLIGHTS: end_offset}
    held.close()
    log = opened(directory, clean=False)
    assert log.recovery.lines() == []
    assert values_of(log) == [str(number) for number in range(end_offset)]
    assert lineage_of(log) == [(0, 0), (1, 4), (2, 7)][: epoch + 1]
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (end_offset - 1, NOW_MS + end_offset - 1)
    again = make_batch("again", producer_id=5, producer_epoch=0, base_sequence=end_offset)
    appended = log.append_as_leader(again, leader_epoch=LeaderEpoch(7), now_ms=NOW_MS)
    assert appended.first_offset == end_offset  # the producer's sequence goes on where the log does
    log.close()


def test_its_node_counts_as_one_that_may_have_lost_anything(directory: Path) -> None:
    lose_tail(directory, FLIGHTS, 5)
    evidence = RunFiles(RealDisk(), str(directory))
    assert evidence.take_clean_shutdown() == (False, None)
    assert evidence.read_incarnation() == NOTHING


def test_the_end_of_an_empty_log(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert end_of_log(tmp_path / str(FLIGHTS)) == (Offset(0), -1)
