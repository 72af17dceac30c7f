"""Every setting of a node: what a Kafka-style .properties file may say, and what it does here."""

from __future__ import annotations

from dataclasses import replace

from tidelog.metadata.cluster_configs import QUORUM_CONFIGS, REPLICATION_CONFIGS, THROTTLE_CONFIGS
from tidelog.metadata.config_key import INT32_MAX, INT64_MAX, ConfigKey, ConfigType
from tidelog.metadata.topic_configs import COMPRESSION_TYPES, GZIP_LEVELS
from tidelog.metadata.unserved_configs import UNSERVED_CONFIGS

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST, SHORT, CLASS = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.SHORT, ConfigType.CLASS

_NODE: tuple[ConfigKey, ...] = (
    ConfigKey("node.id", INT, None, "This node's id, unlike any other's. Required.", minimum=0),
    ConfigKey("broker.id", INT, "-1", "The older name of node.id; both must agree. -1 for unset.", minimum=-1),
    ConfigKey(
        "process.roles",
        LIST,
        None,
        "What this node is: broker, controller, or both. Required.",
        choices=("broker", "controller"),
    ),
    ConfigKey(
        "listeners",
        LIST,
        "PLAINTEXT://:9092",
        "Where this node listens: NAME://HOST:PORT, with a comma between. While it runs others can come and go beside "
        "those of its file; clients are told of those of the file alone, as with Kafka.",
    ),
    ConfigKey("advertised.listeners", LIST, None, "What clients are told to connect to, if not what listeners says."),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which protocol each listener name speaks: NAME:PROTOCOL, with a comma between. PLAINTEXT is served. Unless "
        "it is set, listeners of controllers speak PLAINTEXT.",
    ),
    ConfigKey("controller.listener.names", LIST, None, "The listeners that controllers use. Required of a controller."),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener on which brokers ask each other for records, PLAINTEXT unless set; who has none of this name is "
        "asked on its first. "
        "If clients have another listener, controllers stop replicas through it; otherwise by the metadata alone.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        LIST,
        "",
        "The voters of the metadata quorum: ID@HOST:PORT, with a comma between; the same at every node.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        LIST,
        "",
        "Where to find the voters of a quorum that keeps them in its log: HOST:PORT, with a comma between.",
    ),
    ConfigKey("broker.rack", STRING, None, "Where this broker stands; replicas are spread over racks."),
    ConfigKey("log.dir", LIST, "/tmp/kafka-logs", "The directory of this node's logs, if log.dirs does not say."),  # noqa: S108
    ConfigKey(
        "log.dirs",
        LIST,
        None,
        "The directories of this node's logs, with a comma between. A new partition goes where there are fewest; if a "
        "directory fails, the others serve on.",
    ),
    ConfigKey("metadata.log.dir", STRING, None, "The directory of the metadata log, if not the first of log.dirs."),
)

_CONNECTIONS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        "104857600",
        "The largest request; a larger one closes its connection.",
        minimum=1,
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        "134217728",
        "The memory of requests of clients that have come in part, or wait for metadata, all connections together. "
        "What finds no room is read later; a request that stood still for a second while others waited closes its "
        "connection. One request may go beyond the limit. Kafka has no limit by default; -1 for none.",
        minimum=-1,
    ),
    ConfigKey(
        "inter.node.queued.max.request.bytes",
        LONG,
        "134217728",
        "Tidelog's own: the same for the listeners of controllers, and for that of inter.broker.listener.name where "
        "clients have another one.",
        minimum=-1,
    ),
    ConfigKey(
        "queued.max.response.bytes",
        LONG,
        "134217728",
        "Tidelog's own: the memory of answers that clients have not taken, all connections together; beyond it the "
        "connection is closed whose peer took nothing for longest. As much again is for other nodes; -1 for no limit.",
        minimum=-1,
    ),
    ConfigKey("socket.listen.backlog.size", INT, "50", "How many connections may wait to be accepted.", minimum=1),
    ConfigKey(
        "connections.max.idle.ms", LONG, "600000", "An idle connection is closed after this; -1 for never.", minimum=-1
    ),
    ConfigKey(
        "max.connections",
        INT,
        str(INT32_MAX),
        "The most connections of clients, all listeners together; further ones wait until one closes.",
        minimum=1,  # at 0 nobody could connect to change it back
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        str(INT32_MAX),
        "The most connections from one address; further ones are closed at once.",
        minimum=0,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for some addresses: ADDRESS:LIMIT, with a comma between.",
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "The most partitions that one DescribeTopicPartitions is answered with; the client asks on.",
        minimum=1,
    ),
    ConfigKey(
        "fetch.max.bytes", INT, "57671680", "The most that one fetch is answered with, whatever it asks.", minimum=1024
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "How many readers may have a fetch session; the others say with each fetch all that they follow.",
        minimum=0,
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.partitions",
        INT,
        "250000",
        "Tidelog's own: how many partitions all fetch sessions may follow together, a few hundred bytes each.",
        minimum=0,
    ),
    ConfigKey(
        "num.replica.fetchers",
        INT,
        "1",
        "How many fetches at a time followers here have at each of the other nodes; partitions are spread over them.",
        minimum=1,
    ),
)

