"""What a topic's configuration says about its logs, in units and under names of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidelog.base.errors import ConfigError
from tidelog.records.compression import COMPRESSION_IDS, LZ4

INT64_MAX = 2**63 - 1

TimestampType = Literal["CreateTime", "LogAppendTime"]
_TIMESTAMP_TYPES: tuple[TimestampType, ...] = ("CreateTime", "LogAppendTime")

AS_PRODUCED = "producer"
CODECS: dict[str, int | None] = {
    AS_PRODUCED: None,
    "uncompressed": COMPRESSION_IDS["none"],
    **{name: codec for name, codec in COMPRESSION_IDS.items() if codec},
}
"""What `compression.type` names."""

GZIP_DEFAULT = -1
LZ4_DEFAULT = 9
LZ4_FAST = 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one log is kept. The defaults are Kafka's; None means "no limit" or "never", where Kafka writes -1 or 2^63-1.

    Attributes:
        segment_size_bytes: a segment that would grow beyond this is closed (`segment.bytes`).
        segment_ms: a segment is closed once a batch is this much younger than its first (`segment.ms`).
        index_interval_bytes: how much log lies between two index entries, about (`index.interval.bytes`).
        index_size_bytes_max: a segment whose index would outgrow this is closed (`segment.index.bytes`).
        compression_codec: batches in another are compressed anew; None keeps all as they come (`compression.type`).
        compression_level: with which that is done; None for the codec's own (`compression.gzip.level` and so on).
        message_size_bytes_max: the largest batch accepted (`max.message.bytes`).
        message_timestamp_type: whose clock dates the records (`message.timestamp.type`).
        message_timestamp_before_ms_max: how far in the past a record may lie (`message.timestamp.before.max.ms`).
        message_timestamp_after_ms_max: how far in the future (`message.timestamp.after.max.ms`).
        flush_messages: sync once this many records were appended (`flush.messages`).
        flush_ms: sync once the oldest record that is not synced is as old as this (`flush.ms`).
        retention_size_bytes: delete the oldest segments while more than this would remain (`retention.bytes`).
        retention_ms: delete the segments whose youngest record is older than this (`retention.ms`).
        cleanup_policy: `delete`, `compact`, both or neither (`cleanup.policy`).
        min_cleanable_dirty_ratio: compact once more than this share is dirty (`min.cleanable.dirty.ratio`).
        min_compaction_lag_ms: do not compact what is younger than this (`min.compaction.lag.ms`).
        max_compaction_lag_ms: compact what is older, however little it is (`max.compaction.lag.ms`).
        delete_retention_ms: how long compaction keeps the mark of a deleted key (`delete.retention.ms`).
        producer_id_expiration_ms: forget a producer that has been silent for so long (`producer.id.expiration.ms`).
    """

    segment_size_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_size_bytes_max: int = 10 * 1024 * 1024
    compression_codec: int | None = None
    compression_level: int | None = None
    message_size_bytes_max: int = 1024 * 1024 + 12
    message_timestamp_type: TimestampType = "CreateTime"
    message_timestamp_before_ms_max: int | None = None
    message_timestamp_after_ms_max: int | None = 3600 * 1000
    flush_messages: int | None = None
    flush_ms: int | None = None
    retention_size_bytes: int | None = None
    retention_ms: int | None = 7 * 24 * 3600 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    delete_retention_ms: int = 24 * 3600 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def is_compacted(self) -> bool:
        """Whether every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def batch_size_bytes_max(self) -> int:
        """The largest batch that a producer may send: one has to fit into a segment."""
        return min(self.message_size_bytes_max, self.segment_size_bytes)

    @property
    def roll_ms(self) -> int:
        """After how long a segment is closed: what `max.compaction.lag.ms` is about must not stay in one that grows."""
        if self.is_compacted and self.max_compaction_lag_ms is not None:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @staticmethod
    def from_configs(configs: Mapping[str, object]) -> LogConfig:
        """Read Kafka's keys; those that say nothing about a log are left alone, missing ones take the default.

        Args:
            configs: a topic's keys (and the broker's `producer.id.expiration.ms`) to their values, as numbers or as
                the text of a properties file.

        Raises:
            ConfigError: names the key, its value and what is expected.
        """
        fields: dict[str, object] = {}
        for key, (field, smallest, none) in _NUMBERS.items():
            if key in configs:
                value = _number(key, configs[key], smallest)
                fields[field] = None if none is not None and value == none else value
        if "min.cleanable.dirty.ratio" in configs:
            fields["min_cleanable_dirty_ratio"] = _share("min.cleanable.dirty.ratio", configs)
        if "compression.type" in configs:
            fields["compression_codec"], fields["compression_level"] = _compression(configs)
        if "message.timestamp.type" in configs:
            fields["message_timestamp_type"] = _timestamp_type(configs["message.timestamp.type"])
        if "cleanup.policy" in configs:
            fields["cleanup_policy"] = _policies(configs["cleanup.policy"])
        return LogConfig(**fields)  # type: ignore[arg-type]  # each was checked above


# Kafka's key: our field, the smallest value allowed, the value that means None.
_NUMBERS: dict[str, tuple[str, int, int | None]] = {
    "segment.bytes": ("segment_size_bytes", 14, None),
    "segment.ms": ("segment_ms", 1, None),
    "index.interval.bytes": ("index_interval_bytes", 0, None),
    "segment.index.bytes": ("index_size_bytes_max", 12, None),
    "max.message.bytes": ("message_size_bytes_max", 0, None),
    "message.timestamp.before.max.ms": ("message_timestamp_before_ms_max", 0, INT64_MAX),
    "message.timestamp.after.max.ms": ("message_timestamp_after_ms_max", 0, INT64_MAX),
    "flush.messages": ("flush_messages", 1, INT64_MAX),
    "flush.ms": ("flush_ms", 0, INT64_MAX),
    "retention.bytes": ("retention_size_bytes", -1, -1),
    "retention.ms": ("retention_ms", -1, -1),
    "producer.id.expiration.ms": ("producer_id_expiration_ms", 1, None),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", 0, None),
    "max.compaction.lag.ms": ("max_compaction_lag_ms", 1, INT64_MAX),
    "delete.retention.ms": ("delete_retention_ms", 0, None),
}


def _number(key: str, value: object, smallest: int) -> int:
    try:
        number = int(value) if isinstance(value, int | str) else None
    except ValueError:
        number = None
    if number is None or not smallest <= number <= INT64_MAX:
        raise ConfigError(f"{key}={value}: a whole number from {smallest} to {INT64_MAX} is expected")
    return number


def _share(key: str, configs: Mapping[str, object]) -> float:
    value = configs[key]
    try:
        share = float(value) if isinstance(value, int | float | str) else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"{key}={value}: a number from 0 to 1 is expected")
    return share


def _timestamp_type(value: object) -> TimestampType:
    for known in _TIMESTAMP_TYPES:
        if value == known:
            return known
    raise ConfigError(f"message.timestamp.type={value}: CreateTime or LogAppendTime is expected")


def _compression(configs: Mapping[str, object]) -> tuple[int | None, int | None]:
    """The codec, and its level; None for what neither names."""
    name = configs["compression.type"]
    if not isinstance(name, str) or name not in CODECS:
        raise ConfigError(f"compression.type={name}: one of {', '.join(CODECS)} is expected")
    codec = CODECS[name]
    key = f"compression.{name}.level"
    if key not in configs:
        return codec, None
    level = _number(key, configs[key], -INT64_MAX)
    if codec == LZ4:
        # As in Kafka, the default is the fast compressor, and any other level is the thorough one's.
        return codec, LZ4_FAST if level == LZ4_DEFAULT else max(level, LZ4_FAST + 2)
    return codec, None if level == GZIP_DEFAULT and name == "gzip" else level


def _policies(value: object) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list | tuple | set | frozenset):
        policies = frozenset(str(name).strip() for name in names) - {""}
        if policies <= {"delete", "compact"}:
            return policies
    raise ConfigError(f"cleanup.policy={value}: delete, compact, both with a comma between, or nothing is expected")
