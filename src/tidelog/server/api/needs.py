"""What each API needs of an authorizer, in one table: which operations on which resources, and who looks at it.

A new API has a row here. What anybody may ask has none: `ApiVersions`, `SaslHandshake`, `SaslAuthenticate`.
`docs/security.md` says the same to operators.

Kafka: `KafkaApis`, `ControllerApis`.
"""

from __future__ import annotations

from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.server.api.authorization import (
    AtControllers,
    InHandler,
    Needs,
    cluster,
    named_rows,
    shown,
    topic_rows,
    whole,
)
from tidelog.server.api.division import Division
from tidelog.server.api.node_identity import USERS, VOTERS
from tidelog.server.api.special_needs import (
    ADDED_PARTITIONS,
    ALTERED_CONFIGS,
    COORDINATORS,
    CREATED_CONFIGS,
    CREATED_TOPICS,
    DELETED_TOPICS,
    DESCRIBED_ASSIGNMENTS,
    DESCRIBED_CONFIGS,
    DESCRIBED_TRANSACTIONS,
    FETCH_BY_FOLLOWERS,
    LOST_RECORDS,
    MARKERS,
    METADATA_OF_ALL,
    METADATA_ROWS,
    MOVES,
    OFFSETS_OF_ONE_GROUP,
    ONE_COORDINATOR,
    PRODUCE_TRANSACTIONAL,
    PRODUCE_UNANSWERED,
    PRODUCER_ID,
    REPLACED_CONFIGS,
    RESUMPTIONS,
    STOPS,
    SUBSCRIPTION,
    TRANSACTION,
    VISIBLE_TOPICS,
)
from tidelog.server.api.topics_of_groups import TopicsOfGroups
from tidelog.wire.api import ApiKey

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, TRANSACTIONAL_ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID

GROUPS = Division("groups", "groups")
OFFSETS_BY_TOPIC = Division("topics", "topics", Division("partition_indexes", "partitions"))
SHARE_OFFSETS_BY_TOPIC = Division("topics", "topics", Division("partitions", "partitions"))
ALTERED_SHARE_OFFSETS = Division("topics", "responses", Division("partitions", "partitions"))
DELETED_SHARE_OFFSETS = Division("topics", "responses")

OF_NODES = (cluster(CLUSTER_ACTION),)
"""What only nodes ask each other."""

OF_TOKENS = (InHandler("may_create, delegation_tokens"),)
"""Whose a token is decides, beside the rules."""

