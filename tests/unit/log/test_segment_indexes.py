"""What is known of the batches of a segment without reading them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import Offset
from tidelog.log import LogConfig
from tidelog.log.files.index_file import CorruptIndexError
from tidelog.log.placed import Placed
from tidelog.log.segment_indexes import TIMESTAMP_MAX, IndexPaths, SegmentIndexes
from tidelog.records import BatchBuilder, read_header
from tidelog.records.batch import BatchHeader

PATHS = IndexPaths("s.index", "s.timeindex", "s.txnindex")
CONFIG = replace(LogConfig(), index_interval_bytes=100)
SIZE_BYTES = 60
"""Of each batch: every third gets an index entry."""


def indexes_on(disk: MemoryDisk) -> SegmentIndexes:
    return SegmentIndexes(disk, PATHS, Offset(0), CONFIG)


def noted(disk: MemoryDisk, timestamps: list[int]) -> SegmentIndexes:
    """Of batches of one record each."""
    indexes = indexes_on(disk)
    for offset, timestamp in enumerate(timestamps):
        header = header_of(timestamp)._replace(size_bytes=SIZE_BYTES)
        indexes.note([Placed(0, header, offset, offset, timestamp)], offset * SIZE_BYTES)
    return indexes


def header_of(timestamp: int, *, producer_id: int = -1) -> BatchHeader:
    builder = BatchBuilder()
    builder.append(timestamp, None, b"x")
    return read_header(builder.build())._replace(producer_id=producer_id)


def test_an_entry_every_so_many_bytes() -> None:
    indexes = noted(MemoryDisk(), [10, 11, 12, 13, 14])
    assert list(indexes.offsets.entries()) == [(2, 120), (4, 240)]
    assert (indexes.first_timestamp, indexes.max_timestamp) == (10, (14, 4))
    assert not indexes.is_full


def test_the_largest_time_is_that_of_the_first_record_that_has_it() -> None:
    assert noted(MemoryDisk(), [10, 30, 20, 30]).max_timestamp == (30, 1)
    assert noted(MemoryDisk(), [-1, -1]).max_timestamp is None


def test_what_was_finished_is_found_again() -> None:
    disk = MemoryDisk()
    noted(disk, [10, 30, 20, 15]).finish()
    opened = indexes_on(disk)
    opened.open_existing(4 * SIZE_BYTES, Offset(4))
    assert opened.max_timestamp == (30, 1)
    opened.resume()
    assert (opened.max_timestamp, opened.first_timestamp) == ((30, 1), None)
    with pytest.raises(CorruptIndexError):
        indexes_on(disk).open_existing(SIZE_BYTES, Offset(4))


def test_headers_tell_the_same_as_notes_and_who_wrote_them() -> None:
    indexes = indexes_on(MemoryDisk())
    assert indexes.holds_producers, "nobody has looked"
    indexes.begin()
    assert not indexes.holds_producers
    indexes.note_header(0, header_of(10))
    assert (indexes.holds_producers, indexes.first_timestamp, indexes.max_timestamp) == (False, 10, (10, 0))
    indexes.note_header(SIZE_BYTES, header_of(9, producer_id=7))
    assert (indexes.holds_producers, indexes.holds_markers) == (True, False)
    assert indexes.max_timestamp == (10, 0)


def test_where_headers_cannot_be_read_every_time_may_be_there_and_no_index_says_otherwise() -> None:
    disk = MemoryDisk()
    noted(disk, [10, 30, 20, 15]).finish()
    indexes = indexes_on(disk)
    indexes.begin()
    indexes.give_up(Offset(4))
    indexes.finish()
    assert indexes.max_timestamp == (TIMESTAMP_MAX, 3)
    assert indexes.holds_producers
    assert not disk.exists(PATHS.times)
    indexes.begin()
    assert indexes.max_timestamp is None


def test_what_lies_beyond_a_cut_is_forgotten() -> None:
    indexes = noted(MemoryDisk(), [10, 11, 12, 13, 14])
    indexes.truncate_to(3 * SIZE_BYTES, Offset(3))
    assert list(indexes.offsets.entries()) == [(2, 120)]
    assert indexes.times.newest() == (12, 2)


def test_retired_files_have_other_names() -> None:
    disk = MemoryDisk()
    indexes = noted(disk, [10])
    indexes.finish()
    assert indexes.retire(".deleted") == ["s.index.deleted", "s.timeindex.deleted"], "nothing was aborted"
    assert not disk.exists(PATHS.offsets)
    indexes.remove()
    assert not disk.exists("s.index.deleted")
