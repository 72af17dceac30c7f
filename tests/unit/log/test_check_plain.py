"""What is checked quickly is what the other check says, of each batch that it takes, under each configuration."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tidelog.base.errors import KafkaError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.log import Checked, LogConfig
from tidelog.log.append import AppendRules
from tidelog.records._choose import KERNEL_IS_COMPILED
from tidelog.records.batch import BatchBuilder
from tidelog.records.crc32c import crc32c

NOW_MS = 1_700_000_000_000
CONFIGS = [
    LogConfig(),
    replace(LogConfig(), cleanup_policy=frozenset({"compact"})),
    replace(LogConfig(), message_timestamp_type="LogAppendTime"),
    replace(LogConfig(), message_timestamp_before_ms_max=1_000),
    replace(LogConfig(), message_timestamp_after_ms_max=1_000),
    replace(LogConfig(), compression_codec=4),
    replace(LogConfig(), message_size_bytes_max=80),
]


def batch(
    count: int = 1, *, timestamp_ms: int = NOW_MS, key: bytes | None = None, compression: str = "none", **identity: int
) -> bytes:
    builder = BatchBuilder(compression=compression, **identity)  # type: ignore[arg-type]
    for number in range(count):
        builder.append(timestamp_ms + number, key, b"x" * 40)
    return builder.build()


def doctored(raw: bytes, at: int, what: bytes) -> bytes:
    """With other bytes at a place, and the checksum of them."""
    changed = bytearray(raw)
    changed[at : at + len(what)] = what
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return bytes(changed)


BATCHES = [
    batch(),
    batch(5, key=b"k"),
    batch(timestamp_ms=NOW_MS + 5_000),
    batch(timestamp_ms=NOW_MS - 5_000),
    batch(timestamp_ms=-1),
    batch(3, compression="lz4"),
    batch(producer_id=7, producer_epoch=0, base_sequence=0),
    batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
    batch() * 2,
    batch()[:-1],
    batch()[:-1] + b"!",
    b"",
    doctored(batch(), 0, struct.pack(">q", 3)),  # a base offset
    doctored(batch(2), 35, struct.pack(">q", 5)),  # a wrong largest timestamp
    doctored(batch(), 22, b"\x08"),  # LogAppendTime
    doctored(batch(), 22, b"\x20"),  # a control batch
    doctored(batch(), 22, b"\x40"),  # a delete horizon
    doctored(batch(), 43, struct.pack(">qhi", 7, -1, 0)),
    doctored(batch(), 43, struct.pack(">qhi", 7, 0, -1)),
    doctored(batch(), 57, struct.pack(">i", 2)),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_both_checks_say_the_same(config: LogConfig) -> None:
    rules = AppendRules(TopicPartition("flights", PartitionIndex(0)), config)
    taken = 0
    for raw in BATCHES:
        view = memoryview(bytearray(raw))
        quick = rules.check_plain(view, NOW_MS)
        assert bytes(view) == raw
        if quick is None:
            continue
        taken += 1
        whole: Checked | KafkaError
        try:
            whole = rules.check_for_leader(view, now_ms=NOW_MS, origin="client")
        except KafkaError as error:
            whole = error
        assert quick == whole, raw.hex()
    is_plain = config in (CONFIGS[0], CONFIGS[4])
    assert (taken >= 5) == (is_plain and KERNEL_IS_COMPILED)
