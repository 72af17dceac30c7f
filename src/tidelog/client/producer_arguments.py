"""What both producers, blocking and async, make of what they are given."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.base.ids import Position, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.client.core.accumulator import RecordHeaders
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.route import Route
from tidelog.client.core.sender import SenderSettings
from tidelog.client.core.sequences import REMEMBERED_BATCHES
from tidelog.client.options import ProducerConfig
from tidelog.records.columns import ColumnBuffers
from tidelog.records.keys import rows_by_partition

HeadersLike = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
BytesLike = bytes | bytearray | memoryview | str

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of type checkers, which know the defaults (PEP 696)

    K = TypeVar("K", default=BytesLike)
    V = TypeVar("V", default=BytesLike)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")


def sender_settings(config: ProducerConfig) -> SenderSettings:
    """Decide on idempotence and acks.

    Raises:
        ConfigError: idempotence is asked for together with what it cannot be had with.
    """
    acks = -1 if config.acks == "all" else int(config.acks)
    idempotent = acks == -1 if config.enable_idempotence is None else config.enable_idempotence
    if config.transactional_id is not None and not idempotent:
        raise ConfigError(
            f"Producer(transactional_id={config.transactional_id!r}): transactions need acks='all' and idempotence:"
            " leave acks and enable_idempotence as they are"
        )
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


class Serializers(NamedTuple):
    """What makes bytes, or text, of keys and values. None leaves them as they are; a null stays null."""

    key: Callable[[Any], BytesLike] | None
    value: Callable[[Any], BytesLike] | None


def serializers_of(key: object, value: object) -> Serializers | None:
    """Raises ConfigError: one cannot be called."""
    for name, given in (("key_serializer", key), ("value_serializer", value)):
        if given is not None and not callable(given):
            raise ConfigError(f"Producer({name}={given!r}): something to call is expected, as json.dumps")
    return None if key is None and value is None else Serializers(key, value)  # type: ignore[arg-type]


def serialized(serializers: Serializers, key: Any, value: Any) -> tuple[Any, Any]:
    """A key and a value as they are sent. What a serializer raises is the caller's."""
    if key is not None and serializers.key is not None:
        key = serializers.key(key)
    if value is not None and serializers.value is not None:
        value = serializers.value(value)
    return key, value


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


def as_positions(offsets: Mapping[TopicPartition, Position | int]) -> dict[TopicPartition, Position]:
    """Positions as they are, numbers as offsets of which no epoch is known. Raises ValueError for what is no offset."""
    found = {}
    for partition, given in offsets.items():
        position = Position(given, None) if isinstance(given, int) else Position(*given)
        if position.offset < 0:
            raise ValueError(f"{partition}: offset {position.offset}: the next offset to read is expected, from 0")
        found[TopicPartition(*partition)] = position
    return found


def as_group(group: GroupMetadata | str) -> GroupMetadata:
    """What identifies a group without members, or a member of one. Raises TypeError or ValueError for what does not."""
    metadata = GroupMetadata(group) if isinstance(group, str) else group
    if not isinstance(metadata, GroupMetadata):
        raise TypeError(f"a group is its id or `consumer.group_metadata()`, not {type(group).__name__}")
    if not metadata.group_id:
        raise ValueError("the group id is empty: offsets are committed for a group")
    return metadata


def check_timestamp(timestamp_ms: int) -> int:
    """Raises ValueError for what is no time since 1970."""
    if not 0 <= timestamp_ms < 2**63:
        raise ValueError(f"timestamp_ms={timestamp_ms}: milliseconds since 1970 are expected")
    return timestamp_ms


def rows_by_target(columns: ColumnBuffers, route: Route) -> list[tuple[int | None, Buffer | None]]:
    """Partitions (None: any), with the numbers of the rows for each by their keys (None: all rows)."""
    of_row = route.partitioner.of_row()
    if columns.key_offsets is None and of_row is None:
        return [(None, None)]
    if route.partition_count == 1 and not route.partitioner.asks_user:
        return [(0, None)]  # also if there are more by the time that the rows are taken
    found = rows_by_partition(
        columns, route.partition_count, lambda count: route.partitioner.partition(None, count), of_row
    )
    return [(found[0][0], None)] if len(found) == 1 else list(found)


def with_timestamps(columns: ColumnBuffers, wall_ms: int) -> ColumnBuffers:
    """Where there are no timestamps, it is now."""
    if columns.timestamp is not None:
        return columns
    return columns._replace(timestamp=memoryview(array("q", (wall_ms,)) * columns.row_count))
