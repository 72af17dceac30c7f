"""Settings of what the nodes of a cluster do together: replication, and the quorum of the metadata."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import BOOLEAN, INT, INT32_MAX, INT64_MAX, LONG, STRING, ConfigKey, keys_in

LEADER_REPLICATION_THROTTLED_RATE = ConfigKey(
    "leader.replication.throttled.rate",
    LONG,
    str(INT64_MAX),
    "How many bytes a second this broker sends to followers of what leader.replication.throttled.replicas of the "
    "topics names. Who is in sync is not held back, but counts. It has to be above what producers write there, or "
    "no new replica ever catches up.",
    minimum=0,
    is_dynamic=True,
)
FOLLOWER_REPLICATION_THROTTLED_RATE = ConfigKey(
    "follower.replication.throttled.rate",
    LONG,
    str(INT64_MAX),
    "How many bytes a second this broker fetches from leaders of what follower.replication.throttled.replicas of "
    "the topics names. What has caught up is not held back, but counts.",
    minimum=0,
    is_dynamic=True,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = ConfigKey(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    LONG,
    str(INT64_MAX),
    "How many bytes a second this broker copies to move replicas from one of its log directories to another.",
    minimum=0,
    is_dynamic=True,
)

BROKER_SESSION_TIMEOUT_MS = ConfigKey(
    "broker.session.timeout.ms",
    INT,
    "9000",
    "How long a broker may be silent before the controller lets others lead in its place. The same at every node.",
    minimum=1,
)
BROKER_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "broker.heartbeat.interval.ms",
    INT,
    "2000",
    "How often a broker tells the controller that it is there.",
    minimum=1,
)
BROKER_EARLY_FENCING_ENABLE = ConfigKey(
    "broker.early.fencing.enable",
    BOOLEAN,
    "true",
    "Whether the controller lets others lead at once in place of a broker whose connection closed and whose port "
    "refuses connections. Not for networks in which something else refuses them in its name.",
)
CONTROLLER_PARTITION_CHANGES_MAX = ConfigKey(
    "controller.partition.changes.max",
    INT,
    "100",
    "Tidelog's own: in so many partitions a decision of the controller changes leaders and replicas in sync at "
    "most, where they have nothing to do with each other; the rest follow in further decisions, few at a time.",
    minimum=1,
    maximum=10_000,
)
LOSSES_RETAINED_MAX = ConfigKey(
    "losses.retained.max",
    INT,
    "20000",
    "Tidelog's own: how many entries the account of losses keeps. Of more, those go that are closed, then those that "
    "are open; the oldest first. The same at every controller.",
    minimum=1,
    is_dynamic=True,
)
LOSSES_KEPT_BYTES = ConfigKey(
    "losses.kept.bytes",
    LONG,
    "1073741824",
    "Tidelog's own: of what is cut off logs after unclean elections, so many bytes are kept at this broker, to be "
    "exported. Of more, the oldest go. They go with their topic in any case.",
    minimum=0,
    is_dynamic=True,
)
LOSSES_RETENTION_MS = ConfigKey(
    "losses.retention.ms",
    LONG,
    "31536000000",
    "Tidelog's own: how long an entry of the account of losses is kept; older ones go when the next is opened. -1 for "
    "ever. The same at every controller.",
    minimum=-1,
    is_dynamic=True,
)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = ConfigKey(
    "initial.broker.registration.timeout.ms",
    INT,
    "60000",
    "How long a broker that starts waits for a controller to take it in; then it ends. The time counts while a leader "
    "of the metadata quorum is known. While nobody leads, the node waits without a limit and says so in its log: other "
    "nodes may need it to elect a leader. In Kafka the time counts from the start.",
    minimum=1,
)
CONTROLLED_SHUTDOWN_ENABLE = ConfigKey(
    "controlled.shutdown.enable",
    BOOLEAN,
    "true",
    "Whether a broker that stops has its leaderships given to others first.",
)
AUTO_LEADER_REBALANCE_ENABLE = ConfigKey(
    "auto.leader.rebalance.enable",
    BOOLEAN,
    "true",
    "Whether the active controller gives leaderships back to the first replica of each partition, once it is in "
    "sync again. The same at every controller.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = ConfigKey(
    "leader.imbalance.check.interval.seconds",
    LONG,
    "300",
    "How often it does so.",
    minimum=1,
    maximum=INT32_MAX,
)
REPLICA_LAG_TIME_MAX_MS = ConfigKey(
    "replica.lag.time.max.ms",
    LONG,
    "30000",
    "A follower that has not caught up with its leader for so long leaves the in-sync replicas.",
    minimum=1,
)
REPLICA_FETCH_WAIT_MAX_MS = ConfigKey(
    "replica.fetch.wait.max.ms",
    INT,
    "500",
    "How long a leader may hold back the fetch of a follower that has all there is.",
    minimum=0,
)
REPLICA_FETCH_MIN_BYTES = ConfigKey(
    "replica.fetch.min.bytes",
    INT,
    "1",
    "How much must be there before a follower's fetch is answered early.",
    minimum=0,
)
REPLICA_FETCH_MAX_BYTES = ConfigKey(
    "replica.fetch.max.bytes",
    INT,
    "1048576",
    "The most of one partition that a follower fetches at a time, but for a first batch that is larger.",
    minimum=0,
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = ConfigKey(
    "replica.fetch.response.max.bytes",
    INT,
    "10485760",
    "The most of all partitions that a follower fetches at a time, but for a first batch that is larger.",
    minimum=0,
)
LEADER_IN_DOUBT_MAX_MS = ConfigKey(
    "leader.in.doubt.max.ms",
    INT,
    "1000",
    "Tidelog's own: so long an answer waits for news that names a leader whose connection has just closed. 0 for not; "
    "then no leader is asked whether it is there either.",
    minimum=0,
    maximum=10_000,
)
REPLICA_FETCH_BACKOFF_MS = ConfigKey(
    "replica.fetch.backoff.ms",
    INT,
    "1000",
    "The longest pause of a follower whose leader refused it or did not answer; the first is shorter.",
    minimum=0,
)
REPLICA_SOCKET_TIMEOUT_MS = ConfigKey(
    "replica.socket.timeout.ms",
    INT,
    "30000",
    "How long the answer to a follower may be overdue before its connection is given up.",
    minimum=1,
)
REPLICA_SELECTOR_CLASS = ConfigKey(
    "replica.selector.class",
    STRING.or_none,
    None,
    "How a leader chooses the replica that a consumer is to read from. Without one, consumers read from leaders; "
    "RackAwareReplicaSelector sends them to a replica in their own rack.",
    choices=(
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "org.apache.kafka.common.replica.LeaderSelector",
    ),
    why="selectors of one's own would be Java classes",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = ConfigKey(
    "replica.high.watermark.checkpoint.interval.ms",
    LONG,
    "5000",
    "How often high watermarks are written.",
    minimum=1,
)
METADATA_CONSISTENCY_WAIT_MS_MAX = ConfigKey(
    "metadata.consistency.wait.ms.max",
    LONG,
    "5000",
    "Tidelog's own: how long a request waits for the metadata that its consistency token speaks of (KIP-1243). "
    "What has not come by then is refused with STALE_METADATA, or its connection is closed.",
    minimum=0,
)

CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = ConfigKey(
    "controller.quorum.election.timeout.ms",
    INT,
    "1000",
    "How long a candidate of the metadata quorum waits for votes, up to twice.",
    minimum=1,
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = ConfigKey(
    "controller.quorum.election.backoff.max.ms",
    INT,
    "1000",
    "The longest that a candidate waits after an election that it lost.",
    minimum=0,
)
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = ConfigKey(
    "controller.quorum.fetch.timeout.ms",
    INT,
    "2000",
    "A voter that heard nothing of its leader for so long asks for an election; a leader that no majority fetched "
    "from for one and a half times that leads no more.",
    minimum=1,
)
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = ConfigKey(
    "controller.quorum.request.timeout.ms",
    INT,
    "2000",
    "How long a request between nodes of the metadata quorum may take.",
    minimum=1,
)
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = ConfigKey(
    "controller.quorum.retry.backoff.ms",
    INT,
    "20",
    "How long such a request waits before it is tried again.",
    minimum=0,
)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = ConfigKey(
    "metadata.log.max.record.bytes.between.snapshots",
    LONG,
    "20971520",
    "A snapshot of the metadata is made after so many bytes of its log; what lies before the last but one goes.",
    minimum=1,
)
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = ConfigKey(
    "metadata.log.max.snapshot.interval.ms",
    LONG,
    "3600000",
    "A snapshot of the metadata is made this long after the last one, if it changed; 0 for none of that kind.",
    minimum=0,
)

CLUSTER_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())
