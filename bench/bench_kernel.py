"""The kernel: records walked, decoded to columns and encoded per second, compiled and interpreted.

The peer of the compiled kernel is the interpreted one; the peer of that is kafka-python's reader, also Python.
Prints one JSON line a figure.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tidelog.records import _choose, batch, columns, kernel, kernel_encode
from tidelog.records.batch import BatchBuilder, read_header, validate_batch
from tidelog.records.columns import ColumnBuffers, Columns, encode_columns

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 deprecates
    from kafka.record.default_records import DefaultRecordBatch

SECONDS = 0.5
RECORD_COUNT = 8_000
"""About 0.9 MB with values of 100 bytes: a full batch of a busy producer."""


def measure(work: Callable[[], object]) -> float:
    """Seconds that `work` takes, the best of as many times as fit into `SECONDS`, three at least."""
    best = float("inf")
    times = 0
    deadline = time.perf_counter() + SECONDS
    while times < 3 or time.perf_counter() < deadline:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        times += 1
    return best


def use(reading: ModuleType, writing: ModuleType) -> None:
    """Let the package use these kernels."""
    for module in (_choose, batch, columns):
        vars(module).update(kernel=reading, kernel_encode=writing, KERNEL_IS_COMPILED=reading.KERNEL_IS_COMPILED)


def a_batch(shape: str) -> memoryview:
    """A batch as a socket would deliver it: values of 100 bytes, or of 60 to 140 with keys."""
    builder = BatchBuilder()
    rng = random.Random(7)
    for index in range(RECORD_COUNT):
        if shape == "alike":
            builder.append(1_700_000_000_000 + index // 50, None, rng.randbytes(100))
        else:
            key = str(rng.randrange(10_000)).encode()
            builder.append(1_700_000_000_000 + index // 50, key, rng.randbytes(rng.randrange(60, 141)))
    return memoryview(bytearray(builder.build()))


def figures(shape: str) -> dict[str, float]:
    """Million records a second by what is done to them."""
    data = a_batch(shape)
    header = read_header(data)
    region = batch.find_records(data, 0, header, 0)
    decoded = decode(data, header)
    million = RECORD_COUNT / 1e6
    return {
        "walk": million / measure(lambda: _choose.kernel.walk(*region)),
        "validate": million / measure(lambda: validate_batch(data, 0, header)),
        "decode": million / measure(lambda: decode(data, header)),
        "encode": million / measure(lambda: encode_columns(decoded)),
    }


def decode(data: memoryview, header: batch.BatchHeader) -> ColumnBuffers:
    target = Columns()
    target.append_batch(data, 0, header)
    return target.finish()


def small_batch_us() -> float:
    """Microseconds to validate a batch of one record."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"v" * 100)
    data = memoryview(bytearray(builder.build()))
    header = read_header(data)

    def thousand() -> None:
        for _ in range(1_000):
            validate_batch(data, 0, header)

    return measure(thousand) * 1e3


def peer_read(shape: str) -> float:
    """Million records a second that kafka-python reads one by one, its checksum left out."""
    data = bytes(a_batch(shape))

    def read() -> None:
        for _ in DefaultRecordBatch(data):
            pass

    return RECORD_COUNT / 1e6 / measure(read)


def show(name: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    line: dict[str, Any] = {"name": name, "value": round(value, 3), "unit": unit, "peer": peer}
    print(json.dumps(line | {"peer_value": round(peer_value, 3), "ratio": round(value / peer_value, 3)}), flush=True)


def main() -> int:
    use(kernel, kernel_encode)
    interpreted = {shape: figures(shape) for shape in ("alike", "mixed")}
    interpreted_us = small_batch_us()
    for shape, values in interpreted.items():
        peer = peer_read(shape)
        for what, value in values.items():
            show(f"kernel {what}, {shape}, interpreted", value, "M records/s", "kafka-python read", peer)
    try:
        from tidelog.records import _kernel_c, _kernel_encode_c  # type: ignore[attr-defined]
    except ImportError:
        print(f"{Path(__file__).name}: no compiled kernel was built", file=sys.stderr)
        return 1
    use(_kernel_c, _kernel_encode_c)
    for shape in ("alike", "mixed"):
        for what, value in figures(shape).items():
            show(f"kernel {what}, {shape}, compiled", value, "M records/s", "interpreted", interpreted[shape][what])
    show("validate a batch of one record, compiled", small_batch_us(), "us", "interpreted", interpreted_us)
    return 0


if __name__ == "__main__":
    sys.exit(main())
