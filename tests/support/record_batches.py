"""Record batches for tests: those written by hand, arbitrary ones for hypothesis, and an independent checksum."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from tidelog.records import BatchBuilder, kernel, kernel_encode

VECTORS = Path(__file__).parents[1] / "vectors" / "records_batches.txt"

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""(timestamp, key, value, headers), as `BatchBuilder.append` takes them."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def load_vectors() -> dict[str, bytes]:
    """The batches of tests/vectors/records_batches.txt by their names."""
    batches: dict[str, bytes] = {}
    name = ""
    for line in VECTORS.read_text().splitlines():
        if line.startswith("= "):
            name = line[2:]
            batches[name] = b""
        elif not line.startswith("#"):
            batches[name] = batches.get(name, b"") + bytes.fromhex(line.partition(";")[0])
    del batches[""]  # the empty line at the top
    return batches


def compiled_kernels() -> tuple[ModuleType, ModuleType] | None:
    """The compiled kernels (reading, writing), whatever TIDELOG_PURE says; None if they were not built."""
    try:
        from tidelog.records import _kernel_c, _kernel_encode_c  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _kernel_c, _kernel_encode_c


def kernels() -> list[tuple[ModuleType, ModuleType]]:
    """All pairs of kernels (reading, writing) that there are: their results are to be the same."""
    compiled = compiled_kernels()
    return [(kernel, kernel_encode), *([compiled] if compiled else [])]


def slow_crc32c(data: bytes) -> int:
    """CRC32C bit by bit, from its polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def build(rows: list[Row], compression: str = "none", **batch: int) -> bytearray:
    """A batch of `rows`, writable as a receive buffer is."""
    builder = BatchBuilder(compression=compression)
    for row in rows:
        builder.append(*row)
    return bytearray(builder.build(**batch))


_binary = st.none() | st.binary(max_size=150)
_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)

any_row: st.SearchStrategy[Row] = st.tuples(
    st.integers(-1, 5_000) | st.integers(-1, 1 << 62), _binary, _binary, st.just(()) | _headers
)


@st.composite
def alike_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of one shape, interrupted here and there: what the interpreted kernel takes by runs."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.none() | st.binary(max_size=3))
        size = draw(st.integers(0, 80))
        start, step = draw(st.integers(100, 9_000)), draw(st.integers(-3, 3))
        count = draw(st.integers(1, 200))
        rows += [(start + row // 7 * step, key, bytes([row % 251]) * size, ()) for row in range(count)]
        if draw(st.booleans()):
            rows.append(draw(any_row))
    return rows


any_rows: st.SearchStrategy[list[Row]] = st.lists(any_row, min_size=1, max_size=40) | alike_rows()
