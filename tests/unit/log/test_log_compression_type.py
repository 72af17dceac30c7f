"""Batches in another codec than the topic's: compressed anew, and otherwise what they were."""

from __future__ import annotations

from typing import Any

import pytest

from support.fixtures.logs import NOW_MS, append, batches_of, make_batch, open_log, records_of, values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch
from tidelog.log import LogConfig
from tidelog.records import BatchHeader, check_crc, end_transaction_batch, read_header
from tidelog.records.compression import COMPRESSION_IDS, GZIP, LZ4, NONE, ZSTD

EPOCH = LeaderEpoch(3)
CODECS = list(COMPRESSION_IDS)
VALUES = ["alpha " * 40, "beta " * 40, "", "gamma " * 40]


def without_codec(header: BatchHeader) -> BatchHeader:
    return header._replace(size_bytes=0, crc=0, attributes=header.attributes & ~7, base_offset=0, leader_epoch=0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sent_in", CODECS)
def test_a_batch_is_stored_in_the_codec_of_its_topic(sent_in: str, codec: str) -> None:
    log = open_log(MemoryDisk(), compression_codec=COMPRESSION_IDS[codec])
    append(log, "before")
    batch = make_batch(
        *VALUES,
        timestamps=[NOW_MS + 5, NOW_MS, NOW_MS + 9, NOW_MS + 1],
        compression=sent_in,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    sent = read_header(batch)
    result = log.append_as_leader(memoryview(batch), leader_epoch=EPOCH, now_ms=NOW_MS)
    (_, _), (header, data) = batches_of(log)
    assert (result.first_offset, result.last_offset, result.record_count) == (1, 4, 4)
    assert result.size_bytes == header.size_bytes == len(data)
    assert header.compression == COMPRESSION_IDS[codec]
    assert (header.base_offset, header.leader_epoch) == (1, EPOCH)
    assert without_codec(header) == without_codec(sent)
    check_crc(data, 0, header)
    records = records_of(log)[1:]
    assert [(record.value or b"").decode() for record in records] == VALUES
    assert [record.timestamp - NOW_MS for record in records] == [5, 0, 9, 1]
    assert [record.offset for record in records] == [1, 2, 3, 4]


def test_a_batch_in_that_codec_keeps_its_bytes() -> None:
    log = open_log(MemoryDisk(), compression_codec=GZIP, compression_level=9)
    batch = make_batch(*VALUES, compression="gzip")
    log.append_as_leader(memoryview(batch), leader_epoch=EPOCH, now_ms=NOW_MS)
    assert batches_of(log)[0][1] == bytes(batch)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(GZIP, 1, 9), (LZ4, 1, 12), (ZSTD, -50, 19)], ids=["gzip", "lz4", "zstd"]
)
def test_a_higher_level_compresses_more(codec: int, low: int, high: int) -> None:
    values = [f"{number * 7919 % 1000} of {number}" for number in range(2000)]
    sizes = []
    for level in (low, high):
        log = open_log(MemoryDisk(), compression_codec=codec, compression_level=level)
        sizes.append(append(log, *values).size_bytes)
        assert values_of(log) == values
    assert sizes[1] < sizes[0]


def test_the_clock_of_the_leader_dates_what_was_compressed_anew() -> None:
    log = open_log(MemoryDisk(), compression_codec=ZSTD, message_timestamp_type="LogAppendTime")
    append(log, *VALUES, timestamp=5, compression="gzip")
    ((header, data),) = batches_of(log)
    check_crc(data, 0, header)
    assert {record.timestamp for record in records_of(log)} == {NOW_MS}
    assert header.is_log_append_time


def test_several_batches_of_one_call() -> None:
    log = open_log(MemoryDisk(), compression_codec=LZ4)
    batches = make_batch("a", compression="lz4") + make_batch("b", "c") + make_batch("d", compression="gzip")
    result = log.append_as_leader(memoryview(batches), leader_epoch=EPOCH, now_ms=NOW_MS)
    assert (result.batch_count, result.last_offset) == (3, 3)
    assert [header.compression for header, _ in batches_of(log)] == [LZ4] * 3
    assert values_of(log) == list("abcd")
    log.close()


def test_a_duplicate_is_still_found() -> None:
    log = open_log(MemoryDisk(), compression_codec=ZSTD)
    first = append(log, "a", "b", producer_id=7, producer_epoch=0, base_sequence=0)
    again = append(log, "a", "b", producer_id=7, producer_epoch=0, base_sequence=0)
    assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, first.first_offset, first.last_offset)
    assert values_of(log) == ["a", "b"]


@pytest.mark.parametrize(
    ("limit", "named", "code"),
    [
        ("message_size_bytes_max", "max.message.bytes=1000", Code.MESSAGE_TOO_LARGE),
        ("segment_size_bytes", "segment.bytes=1000", Code.RECORD_LIST_TOO_LARGE),
    ],
)
def test_what_a_batch_grows_to_counts_and_changes_nothing(limit: str, named: str, code: Code) -> None:
    settings: dict[str, Any] = {limit: 1000}
    log = open_log(MemoryDisk(), compression_codec=NONE, **settings)
    batch = {"compression": "gzip", "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    with pytest.raises(KafkaError, match=f"as none made it, .*{named}") as refused:
        append(log, "x" * 2000, epoch=5, **batch)
    assert refused.value.code == code
    assert (log.log_end_offset, log.lineage.latest_leader_epoch) == (0, None)
    assert not append(log, "x", epoch=5, **batch).is_duplicate


def test_a_batch_that_is_too_large_as_it_comes_is_refused_though_it_would_shrink() -> None:
    log = open_log(MemoryDisk(), compression_codec=GZIP, message_size_bytes_max=1000)
    with pytest.raises(KafkaError) as refused:
        append(log, "x" * 2000)
    assert refused.value.code == Code.MESSAGE_TOO_LARGE


def test_a_marker_of_a_transaction_stays_as_it_is() -> None:
    log = open_log(MemoryDisk(), compression_codec=GZIP)
    marker = end_transaction_batch(
        committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS
    )
    log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=EPOCH, now_ms=NOW_MS, origin="coordinator")
    ((header, _),) = batches_of(log)
    assert (header.is_control, header.compression) == (True, NONE)


def test_it_can_be_changed_meanwhile() -> None:
    log = open_log(MemoryDisk())
    append(log, "a")
    log.configure(LogConfig(compression_codec=ZSTD))
    append(log, "b")
    log.configure(LogConfig())
    append(log, "c")
    assert [header.compression for header, _ in batches_of(log)] == [NONE, ZSTD, NONE]
