"""The interpreted and the compiled kernel do the same on everything, and the compiled one is of this very source."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from binascii import crc32
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fixtures.record_batches import (
    INT64_MAX,
    INT64_MIN,
    Row,
    alike_rows,
    any_rows,
    build,
    compiled_kernels,
    kernels,
)
from tidelog import records
from tidelog.base.errors import Code, MalformedBatchError
from tidelog.records import kernel, kernel_encode, read_header

SOURCES = Path(kernel.__file__).parent
COMPILED = compiled_kernels()
INT32_MAX = 0x7FFFFFFF

needs_compiled = pytest.mark.skipif(COMPILED is None, reason="no compiled kernel was built here")

Region = tuple[Any, int, int, int, int, int, int]


def region_of(rows: list[Row]) -> Region:
    """Records as `bytes`, which lets the interpreted kernel look for runs."""
    batch = build(rows)
    return bytes(batch[61:]), 0, len(batch) - 61, len(rows), len(rows) - 1, INT64_MIN, INT64_MAX


def outcome(work: Callable[..., Any], *arguments: Any) -> Any:
    """What is returned, or what is refused."""
    try:
        return work(*arguments)
    except MalformedBatchError as error:
        return str(error), error.position, error.code


def agreed(name: str, region: Region) -> Any:
    """The outcome on which all kernels agree, also on a buffer in which the records lie between other bytes."""
    data, start, end, *rest = region
    shifted = memoryview(bytearray(b"\xff" * 7 + bytes(data) + b"\x00" * 20))[7 : 7 + len(data) + 20]
    more = (0, 0, 1, -1, tuple, None, -1, "") if name == "unpack" else ()
    outcomes = [
        outcome(getattr(reading, name), buffer, start, end, *rest, *more)
        for reading, _ in kernels()
        for buffer in (data, memoryview(data), bytearray(data), shifted)
    ]
    assert all(other == outcomes[0] for other in outcomes), outcomes
    return outcomes[0]


@given(rows=any_rows)
def test_walking_finds_what_was_written(rows: list[Row]) -> None:
    times = [row[0] - rows[0][0] for row in rows]
    assert agreed("walk", region_of(rows)) == (
        max(times),
        times.index(max(times)),
        len(rows) - 1,
        sum(row[1] is None for row in rows),
        sum(len(row[3]) for row in rows),
        True,
    )


@given(rows=any_rows)
def test_unpacking_gives_back_what_was_written(rows: list[Row]) -> None:
    assert agreed("unpack", region_of(rows)) == [
        (index, time - rows[0][0], key, value, headers, -1) for index, (time, key, value, headers) in enumerate(rows)
    ]


@given(rows=any_rows)
def test_unpacking_gives_a_consumer_its_records_at_once(rows: list[Row]) -> None:
    data, start, end, *rest = region_of(rows)
    place = ("flights", 3, "CreateTime")
    consumed = [reading.unpack(data, start, end, *rest, 7, 0, 1, None, tuple, *place) for reading, _ in kernels()]
    assert all(each == consumed[0] for each in consumed)
    assert consumed[0] == [
        ("flights", 3, 7 + index, None, time - rows[0][0], "CreateTime", key, value, headers)
        for index, (time, key, value, headers) in enumerate(rows)
    ]


@given(rows=any_rows, seed=st.randoms(use_true_random=False))
def test_damaged_records_are_refused_alike(rows: list[Row], seed: Any) -> None:
    data, start, end, *rest = region_of(rows)
    for _ in range(10):
        damaged = bytearray(data)
        for _ in range(seed.randrange(1, 3)):
            damaged[seed.randrange(len(damaged))] = seed.choice((0, 1, 2, 0x7F, 0x80, 0xFF, seed.randrange(256)))
        region: Any = (bytes(damaged), start, end, *rest)
        walked, unpacked = agreed("walk", region), agreed("unpack", region)
        assert isinstance(walked[0], str) == (isinstance(unpacked, tuple)), (walked, unpacked)


@given(rows=any_rows)
@example(rows=[(0, b"k", b"v" * 100, ()) for _ in range(40)])
def test_every_cut_is_refused_alike(rows: list[Row]) -> None:
    data, start, end, *rest = region_of(rows)
    for stop in {*range(start, min(end, 120)), end - 1, end - 2}:
        region: Any = (data, start, stop, *rest)
        what, position, code = agreed("walk", region)
        assert 0 <= position <= stop, what
        assert code is Code.INVALID_RECORD


@given(rows=alike_rows(), limit=st.integers(-5, 9_000), is_upper=st.booleans())
def test_timestamps_beyond_their_limits_are_refused_alike(rows: list[Row], limit: int, is_upper: bool) -> None:
    data, start, end, count, last, _, _ = region_of(rows)
    limits = (INT64_MIN, limit) if is_upper else (limit, INT64_MAX)
    deltas = [row[0] - rows[0][0] for row in rows]
    beyond = [index for index, delta in enumerate(deltas) if not limits[0] <= delta <= limits[1]]
    walked = agreed("walk", (data, start, end, count, last, *limits))
    if beyond:
        assert f"record {beyond[0]} " in walked[0]
        assert "outside 64 bits" in walked[0]
    else:
        assert walked[0] == max(deltas)
    assert isinstance(agreed("unpack", (data, start, end, count, last, *limits)), tuple) == bool(beyond)


def varint(value: int, size: int = 0) -> bytes:
    """Zigzag, over `size` bytes at least: longer than need be, as no one writes it and all may read it."""
    bits = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while bits > 0x7F or len(out) + 1 < size:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes((*out, bits))


def record(delta: bytes = b"\0", offset: bytes = b"\0", key: bytes = b"\1", rest: bytes = b"\1\0") -> bytes:
    body = b"\0" + delta + offset + key + rest
    return varint(len(body)) + body


@pytest.mark.parametrize(
    "value", [0, 1, -1, 63, 64, -64, -65, INT64_MAX, INT64_MIN, 1 << 62, -(1 << 62), 12_345_678_901]
)
def test_timestamp_deltas_take_all_64_bits(value: int) -> None:
    for size in range(len(varint(value)), 11):
        data = record(delta=varint(value, size))
        assert agreed("walk", (data, 0, len(data), 1, 0, INT64_MIN, INT64_MAX))[0] == value


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (record(delta=b"\xff" * 9 + b"\x02"), "timestamp delta"),
        (record(delta=b"\xff" * 10 + b"\x01"), "timestamp delta"),
        (record(delta=b"\x80" * 10 + b"\x00"), "timestamp delta"),
        (record(offset=b"\x80\x80\x80\x80\x10"), "offset delta is cut short or too long"),
        (record(offset=b"\x80\x80\x80\x80\x80\x00"), "offset delta is cut short or too long"),
        (record(offset=b"\x01"), "does not lie after"),
        (record(offset=b"\x04"), "beyond the header's last"),
        (record(key=varint(-2)), "key's length"),
        (record(key=varint(3)), "key's length"),
        (record(key=varint(INT32_MAX)), "key's length"),
        (record(key=varint(-INT32_MAX - 1)), "key's length"),
        (record(rest=varint(-2) + b"\0"), "value's length"),
        (record(rest=varint(2) + b"\0"), "value's length"),
        (record(rest=varint(2) + b"\0") + record(offset=b"\2"), "value's length"),
        (record(rest=varint(INT32_MAX) + b"\0"), "value's length"),
        (record(rest=b"\1" + varint(-1)), "header count"),
        (record(rest=b"\1" + varint(INT32_MAX)), "header count"),
        (record(rest=b"\1\x80"), "header count"),
        (record(rest=b"\1\0\0"), "left over behind its value"),
        (record(rest=b"\1\2" + varint(-1) + b"\1"), "header key"),
        (record(rest=b"\1\2" + varint(5) + b"\1"), "header key"),
        (record(rest=b"\1\2\0" + varint(-2)), "header value"),
        (record(rest=b"\1\2\0" + varint(1)), "header value"),
        (record(rest=b"\1\2\0\1\0"), "left over behind its headers"),
        (b"\x01" + record()[1:], "its length"),
        (b"\x00" + record()[1:], "its length"),
        (b"\x10" + record()[1:], "its length"),
        (b"\xff\xff\xff\xff\x0f" + record(), "its length"),
        (b"\x80\x80\x80\x80\x80\x00" + record(), "its length"),
        (record() + b"\0", "1 bytes are left over behind the last of 1"),
        (b"\x0a\0\0\0\1\1", "cannot fit"),
    ],
)
def test_every_lie_is_named(data: bytes, says: str) -> None:
    region = (data, 0, len(data), 1, 1, INT64_MIN, INT64_MAX)
    for name in ("walk", "unpack"):
        assert says in agreed(name, region)[0]


def test_the_longest_timestamps_are_checked_among_records_alike() -> None:
    rows = [record(delta=varint(5, 10), offset=varint(index)) for index in range(60)]
    data = b"".join(rows)
    assert agreed("walk", (data, 0, len(data), 60, 59, INT64_MIN, INT64_MAX))[:3] == (5, 0, 59)
    rows[40] = record(delta=b"\x8a" + b"\x80" * 8 + b"\x02", offset=varint(40))
    data = b"".join(rows)
    refused = agreed("walk", (data, 0, len(data), 60, 59, INT64_MIN, INT64_MAX))[0]
    assert "record 40 of the batch" in refused
    assert "timestamp delta" in refused


def test_counts_that_lie_are_refused_before_anything_is_allocated() -> None:
    data = record()
    for count in (2, 1 << 20, INT32_MAX):
        assert "cannot fit" in agreed("walk", (data, 0, len(data), count, INT32_MAX, INT64_MIN, INT64_MAX))[0]


@pytest.mark.parametrize(("reading", "writing"), kernels())
def test_a_region_outside_its_buffer_is_our_bug(reading: ModuleType, writing: ModuleType) -> None:
    del writing
    for start, end in ((-1, 5), (0, 101), (50, 40), (101, 101)):
        for work, more in ((reading.walk, ()), (reading.unpack, (0, 0, 1, -1, tuple, None, -1, ""))):
            with pytest.raises(ValueError, match="of a buffer of 100"):
                work(bytes(100), start, end, 1, 0, INT64_MIN, INT64_MAX, *more)


@pytest.mark.parametrize(("reading", "writing"), kernels())
def test_columns_without_room_are_our_bug_and_nothing_is_written(reading: ModuleType, writing: ModuleType) -> None:
    del writing
    region = region_of([(0, b"key", b"value", (("a", b"b"),))] * 3)
    enough: dict[str, Any] = {
        "offsets": array("q", [7] * 3),
        "timestamps": array("q", [7] * 3),
        "key_offsets": array("i", [0] * 4),
        "key_validity": bytearray(1),
        "key_data": bytearray(region[2]),
        "value_offsets": array("i", [0] * 4),
        "value_validity": bytearray(1),
        "value_data": bytearray(region[2]),
        "header_offsets": array("i", [0] * 4),
        "header_key_offsets": array("i", [0] * 4),
        "header_key_data": bytearray(region[2]),
        "header_value_offsets": array("i", [0] * 4),
        "header_value_validity": bytearray(1),
        "header_value_data": bytearray(region[2]),
    }

    def decode(**columns: Any) -> Any:
        views = [None if column is None else memoryview(column) for column in (enough | columns).values()]
        return reading.decode(*region, 0, INT32_MAX, 0, 0, 1, 0, *views)

    assert decode()[0] == 3
    for name, column in enough.items():
        with pytest.raises(ValueError, match="no room for"):
            decode(**{name: column[:-1]})
        if not name.endswith("offsets") and name != "timestamps":
            with pytest.raises(ValueError, match="no room for"):
                decode(**{name: None})
        if name.endswith("_offsets"):
            with pytest.raises(ValueError, match="no room for"):
                decode(**{name: array("i", [-1, 0, 0, 0])})
            with pytest.raises(ValueError, match="no room for"):
                decode(**{name: array("i", [INT32_MAX, 0, 0, 0])})


@needs_compiled
def test_the_compiled_kernels_are_of_this_source_and_have_their_types() -> None:
    """If this fails, build them anew: `pip install --no-build-isolation --no-deps -e .`"""
    assert COMPILED is not None
    for module, name in zip(COMPILED, ("kernel", "kernel_encode"), strict=True):
        source = (SOURCES / f"{name}.py").read_bytes() + (SOURCES / f"{name}.pxd").read_bytes()
        assert f"{crc32(source):08x}" == module.KERNEL_SOURCE_HASH
        assert module.KERNEL_IS_COMPILED
        assert not hasattr(module, "_varint")
        assert not hasattr(module, "_varint_size"), "compiled without its pxd, it would be as slow as Python"


def test_the_interpreted_kernels_say_so() -> None:
    for module in (kernel, kernel_encode):
        assert not module.KERNEL_IS_COMPILED
        assert module.KERNEL_SOURCE_HASH is None


def kernel_is_compiled(**environment: str) -> str:
    """What a fresh process says of its kernel."""
    kept = {key: value for key, value in os.environ.items() if key != "TIDELOG_PURE"}
    return subprocess.run(
        [sys.executable, "-c", "from tidelog import records; print(records.KERNEL_IS_COMPILED)"],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.strip()


def test_the_environment_forces_the_interpreted_kernel() -> None:
    assert kernel_is_compiled(TIDELOG_PURE="1") == "False"
    assert kernel_is_compiled() == str(COMPILED is not None)


@pytest.mark.skipif("CI" not in os.environ, reason="a machine without a compiler is welcome; CI has one")
def test_ci_runs_the_compiled_kernel() -> None:
    assert records.KERNEL_IS_COMPILED or os.environ.get("TIDELOG_PURE")
    assert COMPILED is not None


def test_a_header_is_read_before_its_records_are_there() -> None:
    batch = build([(5, None, b"v", ())])
    assert read_header(batch[:61]).record_count == 1
