"""Every setting of a node: what a Kafka-style .properties file may say, and what it does here."""

from __future__ import annotations

from dataclasses import replace

from tidelog.metadata.config_key import INT32_MAX, INT64_MAX, ConfigKey, ConfigType
from tidelog.metadata.topic_configs import COMPRESSION_TYPES, GZIP_LEVELS

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST, SHORT, CLASS = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.SHORT, ConfigType.CLASS


def _key(name: str, kind: ConfigType, default: str | None, doc: str, **rest: object) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, **rest)  # type: ignore[arg-type]


def _ignored(name: str, kind: ConfigType, default: str | None, why: str, **rest: object) -> ConfigKey:
    return _key(name, kind, default, f"Taken, without effect: {why}", has_effect=False, **rest)


_ONE_LOOP = "a node is one process with one event loop; run more nodes to use more cores."
_ONE_CLEANER = "the node compacts one log at a time."
_ONE_NODE = "a cluster of one node has no other to wait for."
_NO_COORDINATORS = "transactions are not served in this release."
_SYSTEM_BUFFERS = "the buffers of sockets are as large as the system makes them."
_NO_SHARE_GROUPS = "share groups are not served."

_NODE: tuple[ConfigKey, ...] = (
    _key("node.id", INT, None, "This node's id, unlike any other's. Required.", minimum=0),
    _key("broker.id", INT, None, "The older name of node.id; both must agree.", minimum=0),
    _key(
        "process.roles",
        LIST,
        None,
        "What this node is: broker, controller, or both. Required.",
        choices=("broker", "controller"),
    ),
    _key("listeners", LIST, "PLAINTEXT://:9092", "Where this node listens: NAME://HOST:PORT, with a comma between."),
    _key("advertised.listeners", LIST, None, "What clients are told to connect to, if not what listeners says."),
    _key(
        "listener.security.protocol.map",
        LIST,
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "Which protocol each listener name speaks: NAME:PROTOCOL, with a comma between. PLAINTEXT is served.",
    ),
    _key("controller.listener.names", LIST, None, "The listeners that controllers use. Required of a controller."),
    _key(
        "inter.broker.listener.name",
        STRING,
        "PLAINTEXT",
        "The listener on which brokers ask each other for records; who has none of this name is asked on its first.",
    ),
    _key(
        "controller.quorum.voters",
        LIST,
        None,
        "The voters of the metadata quorum: ID@HOST:PORT, with a comma between; the same at every node.",
    ),
    _key(
        "controller.quorum.bootstrap.servers",
        LIST,
        None,
        "Where to find the voters of a quorum that keeps them in its log: HOST:PORT, with a comma between.",
    ),
    _key("broker.rack", STRING, None, "Where this broker stands; replicas are spread over racks."),
    _key("log.dir", STRING, "/tmp/kafka-logs", "The directory of this node's logs, if log.dirs does not say."),  # noqa: S108
    _key(
        "log.dirs",
        LIST,
        None,
        "The directories of this node's logs, with a comma between. A new partition goes where there are fewest; if a "
        "directory fails, the others serve on.",
    ),
    _key("metadata.log.dir", STRING, None, "The directory of the metadata log, if not the first of log.dirs."),
)

_CONNECTIONS: tuple[ConfigKey, ...] = (
    _key(
        "socket.request.max.bytes",
        INT,
        "104857600",
        "The largest request; a larger one closes its connection.",
        minimum=1,
    ),
    _ignored(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        _SYSTEM_BUFFERS,
        minimum=-1,
    ),
    _ignored(
        "socket.receive.buffer.bytes",
        INT,
        "102400",
        _SYSTEM_BUFFERS,
        minimum=-1,
    ),
    _key("socket.listen.backlog.size", INT, "50", "How many connections may wait to be accepted.", minimum=1),
    _key(
        "connections.max.idle.ms", LONG, "600000", "An idle connection is closed after this; -1 for never.", minimum=-1
    ),
    _key(
        "max.connections",
        INT,
        str(INT32_MAX),
        "The most connections of clients, all listeners together; further ones wait until one closes.",
        minimum=1,  # at 0 nobody could connect to change it back
    ),
    _key(
        "max.connections.per.ip",
        INT,
        str(INT32_MAX),
        "The most connections from one address; further ones are closed at once.",
        minimum=0,
    ),
    _key(
        "max.connections.per.ip.overrides",
        LIST,
        "",
        "Other limits for some addresses: ADDRESS:LIMIT, with a comma between.",
    ),
    _key(
        "fetch.max.bytes", INT, "57671680", "The most that one fetch is answered with, whatever it asks.", minimum=1024
    ),
    _key(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "How many readers may have a fetch session; the others say with each fetch all that they follow.",
        minimum=0,
    ),
    _ignored("num.network.threads", INT, "3", _ONE_LOOP, minimum=1),
    _ignored("num.io.threads", INT, "8", _ONE_LOOP, minimum=1),
    _ignored("background.threads", INT, "10", _ONE_LOOP, minimum=1),
    _key(
        "num.replica.fetchers",
        INT,
        "1",
        "How many fetches at a time followers here have at each of the other nodes; partitions are spread over them.",
        minimum=1,
    ),
    _ignored("num.recovery.threads.per.data.dir", INT, "2", _ONE_LOOP, minimum=1),
)