NEEDS: dict[int, Needs] = {
    ApiKey.PRODUCE: (PRODUCE_UNANSWERED, PRODUCE_TRANSACTIONAL, topic_rows(WRITE)),
    ApiKey.FETCH: (AtControllers(cluster(CLUSTER_ACTION), FETCH_BY_FOLLOWERS), InHandler("FetchReading")),
    ApiKey.LIST_OFFSETS: (topic_rows(DESCRIBE),),
    ApiKey.METADATA: (METADATA_ROWS, METADATA_OF_ALL),
    ApiKey.STOP_REPLICA: (STOPS,),
    ApiKey.OFFSET_COMMIT: (whole(READ, GROUP, "group_id"), topic_rows(READ)),
    ApiKey.OFFSET_FETCH: (OFFSETS_OF_ONE_GROUP, named_rows(DESCRIBE, GROUP, GROUPS), TopicsOfGroups(OFFSETS_BY_TOPIC)),
    ApiKey.FIND_COORDINATOR: (ONE_COORDINATOR, COORDINATORS),
    ApiKey.JOIN_GROUP: (whole(READ, GROUP, "group_id"),),
    ApiKey.HEARTBEAT: (whole(READ, GROUP, "group_id"),),
    ApiKey.LEAVE_GROUP: (whole(READ, GROUP, "group_id"),),
    ApiKey.SYNC_GROUP: (whole(READ, GROUP, "group_id"),),
    ApiKey.DESCRIBE_GROUPS: (named_rows(DESCRIBE, GROUP),),
    ApiKey.LIST_GROUPS: (shown(DESCRIBE, GROUP, "groups", "group_id", unless=DESCRIBE),),
    ApiKey.CREATE_TOPICS: (CREATED_TOPICS, CREATED_CONFIGS),
    ApiKey.DELETE_TOPICS: (DELETED_TOPICS,),
    ApiKey.DELETE_RECORDS: (topic_rows(DELETE),),
    ApiKey.INIT_PRODUCER_ID: (PRODUCER_ID,),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (topic_rows(DESCRIBE, unless=CLUSTER_ACTION),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (TRANSACTION, ADDED_PARTITIONS),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),
        whole(READ, GROUP, "group_id"),
    ),
    ApiKey.END_TXN: (whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),),
    ApiKey.WRITE_TXN_MARKERS: (MARKERS,),
    ApiKey.TXN_OFFSET_COMMIT: (
        whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),
        whole(READ, GROUP, "group_id"),
        topic_rows(READ),
    ),
    ApiKey.DESCRIBE_ACLS: (cluster(DESCRIBE),),
    ApiKey.CREATE_ACLS: (cluster(ALTER, division=Division("creations", "results")),),
    ApiKey.DELETE_ACLS: (cluster(ALTER, division=Division("filters", "filter_results")),),
    ApiKey.CREATE_DELEGATION_TOKEN: OF_TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: OF_TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: OF_TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: OF_TOKENS,
    ApiKey.DESCRIBE_CONFIGS: (DESCRIBED_CONFIGS,),
    ApiKey.ALTER_CONFIGS: (REPLACED_CONFIGS,),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (MOVES,),
    ApiKey.DESCRIBE_LOG_DIRS: (cluster(DESCRIBE),),
    ApiKey.CREATE_PARTITIONS: (topic_rows(ALTER),),
    ApiKey.DELETE_GROUPS: (named_rows(DELETE, GROUP),),
    ApiKey.ELECT_LEADERS: (cluster(ALTER, in_rows=True),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ALTERED_CONFIGS,),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (cluster(ALTER, in_rows=True),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (cluster(DESCRIBE),),
    ApiKey.OFFSET_DELETE: (whole(DELETE, GROUP, "group_id"), topic_rows(READ)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (cluster(DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (cluster(ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (cluster(DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (USERS,),
    ApiKey.VOTE: OF_NODES,
    ApiKey.BEGIN_QUORUM_EPOCH: OF_NODES,
    ApiKey.END_QUORUM_EPOCH: OF_NODES,
    ApiKey.DESCRIBE_QUORUM: (cluster(DESCRIBE),),
    ApiKey.ALTER_PARTITION: OF_NODES,
    ApiKey.UPDATE_FEATURES: (cluster(ALTER),),
    ApiKey.ENVELOPE: OF_NODES,
    ApiKey.FETCH_SNAPSHOT: OF_NODES,
    ApiKey.DESCRIBE_CLUSTER: (InHandler("authorized_operations"),),
    ApiKey.DESCRIBE_PRODUCERS: (topic_rows(READ),),
    ApiKey.BROKER_REGISTRATION: OF_NODES,
    ApiKey.BROKER_HEARTBEAT: OF_NODES,
    ApiKey.UNREGISTER_BROKER: (cluster(ALTER),),
    ApiKey.DESCRIBE_TRANSACTIONS: (named_rows(DESCRIBE, TRANSACTIONAL_ID), DESCRIBED_TRANSACTIONS),
    ApiKey.LIST_TRANSACTIONS: (shown(DESCRIBE, TRANSACTIONAL_ID, "transaction_states", "transactional_id"),),
    ApiKey.ALLOCATE_PRODUCER_IDS: OF_NODES,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (whole(READ, GROUP, "group_id"), SUBSCRIPTION),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (named_rows(DESCRIBE, GROUP), DESCRIBED_ASSIGNMENTS),
    ApiKey.CONTROLLER_REGISTRATION: OF_NODES,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: OF_NODES,
    ApiKey.LIST_CONFIG_RESOURCES: (cluster(DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        VISIBLE_TOPICS,
        topic_rows(DESCRIBE, division=Division("topics", "topics"))._replace(is_sorted=True),
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (whole(READ, GROUP, "group_id"), SUBSCRIPTION),
    ApiKey.SHARE_GROUP_DESCRIBE: (named_rows(DESCRIBE, GROUP), DESCRIBED_ASSIGNMENTS),
    ApiKey.SHARE_FETCH: (whole(READ, GROUP, "group_id"), InHandler("ShareReading, Acknowledgements")),
    ApiKey.SHARE_ACKNOWLEDGE: (whole(READ, GROUP, "group_id"), InHandler("Acknowledgements")),
    ApiKey.ADD_RAFT_VOTER: (cluster(ALTER), VOTERS),
    ApiKey.REMOVE_RAFT_VOTER: (cluster(ALTER),),
    ApiKey.UPDATE_RAFT_VOTER: OF_NODES,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: OF_NODES,
    ApiKey.READ_SHARE_GROUP_STATE: OF_NODES,
    ApiKey.WRITE_SHARE_GROUP_STATE: OF_NODES,
    ApiKey.DELETE_SHARE_GROUP_STATE: OF_NODES,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: OF_NODES,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (named_rows(DESCRIBE, GROUP, GROUPS), TopicsOfGroups(SHARE_OFFSETS_BY_TOPIC)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        whole(READ, GROUP, "group_id"),
        topic_rows(READ, division=ALTERED_SHARE_OFFSETS),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        whole(DELETE, GROUP, "group_id"),
        topic_rows(READ, division=DELETED_SHARE_OFFSETS),
    ),
    ApiKey.DESCRIBE_LOSSES: (shown(DESCRIBE, TOPIC, "losses", "topic"),),
    ApiKey.ACKNOWLEDGE_LOSSES: (cluster(ALTER),),
    ApiKey.TELL_LOSSES: OF_NODES,
    ApiKey.FETCH_LOST_RECORDS: (LOST_RECORDS,),
    ApiKey.DESCRIBE_TOLD_READERS: (shown(DESCRIBE, TOPIC, "readers", "topic"),),
    ApiKey.REPORT_RESUMPTIONS: (RESUMPTIONS,),
}
