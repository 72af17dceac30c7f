"""What the settings of a topic say about its logs, in units and under names of our own. Kafka: `LogConfig`."""

from __future__ import annotations

from tidelog.log import LogConfig
from tidelog.log.config import CODECS, LZ4_DEFAULT, LZ4_FAST
from tidelog.metadata.configs import BrokerSettings, ConfigValues
from tidelog.metadata.configs import broker as broker_keys
from tidelog.metadata.configs import topic as keys
from tidelog.metadata.configs.key import INT64_MAX, ConfigKey

GZIP_DEFAULT = -1


def log_config(values: ConfigValues, broker: BrokerSettings) -> LogConfig:
    """How the logs of a topic are kept at a broker.

    Args:
        values: of the topic, as they are in force there.
    """

    def limit(key: ConfigKey[int], *, none: int = INT64_MAX) -> int | None:
        return None if values[key] == none else values[key]

    codec, level = _compression(values)
    return LogConfig(
        segment_size_bytes=values[keys.SEGMENT_BYTES],
        segment_ms=values[keys.SEGMENT_MS],
        segment_jitter_ms=values[keys.SEGMENT_JITTER_MS],
        index_interval_bytes=values[keys.INDEX_INTERVAL_BYTES],
        index_size_bytes_max=values[keys.SEGMENT_INDEX_BYTES],
        compression_codec=codec,
        compression_level=level,
        message_size_bytes_max=values[keys.MAX_MESSAGE_BYTES],
        message_timestamp_type=values[keys.MESSAGE_TIMESTAMP_TYPE],
        message_timestamp_before_ms_max=limit(keys.MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
        message_timestamp_after_ms_max=limit(keys.MESSAGE_TIMESTAMP_AFTER_MAX_MS),
        flush_messages=limit(keys.FLUSH_MESSAGES),
        flush_ms=limit(keys.FLUSH_MS),
        retention_size_bytes=limit(keys.RETENTION_BYTES, none=-1),
        retention_ms=limit(keys.RETENTION_MS, none=-1),
        cleanup_policy=frozenset(values[keys.CLEANUP_POLICY]),
        min_cleanable_dirty_ratio=values[keys.MIN_CLEANABLE_DIRTY_RATIO],
        min_compaction_lag_ms=values[keys.MIN_COMPACTION_LAG_MS],
        max_compaction_lag_ms=limit(keys.MAX_COMPACTION_LAG_MS),
        delete_retention_ms=values[keys.DELETE_RETENTION_MS],
        producer_id_expiration_ms=broker[broker_keys.PRODUCER_ID_EXPIRATION_MS],
    )


def _compression(values: ConfigValues) -> tuple[int | None, int | None]:
    """The codec, and its level; None for what neither names."""
    name = values[keys.COMPRESSION_TYPE]
    codec = CODECS[name]
    if name == "gzip":
        level = values[keys.COMPRESSION_GZIP_LEVEL]
        return codec, None if level == GZIP_DEFAULT else level
    if name == "lz4":
        # As in Kafka, the default is the fast compressor, and any other level is the thorough one's.
        level = values[keys.COMPRESSION_LZ4_LEVEL]
        return codec, LZ4_FAST if level == LZ4_DEFAULT else max(level, LZ4_FAST + 2)
    return codec, values[keys.COMPRESSION_ZSTD_LEVEL] if name == "zstd" else None