_OBSERVABILITY: tuple[ConfigKey, ...] = (
    _key(
        "metrics.listener",
        STRING,
        None,
        "Tidelog's own: where /metrics (for Prometheus) and /ready are served, such as HTTP://127.0.0.1:9464; "
        "nowhere unless set.",
    ),
    _key(
        "metrics.topics.max",
        INT,
        "500",
        "Tidelog's own: how many topics have metrics of their own; the rest are added up under one name.",
        minimum=0,
    ),
    _key(
        "metrics.partitions.enable",
        BOOLEAN,
        "false",
        "Tidelog's own: whether each partition has metrics of its own: size, offsets, high watermark, ISR.",
    ),
    _key(
        "slow.request.log.ms",
        LONG,
        "-1",
        "Tidelog's own: a request that takes this long, or longer, is logged with its phases; -1 for none.",
        minimum=-1,
    ),
    _key(
        "logging.format",
        STRING,
        "text",
        "Tidelog's own: what the node's own log to stderr looks like.",
        choices=("text", "json"),
    ),
)

_TOPICS: tuple[ConfigKey, ...] = (
    _key("num.partitions", INT, "1", "The partitions of a topic that was created without saying how many.", minimum=1),
    _key(
        "default.replication.factor",
        INT,
        "1",
        "The replicas of a topic that was created without saying how many.",
        minimum=1,
        maximum=32767,
    ),
    _key("auto.create.topics.enable", BOOLEAN, "true", "Whether asking for a topic that is not there creates it."),
    _key("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    _key("compression.type", STRING, "producer", "Of topics that do not set it.", choices=COMPRESSION_TYPES),
    _key("compression.gzip.level", INT, "-1", "Of topics that do not set it.", choices=GZIP_LEVELS),
    _key("compression.lz4.level", INT, "9", "Of topics that do not set it.", minimum=1, maximum=17),
    _key("compression.zstd.level", INT, "3", "Of topics that do not set it.", minimum=-131072, maximum=22),
    _key("message.max.bytes", INT, "1048588", "max.message.bytes of topics that do not set it.", minimum=0),
    _key(
        "min.insync.replicas",
        INT,
        "1",
        "Of topics that do not set it. A file counts only where the metadata says nothing yet: all go by the same.",
        minimum=1,
    ),
    _key(
        "unclean.leader.election.enable", BOOLEAN, "false", "Of topics that do not set it, and are not internal ones."
    ),
)

_LOGS: tuple[ConfigKey, ...] = (
    _key("log.cleanup.policy", LIST, "delete", "cleanup.policy, unless set.", choices=("delete", "compact")),
    _key("log.segment.bytes", INT, "1073741824", "segment.bytes of topics that do not set it.", minimum=14),
    _key("log.roll.ms", LONG, None, "segment.ms of topics that do not set it.", minimum=1),
    _key("log.roll.hours", INT, "168", "The same in hours, unless log.roll.ms is set.", minimum=1),
    _ignored("log.roll.jitter.ms", LONG, None, "each partition rolls by its own records.", minimum=0),
    _ignored("log.roll.jitter.hours", INT, "0", "each partition rolls by its own records.", minimum=0),
    _key("log.retention.ms", LONG, None, "retention.ms of topics that do not set it; -1 for no limit.", minimum=-1),
    _key("log.retention.minutes", INT, None, "The same in minutes, unless log.retention.ms is set.", minimum=-1),
    _key("log.retention.hours", INT, "168", "The same in hours, unless one of the others is set.", minimum=-1),
    _key(
        "log.retention.bytes", LONG, "-1", "retention.bytes of topics that do not set it; -1 for no limit.", minimum=-1
    ),
    _key("log.retention.check.interval.ms", LONG, "300000", "How often old segments are looked for.", minimum=1),
    _key("log.segment.delete.delay.ms", LONG, "60000", "file.delete.delay.ms, unless set.", minimum=0),
    _key("log.index.size.max.bytes", INT, "10485760", "segment.index.bytes, unless set.", minimum=12),
    _key("log.index.interval.bytes", INT, "4096", "index.interval.bytes, unless set.", minimum=0),
    _key("log.flush.interval.messages", LONG, str(INT64_MAX), "flush.messages, unless set.", minimum=1),
    _key("log.flush.interval.ms", LONG, None, "flush.ms of topics that do not set it.", minimum=0),
    _key(
        "log.flush.scheduler.interval.ms",
        LONG,
        str(INT64_MAX),
        "flush.ms, unless log.flush.interval.ms is set.",
        minimum=0,
    ),
    _key("log.flush.offset.checkpoint.interval.ms", INT, "60000", "How often recovery points are written.", minimum=0),
    _key("log.flush.start.offset.checkpoint.interval.ms", INT, "60000", "How often log starts are written.", minimum=0),
    _key(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "message.timestamp.type, unless set.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    _key(
        "log.message.timestamp.before.max.ms",
        LONG,
        str(INT64_MAX),
        "message.timestamp.before.max.ms, unless set.",
        minimum=0,
    ),
    _key(
        "log.message.timestamp.after.max.ms", LONG, "3600000", "message.timestamp.after.max.ms, unless set.", minimum=0
    ),
    _key("log.preallocate", BOOLEAN, "false", "preallocate, unless set.", choices=("false",)),
    _key(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "How long a partition remembers the sequence numbers of a producer that went quiet.",
        minimum=1,
    ),
    _key("log.cleaner.enable", BOOLEAN, "true", "Whether topics with cleanup.policy compact are compacted at all."),
    _ignored("log.cleaner.threads", INT, "1", _ONE_CLEANER, minimum=0),
    _key(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How long the cleaner rests when no log is worth compacting, before it looks again.",
        minimum=1,
    ),
    _key(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        "How much memory the keys of the log that is being compacted may take, in bytes: 160 and its own length for "
        "each. A log with more keys is compacted in several turns.",
        minimum=1024,
    ),
    _key(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        "How many bytes a second the cleaner may read and write, on the average of a compaction.",
        minimum=1,
    ),
    _ignored("log.cleaner.io.buffer.size", INT, "524288", "the cleaner reads and writes 1 MiB at a time.", minimum=0),
    _ignored(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        "0.9",
        "the keys are kept whole, in a table that grows.",
        minimum=0,
        maximum=1,
    ),
    _key("log.cleaner.delete.retention.ms", LONG, "86400000", "delete.retention.ms, unless set.", minimum=0),
    _key("log.cleaner.min.compaction.lag.ms", LONG, "0", "min.compaction.lag.ms, unless set.", minimum=0),
    _key("log.cleaner.max.compaction.lag.ms", LONG, str(INT64_MAX), "max.compaction.lag.ms, unless set.", minimum=1),
    _key(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        "0.5",
        "min.cleanable.dirty.ratio, unless set.",
        minimum=0,
        maximum=1,
    ),
)

_REPLICATION: tuple[ConfigKey, ...] = (
    _key(
        "broker.session.timeout.ms",
        INT,
        "9000",
        "How long a broker may be silent before the controller lets others lead in its place. The same at every node.",
        minimum=1,
    ),
    _key(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        "How often a broker tells the controller that it is there.",
        minimum=1,
    ),
    _key(
        "initial.broker.registration.timeout.ms",
        INT,
        "60000",
        "How long a broker that starts waits for a controller to take it in; then it ends.",
        minimum=1,
    ),
    _key(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a broker that stops has its leaderships given to others first.",
    ),
    _key(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "A follower that has not caught up with its leader for so long leaves the in-sync replicas.",
        minimum=1,
    ),
    _key(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "How long a leader may hold back the fetch of a follower that has all there is.",
        minimum=0,
    ),
    _key(
        "replica.fetch.min.bytes",
        INT,
        "1",
        "How much must be there before a follower's fetch is answered early.",
        minimum=0,
    ),
    _key(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "The most of one partition that a follower fetches at a time, but for a first batch that is larger.",
        minimum=0,
    ),
    _key(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "The most of all partitions that a follower fetches at a time, but for a first batch that is larger.",
        minimum=0,
    ),
    _key(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "The longest pause of a follower whose leader refused it or did not answer; the first is shorter.",
        minimum=0,
    ),
    _key(
        "replica.socket.timeout.ms",
        INT,
        "30000",
        "How long the answer to a follower may be overdue before its connection is given up.",
        minimum=1,
    ),
    _key(
        "replica.selector.class",
        CLASS,
        None,
        "How a leader chooses the replica that a consumer is to read from. Without one, consumers read from leaders; "
        "RackAwareReplicaSelector sends them to a replica in their own rack.",
        choices=(
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
        why_not_others="selectors of one's own would be Java classes",
    ),
    _key(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written.",
        minimum=1,
    ),
    _ignored(
        "metadata.consistency.wait.ms.max",
        LONG,
        "5000",
        _ONE_NODE,
        minimum=0,
    ),
)

_QUORUM: tuple[ConfigKey, ...] = (
    _key(
        "controller.quorum.election.timeout.ms",
        INT,
        "1000",
        "How long a candidate of the metadata quorum waits for votes, up to twice.",
        minimum=1,
    ),
    _key(
        "controller.quorum.election.backoff.max.ms",
        INT,
        "1000",
        "The longest that a candidate waits after an election that it lost.",
        minimum=0,
    ),
    _key(
        "controller.quorum.fetch.timeout.ms",
        INT,
        "2000",
        "A voter that heard nothing of its leader for so long asks for an election; a leader that no majority fetched "
        "from for one and a half times that leads no more.",
        minimum=1,
    ),
    _key(
        "controller.quorum.request.timeout.ms",
        INT,
        "2000",
        "How long a request between nodes of the metadata quorum may take.",
        minimum=1,
    ),
    _key(
        "controller.quorum.retry.backoff.ms",
        INT,
        "20",
        "How long such a request waits before it is tried again.",
        minimum=0,
    ),
    _key(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        "20971520",
        "A snapshot of the metadata is made after so many bytes of its log; what lies before the last but one goes.",
        minimum=1,
    ),
    _key(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        "A snapshot of the metadata is made this long after the last one, if it changed; 0 for none of that kind.",
        minimum=0,
    ),
)

_COORDINATORS: tuple[ConfigKey, ...] = (
    _key(
        "offsets.topic.num.partitions",
        INT,
        "50",
        "The partitions of __consumer_offsets, over which groups are spread. It cannot be changed once the topic is "
        "there.",
        minimum=1,
    ),
    _key(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        "The replicas of __consumer_offsets. Unless it is set, a cluster of fewer brokers takes as many as it has.",
        minimum=1,
    ),
    _key("offsets.topic.segment.bytes", INT, "104857600", "segment.bytes of __consumer_offsets.", minimum=1),
    _key(
        "offsets.retention.minutes",
        INT,
        "10080",
        "How long offsets are kept after their group became empty, or after the last commit of a group that never had "
        "members.",
        minimum=1,
    ),
    _key(
        "offsets.retention.check.interval.ms", LONG, "600000", "How often offsets to forget are looked for.", minimum=1
    ),
    _key("offset.metadata.max.bytes", INT, "4096", "The most that a commit may say beside an offset.", minimum=0),
    _key(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long the first generation of a group waits for more members.",
        minimum=0,
    ),
    _key("group.min.session.timeout.ms", INT, "6000", "The shortest session time-out that members may ask.", minimum=1),
    _key(
        "group.max.session.timeout.ms", INT, "1800000", "The longest session time-out that members may ask.", minimum=1
    ),
    _key("group.max.size", INT, "2147483647", "The most members that a group may have.", minimum=1),
    _ignored("transaction.state.log.num.partitions", INT, "50", _NO_COORDINATORS, minimum=1),
    _ignored("transaction.state.log.replication.factor", SHORT, "3", _NO_COORDINATORS, minimum=1),
    _ignored("transaction.state.log.min.isr", INT, "2", _NO_COORDINATORS, minimum=1),
    _ignored("transaction.state.log.segment.bytes", INT, "104857600", _NO_COORDINATORS, minimum=1),
    _ignored("transaction.max.timeout.ms", INT, "900000", _NO_COORDINATORS, minimum=1),
    _ignored("transactional.id.expiration.ms", INT, "604800000", _NO_COORDINATORS, minimum=1),
    _ignored("share.coordinator.state.topic.replication.factor", SHORT, "3", _NO_SHARE_GROUPS, minimum=1),
    _ignored("share.coordinator.state.topic.min.isr", SHORT, "2", _NO_SHARE_GROUPS, minimum=1),
)

_DYNAMIC = {
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
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
    "log.preallocate",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "max.connections",
    "max.connections.per.ip",
    "message.max.bytes",
    "min.insync.replicas",
    "producer.id.expiration.ms",
    "unclean.leader.election.enable",
}
"""What can be changed while brokers run: the defaults of topics, and what the broker looks up each time."""

BROKER_CONFIGS: tuple[ConfigKey, ...] = tuple(
    replace(key, is_dynamic=key.name in _DYNAMIC)
    for key in (*_NODE, *_QUORUM, *_CONNECTIONS, *_OBSERVABILITY, *_TOPICS, *_LOGS, *_REPLICATION, *_COORDINATORS)
)
