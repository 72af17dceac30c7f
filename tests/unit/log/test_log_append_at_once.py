"""Compressed batches on the event loop: those are checked there that stay small, the others on another thread."""

from __future__ import annotations

import random

import pytest

from support.fixtures.logs import NOW_MS, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.log import TakesLongError
from tidelog.log.append import AT_ONCE_BYTES_MAX
from tidelog.records.compression import COMPRESSION_IDS

CODECS = ["gzip", "snappy", "lz4", "zstd"]
OVERHEAD = 200


@pytest.mark.parametrize("codec", CODECS)
def test_what_stays_below_the_limit_is_checked_at_once(codec: str) -> None:
    """However well it is compressed: batches of a client's usual size are not decompressed twice."""
    limit = AT_ONCE_BYTES_MAX[COMPRESSION_IDS[codec]]
    log = open_log(MemoryDisk())
    for value in (
        bytes(limit - OVERHEAD),
        random.Random(7).randbytes(limit // 3) + bytes(limit - limit // 3 - OVERHEAD),
    ):
        batch = memoryview(make_batch(value, compression=codec))
        checked = log.rules.check_for_leader(batch, now_ms=NOW_MS, origin="client", at_once=True)
        assert checked == log.rules.check_for_leader(batch, now_ms=NOW_MS, origin="client")


@pytest.mark.parametrize("codec", CODECS)
def test_what_grows_beyond_it_is_for_another_thread(codec: str) -> None:
    limit = AT_ONCE_BYTES_MAX[COMPRESSION_IDS[codec]]
    log = open_log(MemoryDisk())
    batch = memoryview(make_batch(bytes(limit), compression=codec))
    with pytest.raises(TakesLongError):
        log.rules.check_for_leader(batch, now_ms=NOW_MS, origin="client", at_once=True)
    assert log.rules.check_for_leader(batch, now_ms=NOW_MS, origin="client").accepted


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_checked_by_its_own_records(codec: str) -> None:
    """The room for them is shared: what another one left there counts for nothing."""
    log = open_log(MemoryDisk())
    found = []
    for count in (300, 3, 40):
        batch = make_batch(
            *[b"value"] * count, timestamps=[NOW_MS - count + index for index in range(count)], compression=codec
        )
        checked = log.rules.check_for_leader(memoryview(batch), now_ms=NOW_MS, origin="client", at_once=True)
        found.append((checked.accepted[0].header.record_count, checked.accepted[0].max_timestamp))
    assert found == [(300, NOW_MS - 1), (3, NOW_MS - 1), (40, NOW_MS - 1)]
