"""What both producers, blocking and async, make of what they are given."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

from tidelog.base.errors import ConfigError
from tidelog.client.core.accumulator import RecordHeaders
from tidelog.client.core.encoding import split_rows
from tidelog.client.core.partitioner import KeyPartitioner
from tidelog.client.core.route import Route
from tidelog.client.core.rows import rows_by_partition, select_rows
from tidelog.client.core.sender import SenderSettings
from tidelog.client.core.sequences import REMEMBERED_BATCHES
from tidelog.client.options import ProducerConfig
from tidelog.records.columns import ColumnBuffers, EncodedRecords

HeadersLike = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
BytesLike = bytes | bytearray | memoryview | str


def sender_settings(config: ProducerConfig) -> SenderSettings:
    """Decide on idempotence and acks.

    Raises:
        ConfigError: idempotence is asked for together with what it cannot be had with.
    """
    acks = -1 if config.acks == "all" else int(config.acks)
    idempotent = acks == -1 if config.enable_idempotence is None else config.enable_idempotence
    if idempotent and acks != -1:
        raise ConfigError(f"Producer(acks={config.acks!r}): enable_idempotence=True needs acks='all'")
    if idempotent and config.max_in_flight_requests_per_connection > REMEMBERED_BATCHES:
        raise ConfigError(
            f"Producer(max_in_flight_requests_per_connection={config.max_in_flight_requests_per_connection}): "
            f"with idempotence {REMEMBERED_BATCHES} are the most that a broker can tell apart"
        )
    return SenderSettings(
        idempotent=idempotent,
        acks=acks,
        in_flight_requests_max=config.max_in_flight_requests_per_connection,
        request_size_bytes_max=config.max_request_size,
        delivery_timeout_ms=config.delivery_timeout_ms,
    )


def as_bytes(value: BytesLike | None, what: str) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as null. Raises TypeError for anything else."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a record's {what} is bytes, str or None, not {type(value).__name__}: encode it first")


def as_headers(headers: HeadersLike) -> RecordHeaders:
    """Pairs of a name and bytes. Raises TypeError for anything else."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = []
    for name, content in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, not {type(name).__name__}")
        found.append((name, as_bytes(content, f"header {name!r}")))
    return tuple(found)


def check_timestamp(timestamp_ms: int) -> int:
    """Raises ValueError for what is no time since 1970."""
    if not 0 <= timestamp_ms < 2**63:
        raise ValueError(f"timestamp_ms={timestamp_ms}: milliseconds since 1970 are expected")
    return timestamp_ms


def rows_by_target(columns: ColumnBuffers, route: Route) -> dict[int, list[int]] | None:
    """The rows for each partition by their keys, in order; None if they need not be parted."""
    if columns.key_offsets is None or route.partition_count == 1:
        return None
    found = rows_by_partition(columns, KeyPartitioner(route.partition_count))
    keyless = found.pop(None, None)
    targets = {partition: rows for partition, rows in found.items() if partition is not None}
    if keyless is not None:
        target = route.keyless_partition(len(keyless))
        targets[target] = sorted([*targets.get(target, ()), *keyless])
    return targets


def columns_by_target(columns: ColumnBuffers, route: Route) -> Iterator[tuple[int | None, ColumnBuffers]]:
    """The columns for each partition by their keys; for None if they may go to any."""
    targets = rows_by_target(columns, route)
    if targets is None:
        yield None, columns
    elif len(targets) == 1:
        yield next(iter(targets)), columns
    else:
        for target, rows in targets.items():
            yield target, select_rows(columns, rows)


def encode_rows(columns: ColumnBuffers, config: ProducerConfig, wall_ms: int) -> list[EncodedRecords]:
    """All rows, encoded as batches. Where there are no timestamps, it is now.

    Raises:
        ValueError: the columns contradict each other, or a timestamp lies below -1.
    """
    if columns.timestamp is None:
        columns = columns._replace(timestamp=memoryview(array("q", (wall_ms,)) * columns.row_count))
    return split_rows(columns, config.batch_size)
