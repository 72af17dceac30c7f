"""Every setting of a node: what a Kafka-style .properties file may say, and what it does here."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.authorization import AUTHORIZATION_CONFIGS
from tidelog.metadata.configs.cluster import CLUSTER_CONFIGS
from tidelog.metadata.configs.coordinators import COORDINATOR_CONFIGS
from tidelog.metadata.configs.delegation_tokens import TOKEN_CONFIGS
from tidelog.metadata.configs.groups import GROUP_CONSUMER_CONFIGS
from tidelog.metadata.configs.key import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT32_MAX,
    INT64_MAX,
    LIST,
    LONG,
    STRING,
    ConfigKey,
    keys_in,
)
from tidelog.metadata.configs.limits import LIMIT_CONFIGS
from tidelog.metadata.configs.quotas import QUOTA_CONFIGS
from tidelog.metadata.configs.sasl import SASL_CONFIGS
from tidelog.metadata.configs.share_coordinators import SHARE_COORDINATOR_CONFIGS
from tidelog.metadata.configs.share_groups import GROUP_SHARE_CONFIGS
from tidelog.metadata.configs.tls import TLS_CONFIGS
from tidelog.metadata.configs.topic import COMPRESSION_TYPES, GZIP_LEVELS
from tidelog.metadata.configs.unserved import UNSERVED_CONFIGS
from tidelog.metadata.listeners import PROTOCOLS

NODE_ID = ConfigKey("node.id", INT.or_none, None, "This node's id, unlike any other's. Required.", minimum=0)
BROKER_ID = ConfigKey("broker.id", INT, "-1", "The older name of node.id; both must agree. -1 for unset.", minimum=-1)
PROCESS_ROLES = ConfigKey(
    "process.roles",
    LIST.or_none,
    None,
    "What this node is: broker, controller, or both. Required.",
    choices=("broker", "controller"),
)
LISTENERS = ConfigKey(
    "listeners",
    LIST,
    "PLAINTEXT://:9092",
    "Where this node listens: NAME://HOST:PORT, with a comma between. While it runs others can come and go beside "
    "those of its file; clients are told of those of the file alone, as with Kafka.",
    is_dynamic=True,
)
ADVERTISED_LISTENERS = ConfigKey(
    "advertised.listeners", LIST.or_none, None, "What clients are told to connect to, if not what listeners says."
)
LISTENER_SECURITY_PROTOCOL_MAP = ConfigKey(
    "listener.security.protocol.map",
    STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "Which protocol each listener name speaks: NAME:PROTOCOL, with a comma between. Kafka's four are served: "
    "PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL. Unless it is set, listeners of controllers speak PLAINTEXT.",
    is_dynamic=True,
)
CONTROLLER_LISTENER_NAMES = ConfigKey(
    "controller.listener.names", LIST.or_none, None, "The listeners that controllers use. Required of a controller."
)
INTER_BROKER_LISTENER_NAME = ConfigKey(
    "inter.broker.listener.name",
    STRING.or_none,
    None,
    "The listener on which brokers ask each other for records; that of security.inter.broker.protocol unless set. Who "
    "has none of this name is asked on its first. "
    "If clients have another listener, controllers stop replicas through it; otherwise by the metadata alone.",
)
SECURITY_INTER_BROKER_PROTOCOL = ConfigKey(
    "security.inter.broker.protocol",
    STRING,
    "PLAINTEXT",
    "The listener of this name is the one on which brokers ask each other, unless inter.broker.listener.name says "
    "which.",
    choices=PROTOCOLS,
)
CONTROLLER_QUORUM_VOTERS = ConfigKey(
    "controller.quorum.voters",
    LIST,
    "",
    "The voters of the metadata quorum: ID@HOST:PORT, with a comma between; the same at every node.",
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = ConfigKey(
    "controller.quorum.bootstrap.servers",
    LIST,
    "",
    "Where to find the voters of a quorum that keeps them in its log: HOST:PORT, with a comma between.",
)
BROKER_RACK = ConfigKey(
    "broker.rack", STRING.or_none, None, "Where this broker stands; replicas are spread over racks."
)
LOG_DIR = ConfigKey("log.dir", LIST, "/tmp/kafka-logs", "The directory of this node's logs, if log.dirs does not say.")  # noqa: S108
LOG_DIRS = ConfigKey(
    "log.dirs",
    LIST.or_none,
    None,
    "The directories of this node's logs, with a comma between. A new partition goes where there are fewest; if a "
    "directory fails, the others serve on.",
)
METADATA_LOG_DIR = ConfigKey(
    "metadata.log.dir", STRING.or_none, None, "The directory of the metadata log, if not the first of log.dirs."
)

SOCKET_REQUEST_MAX_BYTES = ConfigKey(
    "socket.request.max.bytes",
    INT,
    "104857600",
    "The largest request; a larger one closes its connection.",
    minimum=1,
)
QUEUED_MAX_REQUEST_BYTES = ConfigKey(
    "queued.max.request.bytes",
    LONG,
    "134217728",
    "The memory of requests of clients that have come in part, or wait for metadata, all connections together. "
    "What finds no room is read later; a request that stood still for a second while others waited closes its "
    "connection. One request may go beyond the limit. Kafka has no limit by default; -1 for none.",
    minimum=-1,
)
INTER_NODE_QUEUED_MAX_REQUEST_BYTES = ConfigKey(
    "inter.node.queued.max.request.bytes",
    LONG,
    "134217728",
    "Tidelog's own: the same for the listeners of controllers, and for that of inter.broker.listener.name where "
    "clients have another one.",
    minimum=-1,
)
QUEUED_MAX_RESPONSE_BYTES = ConfigKey(
    "queued.max.response.bytes",
    LONG,
    "134217728",
    "Tidelog's own: the memory of answers that clients have not taken, all connections together; beyond it the "
    "connection is closed whose peer took nothing for longest. As much again is for other nodes; -1 for no limit.",
    minimum=-1,
)
SOCKET_LISTEN_BACKLOG_SIZE = ConfigKey(
    "socket.listen.backlog.size", INT, "50", "How many connections may wait to be accepted.", minimum=1
)
CONNECTIONS_MAX_IDLE_MS = ConfigKey(
    "connections.max.idle.ms", LONG, "600000", "An idle connection is closed after this; -1 for never.", minimum=-1
)
MAX_CONNECTIONS = ConfigKey(
    "max.connections",
    INT,
    str(INT32_MAX),
    "The most connections of clients, all listeners together; further ones wait until one closes.",
    minimum=1,  # at 0 nobody could connect to change it back
    is_dynamic=True,
)
MAX_CONNECTIONS_PER_IP = ConfigKey(
    "max.connections.per.ip",
    INT,
    "20000",
    "The most connections from one address; further ones are closed at once. Kafka's default is 2147483647.",
    minimum=0,
    is_dynamic=True,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = ConfigKey(
    "max.connections.per.ip.overrides",
    STRING,
    "",
    "Other limits for some addresses: ADDRESS:LIMIT, with a comma between.",
    is_dynamic=True,
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = ConfigKey(
    "max.request.partition.size.limit",
    INT,
    "2000",
    "The most partitions that one DescribeTopicPartitions is answered with; the client asks on.",
    minimum=1,
)
FETCH_MAX_BYTES = ConfigKey(
    "fetch.max.bytes", INT, "57671680", "The most that one fetch is answered with, whatever it asks.", minimum=1024
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = ConfigKey(
    "max.incremental.fetch.session.cache.slots",
    INT,
    "1000",
    "How many readers may have a fetch session; the others say with each fetch all that they follow.",
    minimum=0,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS = ConfigKey(
    "max.incremental.fetch.session.cache.partitions",
    INT,
    "250000",
    "Tidelog's own: how many partitions all fetch sessions may follow together, a few hundred bytes each.",
    minimum=0,
)
NUM_REPLICA_FETCHERS = ConfigKey(
    "num.replica.fetchers",
    INT,
    "1",
    "How many fetches at a time followers here have at each of the other nodes; partitions are spread over them.",
    minimum=1,
    is_dynamic=True,
)

METRICS_LISTENER = ConfigKey(
    "metrics.listener",
    STRING.or_none,
    None,
    "Tidelog's own: where /metrics (for Prometheus) and /ready are served, such as HTTP://127.0.0.1:9464; "
    "nowhere unless set.",
)
METRICS_TOPICS_MAX = ConfigKey(
    "metrics.topics.max",
    INT,
    "500",
    "Tidelog's own: how many topics have metrics of their own; the rest are added up under one name.",
    minimum=0,
)
METRICS_GROUP_TOPICS_MAX = ConfigKey(
    "metrics.group.topics.max",
    INT,
    "1000",
    "Tidelog's own: how many pairs of a group and a topic have a lag of their own; the rest are added up under one "
    "name, and counted.",
    minimum=0,
)
METRICS_PARTITIONS_ENABLE = ConfigKey(
    "metrics.partitions.enable",
    BOOLEAN,
    "false",
    "Tidelog's own: whether each partition has metrics of its own: size, offsets, high watermark, ISR.",
)
SLOW_REQUEST_LOG_MS = ConfigKey(
    "slow.request.log.ms",
    LONG,
    "-1",
    "Tidelog's own: a request that takes this long, or longer, is logged with its phases; -1 for none.",
    minimum=-1,
)
LOGGING_FORMAT = ConfigKey(
    "logging.format",
    STRING,
    "text",
    "Tidelog's own: what the node's own log to stderr looks like.",
    choices=("text", "json"),
)

NUM_PARTITIONS = ConfigKey(
    "num.partitions", INT, "1", "The partitions of a topic that was created without saying how many.", minimum=1
)
DEFAULT_REPLICATION_FACTOR = ConfigKey(
    "default.replication.factor",
    INT,
    "1",
    "The replicas of a topic that was created without saying how many.",
    minimum=1,
    maximum=32767,
)
AUTO_CREATE_TOPICS_ENABLE = ConfigKey(
    "auto.create.topics.enable", BOOLEAN, "true", "Whether asking for a topic that is not there creates it."
)
DELETE_TOPIC_ENABLE = ConfigKey("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted.")
COMPRESSION_TYPE = ConfigKey(
    "compression.type", STRING, "producer", "Of topics that do not set it.", choices=COMPRESSION_TYPES, is_dynamic=True
)
COMPRESSION_GZIP_LEVEL = ConfigKey(
    "compression.gzip.level", INT, "-1", "Of topics that do not set it.", choices=GZIP_LEVELS, is_dynamic=True
)
COMPRESSION_LZ4_LEVEL = ConfigKey(
    "compression.lz4.level", INT, "9", "Of topics that do not set it.", minimum=1, maximum=17, is_dynamic=True
)
COMPRESSION_ZSTD_LEVEL = ConfigKey(
    "compression.zstd.level", INT, "3", "Of topics that do not set it.", minimum=-131072, maximum=22, is_dynamic=True
)
MESSAGE_MAX_BYTES = ConfigKey(
    "message.max.bytes", INT, "1048588", "max.message.bytes of topics that do not set it.", minimum=0, is_dynamic=True
)
MIN_INSYNC_REPLICAS = ConfigKey(
    "min.insync.replicas",
    INT,
    "1",
    "Of topics that do not set it. A file counts only where the metadata says nothing yet: all go by the same.",
    minimum=1,
    is_dynamic=True,
)
UNCLEAN_LEADER_ELECTION_ENABLE = ConfigKey(
    "unclean.leader.election.enable",
    BOOLEAN,
    "false",
    "Of topics that do not set it, and are not internal ones.",
    is_dynamic=True,
)

LOG_CLEANUP_POLICY = ConfigKey(
    "log.cleanup.policy",
    LIST,
    "delete",
    "cleanup.policy, unless set.",
    choices=("delete", "compact"),
    may_be_empty=True,
    is_dynamic=True,
)
LOG_SEGMENT_BYTES = ConfigKey(
    "log.segment.bytes", INT, "1073741824", "segment.bytes of topics that do not set it.", minimum=14, is_dynamic=True
)
LOG_ROLL_MS = ConfigKey(
    "log.roll.ms", LONG.or_none, None, "segment.ms of topics that do not set it.", minimum=1, is_dynamic=True
)
LOG_ROLL_HOURS = ConfigKey("log.roll.hours", INT, "168", "The same in hours, unless log.roll.ms is set.", minimum=1)
LOG_ROLL_JITTER_MS = ConfigKey(
    "log.roll.jitter.ms",
    LONG.or_none,
    None,
    "segment.jitter.ms of topics that do not set it.",
    minimum=0,
    is_dynamic=True,
)
LOG_ROLL_JITTER_HOURS = ConfigKey(
    "log.roll.jitter.hours", INT, "0", "The same in hours, unless log.roll.jitter.ms is set.", minimum=0
)
LOG_RETENTION_MS = ConfigKey(
    "log.retention.ms",
    LONG.or_none,
    None,
    "retention.ms of topics that do not set it; -1 for no limit.",
    minimum=-1,
    is_dynamic=True,
)
LOG_RETENTION_MINUTES = ConfigKey(
    "log.retention.minutes", INT.or_none, None, "The same in minutes, unless log.retention.ms is set.", minimum=-1
)
LOG_RETENTION_HOURS = ConfigKey(
    "log.retention.hours", INT, "168", "The same in hours, unless one of the others is set.", minimum=-1
)
LOG_RETENTION_BYTES = ConfigKey(
    "log.retention.bytes",
    LONG,
    "-1",
    "retention.bytes of topics that do not set it; -1 for no limit.",
    minimum=-1,
    is_dynamic=True,
)
LOG_RETENTION_CHECK_INTERVAL_MS = ConfigKey(
    "log.retention.check.interval.ms", LONG, "300000", "How often old segments are looked for.", minimum=1
)
LOG_SEGMENT_DELETE_DELAY_MS = ConfigKey(
    "log.segment.delete.delay.ms",
    LONG,
    "60000",
    "file.delete.delay.ms, unless set; of removed logs too.",
    minimum=0,
    is_dynamic=True,
)
LOG_INDEX_SIZE_MAX_BYTES = ConfigKey(
    "log.index.size.max.bytes", INT, "10485760", "segment.index.bytes, unless set.", minimum=12, is_dynamic=True
)
LOG_INDEX_INTERVAL_BYTES = ConfigKey(
    "log.index.interval.bytes", INT, "4096", "index.interval.bytes, unless set.", minimum=0, is_dynamic=True
)
LOG_FLUSH_INTERVAL_MESSAGES = ConfigKey(
    "log.flush.interval.messages", LONG, str(INT64_MAX), "flush.messages, unless set.", minimum=1, is_dynamic=True
)
LOG_FLUSH_INTERVAL_MS = ConfigKey(
    "log.flush.interval.ms", LONG.or_none, None, "flush.ms of topics that do not set it.", minimum=0, is_dynamic=True
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = ConfigKey(
    "log.flush.scheduler.interval.ms",
    LONG,
    str(INT64_MAX),
    "flush.ms, unless log.flush.interval.ms is set.",
    minimum=0,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey(
    "log.flush.offset.checkpoint.interval.ms", INT, "60000", "How often recovery points are written.", minimum=0
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey(
    "log.flush.start.offset.checkpoint.interval.ms", INT, "60000", "How often log starts are written.", minimum=0
)
LOG_MESSAGE_TIMESTAMP_TYPE = ConfigKey(
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    "message.timestamp.type, unless set.",
    choices=("CreateTime", "LogAppendTime"),
    is_dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = ConfigKey(
    "log.message.timestamp.before.max.ms",
    LONG,
    str(INT64_MAX),
    "message.timestamp.before.max.ms, unless set.",
    minimum=0,
    is_dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = ConfigKey(
    "log.message.timestamp.after.max.ms",
    LONG,
    "3600000",
    "message.timestamp.after.max.ms, unless set.",
    minimum=0,
    is_dynamic=True,
)
PRODUCER_ID_EXPIRATION_MS = ConfigKey(
    "producer.id.expiration.ms",
    INT,
    "86400000",
    "How long a partition remembers the sequence numbers of a producer that went quiet.",
    minimum=1,
    is_dynamic=True,
)
LOG_CLEANER_ENABLE = ConfigKey(
    "log.cleaner.enable", BOOLEAN, "true", "Whether topics with cleanup.policy compact are compacted at all."
)
LOG_CLEANER_BACKOFF_MS = ConfigKey(
    "log.cleaner.backoff.ms",
    LONG,
    "15000",
    "How long the cleaner rests when no log is worth compacting, before it looks again.",
    minimum=1,
    is_dynamic=True,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = ConfigKey(
    "log.cleaner.dedupe.buffer.size",
    LONG,
    "134217728",
    "How much memory the keys of the log that is being compacted may take, in bytes: 96 and its own length for "
    "each. A log with more keys is compacted in several turns.",
    minimum=1024,
    is_dynamic=True,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = ConfigKey(
    "log.cleaner.io.max.bytes.per.second",
    DOUBLE,
    "1.7976931348623157E308",
    "How many bytes a second the cleaner may read and write, on the average of a compaction.",
    minimum=1,
    is_dynamic=True,
)
LOG_SCRUBBER_IO_MAX_BYTES_PER_SECOND = ConfigKey(
    "log.scrubber.io.max.bytes.per.second",
    LONG,
    "1048576",
    "How many bytes of closed segments a second the node looks through for rot, which it repairs from other replicas. "
    "0 turns it off. Tidelog's own.",
    minimum=0,
    is_dynamic=True,
)
LOG_CLEANER_DELETE_RETENTION_MS = ConfigKey(
    "log.cleaner.delete.retention.ms", LONG, "86400000", "delete.retention.ms, unless set.", minimum=0, is_dynamic=True
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = ConfigKey(
    "log.cleaner.min.compaction.lag.ms", LONG, "0", "min.compaction.lag.ms, unless set.", minimum=0, is_dynamic=True
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = ConfigKey(
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    str(INT64_MAX),
    "max.compaction.lag.ms, unless set.",
    minimum=1,
    is_dynamic=True,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = ConfigKey(
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    "0.5",
    "min.cleanable.dirty.ratio, unless set.",
    minimum=0,
    maximum=1,
    is_dynamic=True,
)

BROKER_CONFIGS: tuple[ConfigKey[Any], ...] = (
    *keys_in(globals()),
    *COORDINATOR_CONFIGS,
    *QUOTA_CONFIGS,
    *CLUSTER_CONFIGS,
    *GROUP_CONSUMER_CONFIGS,
    *SHARE_COORDINATOR_CONFIGS,
    *GROUP_SHARE_CONFIGS,
    *TLS_CONFIGS,
    *AUTHORIZATION_CONFIGS,
    *LIMIT_CONFIGS,
    *TOKEN_CONFIGS,
    *SASL_CONFIGS,
    *UNSERVED_CONFIGS,
)