_OBSERVABILITY: tuple[ConfigKey, ...] = (
    ConfigKey(
        "metrics.listener",
        STRING,
        None,
        "Tidelog's own: where /metrics (for Prometheus) and /ready are served, such as HTTP://127.0.0.1:9464; "
        "nowhere unless set.",
    ),
    ConfigKey(
        "metrics.topics.max",
        INT,
        "500",
        "Tidelog's own: how many topics have metrics of their own; the rest are added up under one name.",
        minimum=0,
    ),
    ConfigKey(
        "metrics.partitions.enable",
        BOOLEAN,
        "false",
        "Tidelog's own: whether each partition has metrics of its own: size, offsets, high watermark, ISR.",
    ),
    ConfigKey(
        "slow.request.log.ms",
        LONG,
        "-1",
        "Tidelog's own: a request that takes this long, or longer, is logged with its phases; -1 for none.",
        minimum=-1,
    ),
    ConfigKey(
        "logging.format",
        STRING,
        "text",
        "Tidelog's own: what the node's own log to stderr looks like.",
        choices=("text", "json"),
    ),
)

_TOPICS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "num.partitions", INT, "1", "The partitions of a topic that was created without saying how many.", minimum=1
    ),
    ConfigKey(
        "default.replication.factor",
        INT,
        "1",
        "The replicas of a topic that was created without saying how many.",
        minimum=1,
        maximum=32767,
    ),
    ConfigKey("auto.create.topics.enable", BOOLEAN, "true", "Whether asking for a topic that is not there creates it."),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    ConfigKey("compression.type", STRING, "producer", "Of topics that do not set it.", choices=COMPRESSION_TYPES),
    ConfigKey("compression.gzip.level", INT, "-1", "Of topics that do not set it.", choices=GZIP_LEVELS),
    ConfigKey("compression.lz4.level", INT, "9", "Of topics that do not set it.", minimum=1, maximum=17),
    ConfigKey("compression.zstd.level", INT, "3", "Of topics that do not set it.", minimum=-131072, maximum=22),
    ConfigKey("message.max.bytes", INT, "1048588", "max.message.bytes of topics that do not set it.", minimum=0),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        "Of topics that do not set it. A file counts only where the metadata says nothing yet: all go by the same.",
        minimum=1,
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", "Of topics that do not set it, and are not internal ones."
    ),
)

