"""Feed damaged records to the kernels: `python tests/fuzz/fuzz_walker.py SECONDS [SEED]`.

Valid records are damaged in a few places and walked, unpacked and decoded to columns by every kernel there is. They
agree on every answer and every refusal, and none depends on a byte outside the records. The same damage inside a whole
batch, compressed or not, whose checksum is right, is refused as a KafkaError or read.

The C code has checks of its own and none of Cython's. To let Cython check every index as well, build it so and run it:

    TIDELOG_BUILD_BOUNDSCHECK=1 pip install --no-build-isolation --no-deps -e . && python tests/fuzz/fuzz_walker.py 60

An index out of bounds cannot leave the C functions as an exception; it is seen all the same, and ends the run.
"""

from __future__ import annotations

import random
import sys
import time
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tidelog.base.errors import KafkaError, MalformedBatchError
from tidelog.records import BatchBuilder, compress, kernel, read_header, read_records, validate_batch
from tidelog.records.columns import COLUMNS, Columns
from tidelog.records.header import BatchHeader, write_batch

INT32_MAX = 0x7FFFFFFF
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
DECOMPRESSED_SIZE_BYTES_MAX = 1 << 20

_INTERESTING = (
    b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\x80\x01", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", b"\x80\x80\x80\x80\x10",
)  # fmt: skip

Region = tuple[bytes, int, int, int]
"""(records, how many, last offset delta, largest timestamp delta)."""


def kernels() -> list[ModuleType]:
    """The kernels that there are."""
    try:
        from tidelog.records import _kernel_c  # type: ignore[attr-defined]
    except ImportError:
        return [kernel]
    return [kernel, _kernel_c]


