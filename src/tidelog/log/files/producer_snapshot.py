"""The state of all producers at an offset, in a file: 00000000000000000042.snapshot holds what is below offset 42.

    version int16 = 1 | CRC32C uint32 of what follows | count int32 |
    { producer id int64 | producer epoch int16 | last sequence int32 | last offset int64 | offset delta int32 |
      timestamp int64 | coordinator epoch int32 | first offset of the open transaction int64 } ...

-1 stands for "none" throughout. Only the last batch of each producer is kept, so a duplicate of an older one is out of
order after a restart. A snapshot is a short cut: one that is missing or torn makes recovery replay more of the log.

Kafka: `ProducerStateManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.log.producer_state import SEQUENCE_MASK, ProducerState, RememberedBatch
from tidelog.records.crc32c import crc32c

VERSION = 1

_HEADER = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


def format_snapshot(states: Iterable[ProducerState]) -> bytes:
    """The file's contents, sorted by producer id."""
    entries = bytearray()
    count = 0
    for state in sorted(states, key=lambda each: each.producer_id):
        last = state.batches[-1] if state.batches else None
        count += 1
        entries += _ENTRY.pack(
            state.producer_id,
            state.producer_epoch,
            -1 if last is None else last.last_sequence,
            -1 if last is None else last.last_offset,
            0 if last is None else last.offset_delta,
            state.last_timestamp,
            -1 if state.coordinator_epoch is None else state.coordinator_epoch,
            -1 if state.transaction_first_offset is None else state.transaction_first_offset,
        )
    body = _COUNT.pack(count) + entries
    return _HEADER.pack(VERSION, crc32c(body)) + body


def parse_snapshot(data: bytes, path: str) -> list[ProducerState]:
    """The inverse of `format_snapshot`.

    Raises:
        CorruptLogError: another version, a wrong CRC, or entries that are not all there.
    """
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptLogError(f"{path}: {len(data)} bytes are too few for a producer snapshot")
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptLogError(f"{path}: producer snapshot version {version}, not {VERSION}")
    if crc32c(data[_HEADER.size :]) != crc:
        raise CorruptLogError(f"{path}: the CRC is wrong")
    entries = data[_HEADER.size + _COUNT.size :]
    if len(entries) != _COUNT.unpack_from(data, _HEADER.size)[0] * _ENTRY.size:
        raise CorruptLogError(f"{path}: {len(entries)} bytes are not the entries announced")
    return [_state(entry) for entry in _ENTRY.iter_unpack(entries)]


def _state(entry: tuple[int, ...]) -> ProducerState:
    producer_id, producer_epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, start = entry
    batches = []
    if last_offset >= 0 and last_sequence >= 0:
        base_sequence = (last_sequence - offset_delta) & SEQUENCE_MASK
        batches.append(RememberedBatch(base_sequence, last_sequence, Offset(last_offset), offset_delta, timestamp))
    return ProducerState(
        ProducerId(producer_id),
        ProducerEpoch(producer_epoch),
        batches=batches,
        last_timestamp=timestamp,
        coordinator_epoch=None if coordinator_epoch < 0 else coordinator_epoch,
        transaction_first_offset=None if start < 0 else Offset(start),
    )
