"""Every setting of a topic: what it does here, its default, its limits, and the broker settings behind it."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from tidelog.metadata.configs.key import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT64_MAX,
    LIST,
    LONG,
    STRING,
    ConfigKey,
    ConfigType,
    Synonym,
    ValueKind,
    keys_in,
    refused,
    without_effect,
)

T = TypeVar("T")

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000

_TIMESTAMP_TYPE: ValueKind[Literal["CreateTime", "LogAppendTime"]] = ValueKind(ConfigType.STRING)


def _key(
    name: str, kind: ValueKind[T], default: str, doc: str, *synonyms: str | Synonym, **rest: object
) -> ConfigKey[T]:
    known = tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms)
    return ConfigKey(name, kind, default, doc, synonyms=known, is_dynamic=True, **rest)  # type: ignore[arg-type]


COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
GZIP_LEVELS = ("-1", *map(str, range(1, 10)))

THROTTLED_REPLICAS = (r"\*|[0-9]+:[0-9]+", "PARTITION:BROKER, with a comma between; or *")

NO_TIERS = "there is no tiered storage, all segments stay with the brokers"
NO_PREALLOCATION = "the size of a segment file is what was appended to it"

CLEANUP_POLICY = _key(
    "cleanup.policy",
    LIST,
    "delete",
    "delete: old segments go by retention.ms and retention.bytes. compact: the latest record of each key is kept, "
    "records without a key are refused (those that were there before stay). compact,delete: both. Empty: neither, "
    "everything is kept. The segment that is written to is never compacted.",
    "log.cleanup.policy",
    choices=("delete", "compact"),
    may_be_empty=True,
)
COMPRESSION_GZIP_LEVEL = _key(
    "compression.gzip.level",
    INT,
    "-1",
    "With compression.type gzip: how hard the broker compresses; -1 is 6.",
    "compression.gzip.level",
    choices=GZIP_LEVELS,
)
COMPRESSION_LZ4_LEVEL = _key(
    "compression.lz4.level",
    INT,
    "9",
    "With compression.type lz4: how hard the broker compresses. 9 is the fast way, as in Kafka; any other is the "
    "thorough way, from 3 (lower ones count as 3) to 12 (as do higher ones).",
    "compression.lz4.level",
    minimum=1,
    maximum=17,
)
COMPRESSION_TYPE = _key(
    "compression.type",
    STRING,
    "producer",
    "producer: batches are stored as they come. Any other: a batch in another codec is compressed anew by the "
    "broker, which costs it time; compaction keeps each batch in the codec that it has.",
    "compression.type",
    choices=COMPRESSION_TYPES,
)
COMPRESSION_ZSTD_LEVEL = _key(
    "compression.zstd.level",
    INT,
    "3",
    "With compression.type zstd: how hard the broker compresses.",
    "compression.zstd.level",
    minimum=-131072,
    maximum=22,
)
DELETE_RETENTION_MS = _key(
    "delete.retention.ms",
    LONG,
    "86400000",
    "How long a compacted topic keeps the mark of a deleted key, from the first compaction it comes by; it goes "
    "with the first one after that.",
    "log.cleaner.delete.retention.ms",
    minimum=0,
)
FLUSH_MESSAGES = _key(
    "flush.messages",
    LONG,
    str(INT64_MAX),
    "The log is synced to disk after this many records; the last of them is acknowledged after that.",
    "log.flush.interval.messages",
    minimum=1,
)
FLUSH_MS = _key(
    "flush.ms",
    LONG,
    str(INT64_MAX),
    "The log is synced to disk when a record has waited for it this long; looked at once a second.",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    minimum=0,
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = _key(
    "follower.replication.throttled.replicas",
    LIST,
    "",
    "Which replicas fetch no faster than follower.replication.throttled.rate of their brokers: PARTITION:BROKER, "
    "with a comma between; * for all of the topic.",
    pattern=THROTTLED_REPLICAS,
)
INDEX_INTERVAL_BYTES = _key(
    "index.interval.bytes",
    INT,
    "4096",
    "One entry goes into the offset and time index per this many bytes of log.",
    "log.index.interval.bytes",
    minimum=0,
)
LEADER_REPLICATION_THROTTLED_REPLICAS = _key(
    "leader.replication.throttled.replicas",
    LIST,
    "",
    "Which replicas, while they lead, send no faster than leader.replication.throttled.rate of their brokers to "
    "followers that are not in sync: PARTITION:BROKER, with a comma between; * for all of the topic.",
    pattern=THROTTLED_REPLICAS,
)
MAX_COMPACTION_LAG_MS = _key(
    "max.compaction.lag.ms",
    LONG,
    str(INT64_MAX),
    "A log with a record older than this, by its timestamp, is compacted however little of it is dirty; its "
    "segments are closed after this time.",
    "log.cleaner.max.compaction.lag.ms",
    minimum=1,
)
MAX_MESSAGE_BYTES = _key(
    "max.message.bytes",
    INT,
    "1048588",
    "The largest batch that is accepted, in bytes, as it comes (compressed).",
    "message.max.bytes",
    minimum=0,
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _key(
    "message.timestamp.after.max.ms",
    LONG,
    "3600000",
    "How far in the future a record's timestamp may lie; only with CreateTime.",
    "log.message.timestamp.after.max.ms",
    minimum=0,
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _key(
    "message.timestamp.before.max.ms",
    LONG,
    str(INT64_MAX),
    "How far in the past a record's timestamp may lie; only with CreateTime.",
    "log.message.timestamp.before.max.ms",
    minimum=0,
)
MESSAGE_TIMESTAMP_TYPE = _key(
    "message.timestamp.type",
    _TIMESTAMP_TYPE,
    "CreateTime",
    "CreateTime: records keep the producer's timestamps. LogAppendTime: the broker stamps each batch.",
    "log.message.timestamp.type",
    choices=("CreateTime", "LogAppendTime"),
)
MIN_CLEANABLE_DIRTY_RATIO = _key(
    "min.cleanable.dirty.ratio",
    DOUBLE,
    "0.5",
    "A log is compacted once more than this share of its bytes came since the last time.",
    "log.cleaner.min.cleanable.ratio",
    minimum=0,
    maximum=1,
)
MIN_COMPACTION_LAG_MS = _key(
    "min.compaction.lag.ms",
    LONG,
    "0",
    "Segments with a record younger than this, by its timestamp, are not compacted yet.",
    "log.cleaner.min.compaction.lag.ms",
    minimum=0,
)
MIN_INSYNC_REPLICAS = _key(
    "min.insync.replicas",
    INT,
    "1",
    "With acks=all: how many replicas must be in sync, or the write is refused.",
    "min.insync.replicas",
    minimum=1,
)
RETENTION_BYTES = _key(
    "retention.bytes",
    LONG,
    "-1",
    "With cleanup.policy delete: the oldest segments go while a partition is larger than this; -1 for no limit.",
    "log.retention.bytes",
    minimum=-1,
)
RETENTION_MS = _key(
    "retention.ms",
    LONG,
    "604800000",
    "With cleanup.policy delete: segments go whose newest record is older than this; -1 for no limit.",
    "log.retention.ms",
    Synonym("log.retention.minutes", _MINUTE_MS),
    Synonym("log.retention.hours", _HOUR_MS),
    minimum=-1,
)
SEGMENT_BYTES = _key(
    "segment.bytes",
    INT,
    "1073741824",
    "A new segment is begun before one grows beyond this.",
    "log.segment.bytes",
    minimum=14,
)
SEGMENT_INDEX_BYTES = _key(
    "segment.index.bytes",
    INT,
    "10485760",
    "A new segment is begun when an index of one has grown to this.",
    "log.index.size.max.bytes",
    minimum=12,
)
SEGMENT_JITTER_MS = _key(
    "segment.jitter.ms",
    LONG,
    "0",
    "A segment is closed earlier than segment.ms says by a random part of this, drawn for each, so that partitions "
    "that began together do not close theirs together.",
    "log.roll.jitter.ms",
    Synonym("log.roll.jitter.hours", _HOUR_MS),
    minimum=0,
)
SEGMENT_MS = _key(
    "segment.ms",
    LONG,
    "604800000",
    "A new segment is begun when one has been written to for this long.",
    "log.roll.ms",
    Synonym("log.roll.hours", _HOUR_MS),
    minimum=1,
)
UNCLEAN_LEADER_ELECTION_ENABLE = _key(
    "unclean.leader.election.enable",
    BOOLEAN,
    "false",
    "Whether a replica that is not in sync leads rather than none. Acknowledged records are lost then, and whoever "
    "had read them is told.",
    "unclean.leader.election.enable",
)

TOPIC_CONFIGS: tuple[ConfigKey[Any], ...] = tuple(
    sorted(
        (
            *keys_in(globals()),
            *without_effect(
                "deleted files stay for log.segment.delete.delay.ms of the broker, whatever their topic",
                _key("file.delete.delay.ms", LONG, "60000", "", "log.segment.delete.delay.ms", minimum=0),
            ),
            *refused(NO_PREALLOCATION, _key("preallocate", BOOLEAN, "false", "", "log.preallocate")),
            *refused(
                NO_TIERS,
                _key("local.retention.bytes", LONG, "-2", "", "log.local.retention.bytes"),
                _key("local.retention.ms", LONG, "-2", "", "log.local.retention.ms"),
                _key("remote.log.copy.disable", BOOLEAN, "false", ""),
                _key("remote.log.delete.on.disable", BOOLEAN, "false", ""),
                _key("remote.storage.enable", BOOLEAN, "false", ""),
            ),
        ),
        key=lambda key: key.name,
    )
)
