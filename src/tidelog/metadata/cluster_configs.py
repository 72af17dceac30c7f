"""Settings of what the nodes of a cluster do together: replication, and the quorum of the metadata."""

from __future__ import annotations

from tidelog.metadata.config_key import INT32_MAX, INT64_MAX, ConfigKey, ConfigType

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST, SHORT, CLASS = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.SHORT, ConfigType.CLASS

THROTTLE_CONFIGS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "leader.replication.throttled.rate",
        LONG,
        str(INT64_MAX),
        "How many bytes a second this broker sends to followers of what leader.replication.throttled.replicas of the "
        "topics names. Who is in sync is not held back, but counts. It has to be above what producers write there, or "
        "no new replica ever catches up.",
        minimum=0,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        LONG,
        str(INT64_MAX),
        "How many bytes a second this broker fetches from leaders of what follower.replication.throttled.replicas of "
        "the topics names. What has caught up is not held back, but counts.",
        minimum=0,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        str(INT64_MAX),
        "How many bytes a second this broker copies to move replicas from one of its log directories to another.",
        minimum=0,
    ),
)

REPLICATION_CONFIGS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "broker.session.timeout.ms",
        INT,
        "9000",
        "How long a broker may be silent before the controller lets others lead in its place. The same at every node.",
        minimum=1,
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        "How often a broker tells the controller that it is there.",
        minimum=1,
    ),
    ConfigKey(
        "broker.early.fencing.enable",
        BOOLEAN,
        "true",
        "Whether the controller lets others lead at once in place of a broker whose connection closed and whose port "
        "refuses connections. Not for networks in which something else refuses them in its name.",
    ),
    ConfigKey(
        "controller.partition.changes.max",
        INT,
        "1000",
        "Tidelog's own: in so many partitions a decision of the controller changes leaders and replicas in sync at "
        "most, where they have nothing to do with each other; the rest follow in further decisions.",
        minimum=1,
        maximum=10_000,
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        INT,
        "60000",
        "How long a broker that starts waits for a controller to take it in; then it ends.",
        minimum=1,
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a broker that stops has its leaderships given to others first.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether the active controller gives leaderships back to the first replica of each partition, once it is in "
        "sync again. The same at every controller.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often it does so.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "A follower that has not caught up with its leader for so long leaves the in-sync replicas.",
        minimum=1,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "How long a leader may hold back the fetch of a follower that has all there is.",
        minimum=0,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        INT,
        "1",
        "How much must be there before a follower's fetch is answered early.",
        minimum=0,
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "The most of one partition that a follower fetches at a time, but for a first batch that is larger.",
        minimum=0,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "The most of all partitions that a follower fetches at a time, but for a first batch that is larger.",
        minimum=0,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        "The longest pause of a follower whose leader refused it or did not answer; the first is shorter.",
        minimum=0,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        INT,
        "30000",
        "How long the answer to a follower may be overdue before its connection is given up.",
        minimum=1,
    ),
    ConfigKey(
        "replica.selector.class",
        STRING,
        None,
        "How a leader chooses the replica that a consumer is to read from. Without one, consumers read from leaders; "
        "RackAwareReplicaSelector sends them to a replica in their own rack.",
        choices=(
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
        why="selectors of one's own would be Java classes",
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often high watermarks are written.",
        minimum=1,
    ),
    ConfigKey(
        "metadata.consistency.wait.ms.max",
        LONG,
        "5000",
        "Tidelog's own: how long a request waits for the metadata that its consistency token speaks of (KIP-1243). "
        "What has not come by then is refused with STALE_METADATA, or its connection is closed.",
        minimum=0,
    ),
)

QUORUM_CONFIGS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "controller.quorum.election.timeout.ms",
        INT,
        "1000",
        "How long a candidate of the metadata quorum waits for votes, up to twice.",
        minimum=1,
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms",
        INT,
        "1000",
        "The longest that a candidate waits after an election that it lost.",
        minimum=0,
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        INT,
        "2000",
        "A voter that heard nothing of its leader for so long asks for an election; a leader that no majority fetched "
        "from for one and a half times that leads no more.",
        minimum=1,
    ),
    ConfigKey(
        "controller.quorum.request.timeout.ms",
        INT,
        "2000",
        "How long a request between nodes of the metadata quorum may take.",
        minimum=1,
    ),
    ConfigKey(
        "controller.quorum.retry.backoff.ms",
        INT,
        "20",
        "How long such a request waits before it is tried again.",
        minimum=0,
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        "20971520",
        "A snapshot of the metadata is made after so many bytes of its log; what lies before the last but one goes.",
        minimum=1,
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        "3600000",
        "A snapshot of the metadata is made this long after the last one, if it changed; 0 for none of that kind.",
        minimum=0,
    ),
)
