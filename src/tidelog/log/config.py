"""What a topic's configuration says about its logs, in units and under names of our own.

Kafka: `LogConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidelog.records.compression import COMPRESSION_IDS

INT64_MAX = 2**63 - 1

TimestampType = Literal["CreateTime", "LogAppendTime"]

AS_PRODUCED = "producer"
CODECS: dict[str, int | None] = {
    AS_PRODUCED: None,
    "uncompressed": COMPRESSION_IDS["none"],
    **{name: codec for name, codec in COMPRESSION_IDS.items() if codec},
}
"""What `compression.type` names."""

LZ4_DEFAULT = 9
LZ4_FAST = 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one log is kept. The defaults are Kafka's; None means "no limit" or "never", where Kafka writes -1 or 2^63-1.

    Attributes:
        segment_size_bytes: a segment that would grow beyond this is closed (`segment.bytes`).
        segment_ms: a segment is closed once a batch is this much younger than its first (`segment.ms`).
        segment_jitter_ms: a random part of this, drawn per segment, is taken off that time (`segment.jitter.ms`).
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
    segment_jitter_ms: int = 0
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