def valid_records(rng: random.Random) -> tuple[bytes, int]:
    """The records of a batch, alike or mixed, and how many there are."""
    builder = BatchBuilder()
    count = rng.choice((1, 1, 2, 5, 30, 300))
    alike = rng.random() < 0.5
    size = rng.randrange(40)
    start = rng.choice((0, 1_700_000_000_000))
    for index in range(count):
        if alike:
            builder.append(start + index // 3, None, bytes((index & 0xFF,)) * size)
        else:
            key = rng.choice((None, b"", b"key", rng.randbytes(70)))
            value = rng.choice((None, b"", b"value", rng.randbytes(rng.randrange(150))))
            headers = [(rng.choice(("", "a", "name")), rng.choice((None, b"", b"x"))) for _ in range(rng.randrange(3))]
            builder.append(start + rng.randrange(100_000), key, value, headers)
    return builder.build()[61:], count


def damaged(rng: random.Random, records: bytes) -> bytes:
    """Records with one to four damages, or none."""
    out = bytearray(records)
    for _ in range(rng.randrange(5)):
        at, what = rng.randrange(len(out) + 1), rng.randrange(6)
        value = rng.choice(_INTERESTING)
        if what == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[at : at + len(value)] = value
        elif what == 2:
            out[at:at] = value
        elif what == 3:
            del out[at : at + rng.randrange(1, 9)]
        elif what == 4:
            del out[at:]
        else:
            out[at:] = out[rng.randrange(len(out) + 1) :][: rng.randrange(1, 400)]
    return bytes(out)


def outcome(work: Callable[..., Any], *arguments: Any) -> Any:
    """What is returned, or what is refused."""
    try:
        return work(*arguments)
    except MalformedBatchError as error:
        return str(error), error.position


def decoded(module: ModuleType, buffer: Any, start: int, end: int, *limits: int) -> Any:
    """The columns that a kernel makes of the records, with as much room as they can need and no more."""
    count, size = min(limits[0], (end - start) // 7), end - start
    headers = size // 2

    def ints(items: int) -> Any:
        return memoryview(array("i", bytes(4 * items)))

    def binary(rows: int) -> list[Any]:
        return [ints(rows + 1), bytearray(b"\xff") * ((rows + 7) // 8), bytearray(size)]

    longs = [memoryview(array("q", bytes(8 * count))) for _ in range(2)]
    key, value, contents = binary(count), binary(count), binary(headers)
    columns = [*longs, *key, *value, ints(count + 1), ints(headers + 1), bytearray(size), *contents]
    found = outcome(module.decode, buffer, start, end, *limits, 1, INT32_MAX, 10, 20, 1, 0, *columns)
    if isinstance(found[0], str):
        return found
    return found, [bytes(column) for column in columns]


def check_kernels(rng: random.Random, region: Region) -> bool:
    """Hold the kernels against each other; whether they accepted the records."""
    records, *limits = region
    size = len(records)
    before, behind = rng.randbytes(rng.randrange(9)), rng.randbytes(rng.randrange(1, 30))
    amid = memoryview(bytearray(before + records + behind))
    arguments = (limits[0], limits[1], INT64_MIN, limits[2])
    as_tuples = (7, 0, 1, -1, tuple, None, -1, "")
    walked, unpacked, columns = [], [], []
    for module in kernels():
        walked.append(outcome(module.walk, records, 0, size, *arguments))
        walked.append(outcome(module.walk, bytearray(records), 0, size, *arguments))
        unpacked.append(outcome(module.unpack, records, 0, size, *arguments, *as_tuples))
        columns.append(decoded(module, records, 0, size, *arguments))
        # Among other bytes positions are others, and so are the errors that name them; the rest is the same.
        start = len(before)
        for results, found in (
            (walked, outcome(module.walk, amid, start, start + size, *arguments)),
            (unpacked, outcome(module.unpack, amid, start, start + size, *arguments, *as_tuples)),
            (columns, decoded(module, amid, start, start + size, *arguments)),
        ):
            refused = isinstance(found[0], str) if found else False
            assert refused == bool(results[0] and isinstance(results[0][0], str)), (found, results[0])
            assert refused or found == results[0], (found, results[0])
    for results in (walked, unpacked, columns):
        assert all(other == results[0] for other in results), results
    refusals = [bool(results[0]) and isinstance(results[0][0], str) for results in (walked, unpacked, columns)]
    assert refusals[0] == refusals[1] == refusals[2], (walked[0], unpacked[0], columns[0])
    return not refusals[0]


def check_batch(rng: random.Random, region: Region) -> bool:
    """Read the records as those of a batch with a checksum that is right; whether it was accepted."""
    records, count, last_offset_delta, _ = region
    codec = rng.randrange(5)
    payload = bytes(compress(codec, records))
    if rng.random() < 0.3:
        payload = damaged(rng, payload)
    base_timestamp = rng.choice((0, -1, 1_700_000_000_000, INT64_MAX, INT64_MIN))
    header = BatchHeader(5, 0, 1, 2, 0, codec, last_offset_delta, base_timestamp, 0, -1, -1, -1, count)
    batch = memoryview(bytearray(write_batch(header, payload)))
    header = read_header(batch)
    outcomes = []
    for look in (validate, read, collect):
        try:
            outcomes.append(look(batch, header))
        except KafkaError:
            outcomes.append(-1)
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    return outcomes[0] >= 0


def validate(batch: memoryview, header: BatchHeader) -> int:
    limit = DECOMPRESSED_SIZE_BYTES_MAX
    return validate_batch(batch, 0, header, dense=False, decompressed_size_bytes_max=limit).record_count


def read(batch: memoryview, header: BatchHeader) -> int:
    return len(read_records(batch, 0, header, decompressed_size_bytes_max=DECOMPRESSED_SIZE_BYTES_MAX))


def collect(batch: memoryview, header: BatchHeader) -> int:
    columns = Columns(COLUMNS)
    columns.append_batch(batch, 0, header, decompressed_size_bytes_max=DECOMPRESSED_SIZE_BYTES_MAX)
    return columns.finish().row_count


def main(seconds: float, seed: int, *, batch_count_max: int | None = None) -> tuple[int, int]:
    """Damage and read for that long; return how many batches were read, and how many of them accepted.

    Args:
        batch_count_max: ends it earlier, after so many.

    Raises:
        AssertionError: a finding; it shows the records as hex, and the seed.
    """
    rng = random.Random(seed)
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    deadline = time.monotonic() + seconds
    count = accepted = 0
    try:
        while time.monotonic() < deadline and (batch_count_max is None or count < batch_count_max):
            records, record_count = valid_records(rng)
            for _ in range(10):
                region = (
                    damaged(rng, records),
                    rng.choice((record_count, record_count, record_count, record_count + 1, 0, INT32_MAX)),
                    rng.choice((record_count - 1, record_count - 1, INT32_MAX, 0)),
                    rng.choice((INT64_MAX, INT64_MAX, 50_000)),
                )
                try:
                    accepted += check_kernels(rng, region)
                    check_batch(rng, region)
                    assert not ignored, ignored
                except Exception as error:
                    raise AssertionError(f"seed {seed}, batch {count}: {region[0].hex()} {region[1:]}") from error
                count += 1
    finally:
        sys.unraisablehook = hook
    return count, accepted


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    run_seconds = given[0] if given else 10.0
    run_seed = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(1 << 32)
    tried, taken = main(run_seconds, run_seed)
    names = " and ".join("compiled" if module.KERNEL_IS_COMPILED else "interpreted" for module in kernels())
    print(f"{tried} batches, {taken} of them accepted, kernels {names}, seed {run_seed}: nothing found")
