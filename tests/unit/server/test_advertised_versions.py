"""What listeners advertise: a version that a message declares is offered to nobody before something serves it."""

from __future__ import annotations

import pytest

from tidelog.server.api.apis import advertised
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER, INTER_BROKER
from tidelog.wire import APIS, ApiKey
from tidelog.wire.api import OWN_SINCE

CLIENTS = (BROKER, INTER_BROKER)
BROKERS = (INTER_BROKER,)
QUORUM = (CONTROLLER,)
BOTH = (BROKER, INTER_BROKER, CONTROLLER)

ADVERTISED = {
    ApiKey.PRODUCE: (0, 13, CLIENTS),
    ApiKey.FETCH: (4, 18, BOTH),
    ApiKey.LIST_OFFSETS: (1, 11, CLIENTS),
    ApiKey.METADATA: (0, 13, CLIENTS),
    ApiKey.STOP_REPLICA: (0, 4, BROKERS),
    ApiKey.OFFSET_COMMIT: (2, 10, CLIENTS),
    ApiKey.OFFSET_FETCH: (1, 10, CLIENTS),
    ApiKey.FIND_COORDINATOR: (0, 6, CLIENTS),
    ApiKey.JOIN_GROUP: (0, 9, CLIENTS),
    ApiKey.HEARTBEAT: (0, 4, CLIENTS),
    ApiKey.LEAVE_GROUP: (0, 5, CLIENTS),
    ApiKey.SYNC_GROUP: (0, 5, CLIENTS),
    ApiKey.DESCRIBE_GROUPS: (0, 6, CLIENTS),
    ApiKey.LIST_GROUPS: (0, 5, CLIENTS),
    ApiKey.SASL_HANDSHAKE: (0, 1, BOTH),
    ApiKey.API_VERSIONS: (0, 4, BOTH),
    ApiKey.CREATE_TOPICS: (2, 7, BOTH),
    ApiKey.DELETE_TOPICS: (1, 6, BOTH),
    ApiKey.DELETE_RECORDS: (0, 2, CLIENTS),
    ApiKey.INIT_PRODUCER_ID: (0, 5, CLIENTS),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5, CLIENTS),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4, CLIENTS),
    ApiKey.END_TXN: (0, 5, CLIENTS),
    ApiKey.WRITE_TXN_MARKERS: (1, 2, CLIENTS),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5, CLIENTS),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0, CLIENTS),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0, CLIENTS),
    ApiKey.LIST_TRANSACTIONS: (0, 2, CLIENTS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4, CLIENTS),
    ApiKey.DESCRIBE_ACLS: (1, 3, BOTH),
    ApiKey.CREATE_ACLS: (1, 3, BOTH),
    ApiKey.DELETE_ACLS: (1, 3, BOTH),
    ApiKey.DESCRIBE_CONFIGS: (1, 4, BOTH),
    ApiKey.ALTER_CONFIGS: (0, 2, BOTH),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2, CLIENTS),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5, CLIENTS),
    ApiKey.SASL_AUTHENTICATE: (0, 2, BOTH),
    ApiKey.CREATE_PARTITIONS: (0, 3, BOTH),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3, BOTH),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2, BOTH),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2, BOTH),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3, CLIENTS),
    ApiKey.DELETE_GROUPS: (0, 2, CLIENTS),
    ApiKey.ELECT_LEADERS: (0, 2, BOTH),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1, BOTH),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1, BOTH),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0, BOTH),
    ApiKey.OFFSET_DELETE: (0, 0, CLIENTS),
    ApiKey.VOTE: (0, 2, QUORUM),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1, QUORUM),
    ApiKey.END_QUORUM_EPOCH: (0, 1, QUORUM),
    ApiKey.DESCRIBE_QUORUM: (0, 2, BOTH),
    ApiKey.ALTER_PARTITION: (2, 3, QUORUM),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1, CLIENTS),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1, BOTH),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0, BOTH),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0, BOTH),
    ApiKey.UPDATE_FEATURES: (0, 2, BOTH),
    ApiKey.ENVELOPE: (0, 0, QUORUM),
    ApiKey.FETCH_SNAPSHOT: (0, 1, QUORUM),
    ApiKey.DESCRIBE_CLUSTER: (0, 2, BOTH),
    ApiKey.BROKER_REGISTRATION: (0, 4, QUORUM),
    ApiKey.BROKER_HEARTBEAT: (0, 2, QUORUM),
    ApiKey.UNREGISTER_BROKER: (0, 0, BOTH),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0, QUORUM),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1, CLIENTS),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1, CLIENTS),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0, QUORUM),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0, QUORUM),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1, CLIENTS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0, CLIENTS),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1, CLIENTS),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1, CLIENTS),
    ApiKey.SHARE_FETCH: (1, 2, CLIENTS),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2, CLIENTS),
    ApiKey.ADD_RAFT_VOTER: (0, 1, BOTH),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0, BOTH),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0, QUORUM),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0, CLIENTS),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0, CLIENTS),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1, CLIENTS),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0, CLIENTS),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1, CLIENTS),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1, CLIENTS),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0, CLIENTS),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0, CLIENTS),
    ApiKey.DESCRIBE_LOSSES: (0, 0, CLIENTS),
    ApiKey.ACKNOWLEDGE_LOSSES: (0, 0, BOTH),
    ApiKey.TELL_LOSSES: (0, 0, QUORUM),
    ApiKey.FETCH_LOST_RECORDS: (0, 0, CLIENTS),
    ApiKey.DESCRIBE_TOLD_READERS: (0, 1, CLIENTS),
    ApiKey.REPORT_RESUMPTIONS: (0, 0, CLIENTS),
}
"""By API: the lowest and the highest version, and the listeners that offer it."""


@pytest.mark.parametrize("role", [BROKER, INTER_BROKER, CONTROLLER])
def test_a_listener_advertises_what_is_served(role: str) -> None:
    expected = {key: (lowest, highest) for key, (lowest, highest, roles) in ADVERTISED.items() if role in roles}
    assert {ApiKey(key): (lowest, highest) for key, lowest, highest in advertised(role)} == expected


@pytest.mark.parametrize("role", [BROKER, INTER_BROKER, CONTROLLER])
def test_what_kafka_has_not_is_told_to_our_own_alone(role: str) -> None:
    told = {key for key, _, _ in advertised(role, with_own=False)}
    assert max(told) < OWN_SINCE
    assert told == {key for key, _, _ in advertised(role) if key < OWN_SINCE}


def test_nothing_is_spoken_that_is_not_declared() -> None:
    assert [known for known in APIS.values() if known.max_version > known.declared_max_version] == []
