"""Batches of ours read by kafka-python, and batches of its own read by us, in every codec.

kafka-python brings no codecs but gzip; here pyarrow lends it the others, so that none of them is the one under test.
"""

from __future__ import annotations

import types
import warnings

import cramjam
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fixtures.record_batches import Row, any_rows, build
from tidelog.records import (
    COMPRESSION_IDS,
    end_transaction_batch,
    leader_change_batch,
    read_header,
    read_records,
    validate_batch,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 deprecates
    import kafka.codec
    from kafka.record import default_records
    from kafka.record.default_records import (
        ControlRecord,
        DefaultRecordBatch,
        DefaultRecordBatchBuilder,
    )


def _arrow_decompress(name: str, data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        return bytes(stream.read())


@pytest.fixture(autouse=True)
def _codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    snappy = types.SimpleNamespace(
        compress=lambda data: pa.compress(data, "snappy", asbytes=True),
        decompress=lambda data: pa.decompress(data, cramjam.snappy.decompress_raw_len(data), "snappy", asbytes=True),
    )
    monkeypatch.setattr(kafka.codec, "snappy", snappy)
    for name in ("snappy", "lz4", "zstd"):
        monkeypatch.setattr(kafka.codec, f"has_{name}", lambda: True)
    for name in ("lz4", "zstd"):
        monkeypatch.setattr(
            default_records, f"{name}_encode", lambda data, name=name: pa.compress(data, name, asbytes=True)
        )
        monkeypatch.setattr(default_records, f"{name}_decode", lambda data, name=name: _arrow_decompress(name, data))


every_codec = pytest.mark.parametrize("compression", COMPRESSION_IDS)
with_codecs = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@every_codec
@given(rows=any_rows)
@with_codecs
def test_it_reads_ours(compression: str, rows: list[Row]) -> None:
    batch = build(rows, compression, base_offset=500, leader_epoch=6)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.leader_epoch, theirs.magic) == (500, 6, 2)
    assert theirs.max_timestamp == max(row[0] for row in rows)
    assert theirs.next_offset == 500 + len(rows)
    records = list(theirs)
    assert [record.offset for record in records] == list(range(500, 500 + len(rows)))
    assert [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in records] == rows


@every_codec
@given(rows=any_rows, identity=st.none() | st.tuples(st.integers(0, 1 << 40), st.integers(0, 99), st.integers(0, 99)))
@with_codecs
def test_we_read_its_own(compression: str, rows: list[Row], identity: tuple[int, int, int] | None) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=COMPRESSION_IDS[compression],
        is_transactional=identity is not None,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    if identity is not None:
        builder.set_producer_state(*identity, is_transactional=True)
    for index, row in enumerate(rows):
        builder.append(index, *row)
    batch = builder.build()
    header = read_header(batch)
    facts = validate_batch(batch, 0, header)
    assert (facts.record_count, facts.max_timestamp) == (len(rows), max(row[0] for row in rows))
    assert header.max_timestamp == facts.max_timestamp
    assert [(r.timestamp, r.key, r.value, r.headers) for r in read_records(batch)] == rows
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (identity or (-1, -1, -1))
    assert header.is_transactional == (identity is not None)


@given(rows=any_rows)
@with_codecs
def test_without_compression_both_write_the_same_bytes(rows: list[Row]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 24)
    for index, row in enumerate(rows):
        builder.append(index, *row)
    assert build(rows, leader_epoch=0) == builder.build()


@pytest.mark.parametrize("committed", [True, False])
def test_it_reads_our_end_of_a_transaction(committed: bool) -> None:
    batch = end_transaction_batch(
        committed=committed, producer_id=7, producer_epoch=2, coordinator_epoch=3, timestamp_ms=99
    )
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert (theirs.producer_id, theirs.producer_epoch) == (7, 2)
    (marker,) = list(theirs)
    assert isinstance(marker, ControlRecord)
    assert (marker.version, marker.commit, marker.abort) == (0, committed, not committed)


def test_it_takes_our_leader_change_for_a_control_batch() -> None:
    theirs = DefaultRecordBatch(leader_change_batch(leader_id=1, voters=(1, 2), timestamp_ms=99))
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert [record.type for record in theirs] == [2]
