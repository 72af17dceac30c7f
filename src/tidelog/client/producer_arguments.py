"""What both producers, blocking and async, make of what they are given."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from tidelog.base.errors import ConfigError
from tidelog.base.ports import Buffer
from tidelog.client.core.accumulator import RecordHeaders
from tidelog.client.core.route import Route
from tidelog.client.core.sender import SenderSettings
from tidelog.client.core.sequences import REMEMBERED_BATCHES
from tidelog.client.options import ProducerConfig
from tidelog.records.columns import ColumnBuffers
from tidelog.records.keys import rows_by_partition

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


def rows_by_target(columns: ColumnBuffers, route: Route) -> list[tuple[int | None, Buffer | None]]:
    """Partitions (None: any), with the numbers of the rows for each by their keys (None: all rows)."""
    if columns.key_offsets is None or route.partition_count == 1:
        return [(None, None)]
    found = rows_by_partition(columns, route.partition_count, route.keyless_partition)
    return [(found[0][0], None)] if len(found) == 1 else list(found)


def with_timestamps(columns: ColumnBuffers, wall_ms: int) -> ColumnBuffers:
    """Where there are no timestamps, it is now."""
    if columns.timestamp is not None:
        return columns
    return columns._replace(timestamp=memoryview(array("q", (wall_ms,)) * columns.row_count))
