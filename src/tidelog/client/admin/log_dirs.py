"""The log directories of brokers, as an Admin tells of them: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class LogDescription:
    """The log of a replica, or a copy that will take its place.

    Attributes:
        size_bytes: of the batches in it.
        offset_lag: how far it lies behind the high watermark; a copy, behind the log that it is a copy of.
        is_future: whether it is a copy, on its way from another directory.
    """

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One directory of a broker.

    Attributes:
        error: why it is out of use; None if it is not.
        total_bytes: the size of the file system that it lies on; None where the broker does not tell.
        usable_bytes: what of it can still be written; likewise.
        logs: what lies there, of what was asked for.
    """

    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    logs: tuple[LogDescription, ...]