_LOGS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "log.cleanup.policy",
        LIST,
        "delete",
        "cleanup.policy, unless set.",
        choices=("delete", "compact"),
        may_be_empty=True,
    ),
    ConfigKey("log.segment.bytes", INT, "1073741824", "segment.bytes of topics that do not set it.", minimum=14),
    ConfigKey("log.roll.ms", LONG, None, "segment.ms of topics that do not set it.", minimum=1),
    ConfigKey("log.roll.hours", INT, "168", "The same in hours, unless log.roll.ms is set.", minimum=1),
    ConfigKey(
        "log.retention.ms", LONG, None, "retention.ms of topics that do not set it; -1 for no limit.", minimum=-1
    ),
    ConfigKey("log.retention.minutes", INT, None, "The same in minutes, unless log.retention.ms is set.", minimum=-1),
    ConfigKey("log.retention.hours", INT, "168", "The same in hours, unless one of the others is set.", minimum=-1),
    ConfigKey(
        "log.retention.bytes", LONG, "-1", "retention.bytes of topics that do not set it; -1 for no limit.", minimum=-1
    ),
    ConfigKey("log.retention.check.interval.ms", LONG, "300000", "How often old segments are looked for.", minimum=1),
    ConfigKey(
        "log.segment.delete.delay.ms",
        LONG,
        "60000",
        "file.delete.delay.ms, unless set; of removed logs too.",
        minimum=0,
    ),
    ConfigKey("log.index.size.max.bytes", INT, "10485760", "segment.index.bytes, unless set.", minimum=12),
    ConfigKey("log.index.interval.bytes", INT, "4096", "index.interval.bytes, unless set.", minimum=0),
    ConfigKey("log.flush.interval.messages", LONG, str(INT64_MAX), "flush.messages, unless set.", minimum=1),
    ConfigKey("log.flush.interval.ms", LONG, None, "flush.ms of topics that do not set it.", minimum=0),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        LONG,
        str(INT64_MAX),
        "flush.ms, unless log.flush.interval.ms is set.",
        minimum=0,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms", INT, "60000", "How often recovery points are written.", minimum=0
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms", INT, "60000", "How often log starts are written.", minimum=0
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "message.timestamp.type, unless set.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms",
        LONG,
        str(INT64_MAX),
        "message.timestamp.before.max.ms, unless set.",
        minimum=0,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms", LONG, "3600000", "message.timestamp.after.max.ms, unless set.", minimum=0
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "How long a partition remembers the sequence numbers of a producer that went quiet.",
        minimum=1,
    ),
    ConfigKey(
        "log.cleaner.enable", BOOLEAN, "true", "Whether topics with cleanup.policy compact are compacted at all."
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How long the cleaner rests when no log is worth compacting, before it looks again.",
        minimum=1,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        "How much memory the keys of the log that is being compacted may take, in bytes: 160 and its own length for "
        "each. A log with more keys is compacted in several turns.",
        minimum=1024,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        "How many bytes a second the cleaner may read and write, on the average of a compaction.",
        minimum=1,
    ),
    ConfigKey("log.cleaner.delete.retention.ms", LONG, "86400000", "delete.retention.ms, unless set.", minimum=0),
    ConfigKey("log.cleaner.min.compaction.lag.ms", LONG, "0", "min.compaction.lag.ms, unless set.", minimum=0),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms", LONG, str(INT64_MAX), "max.compaction.lag.ms, unless set.", minimum=1
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        "0.5",
        "min.cleanable.dirty.ratio, unless set.",
        minimum=0,
        maximum=1,
    ),
)

_COORDINATORS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "offsets.topic.num.partitions",
        INT,
        "50",
        "The partitions of __consumer_offsets, over which groups are spread. It cannot be changed once the topic is "
        "there.",
        minimum=1,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        "The replicas of __consumer_offsets. Unless it is set, a cluster of fewer brokers takes as many as it has.",
        minimum=1,
    ),
    ConfigKey("offsets.topic.segment.bytes", INT, "104857600", "segment.bytes of __consumer_offsets.", minimum=1),
    ConfigKey(
        "offsets.retention.minutes",
        INT,
        "10080",
        "How long offsets are kept after their group became empty, or after the last commit of a group that never had "
        "members.",
        minimum=1,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms", LONG, "600000", "How often offsets to forget are looked for.", minimum=1
    ),
    ConfigKey("offset.metadata.max.bytes", INT, "4096", "The most that a commit may say beside an offset.", minimum=0),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long the first generation of a group waits for more members.",
        minimum=0,
    ),
    ConfigKey(
        "group.min.session.timeout.ms", INT, "6000", "The shortest session time-out that members may ask.", minimum=1
    ),
    ConfigKey(
        "group.max.session.timeout.ms", INT, "1800000", "The longest session time-out that members may ask.", minimum=1
    ),
    ConfigKey("group.max.size", INT, "2147483647", "The most members that a group may have.", minimum=1),
    ConfigKey(
        "group.coordinator.memory.bytes",
        LONG,
        "134217728",
        "Tidelog's own: about the memory of all groups that a node coordinates: their members' names, metadata and "
        "assignments. A member that finds no room is refused (GROUP_MAX_SIZE_REACHED).",
        minimum=1,
    ),
)

_DYNAMIC = {
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "min.insync.replicas",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "unclean.leader.election.enable",
}
"""What of them can be changed while brokers run: the defaults of topics, and what the broker looks up each time."""

_SERVED = (
    *_NODE,
    *QUORUM_CONFIGS,
    *_CONNECTIONS,
    *_OBSERVABILITY,
    *_TOPICS,
    *_LOGS,
    *REPLICATION_CONFIGS,
    *THROTTLE_CONFIGS,
    *_COORDINATORS,
)

BROKER_CONFIGS: tuple[ConfigKey, ...] = (
    *(replace(key, is_dynamic=key.name in _DYNAMIC) for key in _SERVED),
    *UNSERVED_CONFIGS,
)
