"""What one loss of power leaves, and what was derived from records that are gone, has to stand the next loss too."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.fixtures.cleaning import clean
from support.fixtures.logs import DIRECTORY, NOW_MS, append, make_batch, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import LeaderEpoch
from tidelog.log import Log

COMPACT: dict[str, Any] = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0}


@pytest.mark.parametrize("seed", range(8))
def test_what_recovery_cut_off_does_not_come_back_behind_the_recovery_point(seed: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a", "b")
    log.flush()
    append(log, "torn")
    disk.files[f"{DIRECTORY}/{0:020d}.log"].data[-1] ^= 1
    disk.files[f"{DIRECTORY}/{0:020d}.log"].synced = bytes(disk.files[f"{DIRECTORY}/{0:020d}.log"].data)
    log = open_log(disk, clean=False, recovery_point=2)
    assert log.recovery.truncation is not None
    log.roll(NOW_MS)
    append(log, "c")
    log.flush()
    disk.lose_power(Random(seed))
    log = open_log(disk, clean=False, recovery_point=3)
    assert values_of(log) == ["a", "b", "c"]
    assert log.recovery.damages == []


def send(log: Log, key: bytes, sequence: int) -> bool:
    """Append a producer's record. Returns whether it was known already."""
    batch = make_batch("v", key=key, producer_id=5, producer_epoch=0, base_sequence=sequence)
    return log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS).is_duplicate


@pytest.mark.parametrize("has_snapshot", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_producer_is_known_though_compaction_took_its_batch_and_the_power_its_last_one(
    seed: int, has_snapshot: bool
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACT)
    assert not send(log, b"a", 0)
    append(log, "newer", key=b"a")
    append(log, "last", key=b"b")
    log.roll(NOW_MS)
    log.flush()
    assert not send(log, b"a", 1)  # not synced
    if not has_snapshot:
        disk.remove(f"{DIRECTORY}/{3:020d}.snapshot")
    assert clean(log) == 3
    disk.files[f"{DIRECTORY}/{3:020d}.log"].data.clear()
    if has_snapshot and not disk.files[f"{DIRECTORY}/{3:020d}.snapshot"].synced:
        disk.files[f"{DIRECTORY}/{3:020d}.snapshot"].data.clear()
    disk.lose_power(Random(seed))
    log = open_log(disk, clean=False, recovery_point=3, **COMPACT)
    assert log.log_end_offset == 3
    assert send(log, b"a", 0)
