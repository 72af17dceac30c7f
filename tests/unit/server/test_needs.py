"""What each API needs of an authorizer: nothing denied comes to a handler, and every version can say that it is denied.

Handlers are guarded_apis here, which answer each row that comes to them.
"""

from __future__ import annotations

import pytest

from support.fixtures.guarded_api import VERSIONS, GuardedApi, codes_in, request_of
from support.fixtures.scripted_authorizer import Grant, ScriptedAuthorizer
from tidelog.base.errors import Code
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.server.api.apis import APIS
from tidelog.server.api.needs import NEEDS
from tidelog.server.api.rights import CODES
from tidelog.wire.api import ApiKey, api

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
CREATE = AclOperation.CREATE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def on_topics(operation: AclOperation) -> Grant:
    return operation, AclResourceType.TOPIC, None


def on_groups(operation: AclOperation) -> Grant:
    return operation, AclResourceType.GROUP, None


def on_ids(operation: AclOperation) -> Grant:
    return operation, AclResourceType.TRANSACTIONAL_ID, None


def on_cluster(operation: AclOperation) -> Grant:
    return operation, AclResourceType.CLUSTER, None


NODES = (on_cluster(CLUSTER_ACTION),)
GRANTS: dict[ApiKey, tuple[Grant, ...]] = {
    ApiKey.PRODUCE: (on_topics(WRITE),),
    ApiKey.FETCH: NODES,  # the request is of a follower
    ApiKey.LIST_OFFSETS: (on_topics(DESCRIBE),),
    ApiKey.METADATA: (on_topics(DESCRIBE),),
    ApiKey.STOP_REPLICA: NODES,
    ApiKey.OFFSET_COMMIT: (on_groups(READ), on_topics(READ)),
    ApiKey.OFFSET_FETCH: (on_groups(DESCRIBE), on_topics(DESCRIBE)),
    ApiKey.FIND_COORDINATOR: (on_groups(DESCRIBE),),
    ApiKey.JOIN_GROUP: (on_groups(READ),),
    ApiKey.HEARTBEAT: (on_groups(READ),),
    ApiKey.LEAVE_GROUP: (on_groups(READ),),
    ApiKey.SYNC_GROUP: (on_groups(READ),),
    ApiKey.DESCRIBE_GROUPS: (on_groups(DESCRIBE),),
    ApiKey.CREATE_TOPICS: (on_topics(CREATE), on_topics(DESCRIBE_CONFIGS)),
    ApiKey.DELETE_TOPICS: (on_topics(DELETE),),
    ApiKey.DELETE_RECORDS: (on_topics(DELETE),),
    ApiKey.INIT_PRODUCER_ID: (on_ids(WRITE),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (on_topics(DESCRIBE),),
    ApiKey.ADD_PARTITIONS_TO_TXN: NODES,
    ApiKey.ADD_OFFSETS_TO_TXN: (on_ids(WRITE), on_groups(READ)),
    ApiKey.END_TXN: (on_ids(WRITE),),
    ApiKey.WRITE_TXN_MARKERS: NODES,
    ApiKey.TXN_OFFSET_COMMIT: (on_ids(WRITE), on_groups(READ), on_topics(READ)),
    ApiKey.DESCRIBE_CONFIGS: (on_topics(DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CONFIGS: (on_topics(ALTER_CONFIGS),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (on_cluster(ALTER),),
    ApiKey.DESCRIBE_LOG_DIRS: (on_cluster(DESCRIBE),),
    ApiKey.CREATE_PARTITIONS: (on_topics(ALTER),),
    ApiKey.DELETE_GROUPS: (on_groups(DELETE),),
    ApiKey.ELECT_LEADERS: (on_cluster(ALTER),),
    ApiKey.DESCRIBE_ACLS: (on_cluster(DESCRIBE),),
    ApiKey.CREATE_ACLS: (on_cluster(ALTER),),
    ApiKey.DELETE_ACLS: (on_cluster(ALTER),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (on_cluster(DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (on_cluster(ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (on_cluster(DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (on_cluster(ALTER),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (on_topics(ALTER_CONFIGS),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (on_cluster(ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (on_cluster(DESCRIBE),),
    ApiKey.OFFSET_DELETE: (on_groups(DELETE), on_topics(READ)),
    ApiKey.VOTE: NODES,
    ApiKey.BEGIN_QUORUM_EPOCH: NODES,
    ApiKey.END_QUORUM_EPOCH: NODES,
    ApiKey.DESCRIBE_QUORUM: (on_cluster(DESCRIBE),),
    ApiKey.ALTER_PARTITION: NODES,
    ApiKey.UPDATE_FEATURES: (on_cluster(ALTER),),
    ApiKey.ENVELOPE: NODES,
    ApiKey.FETCH_SNAPSHOT: NODES,
    ApiKey.DESCRIBE_PRODUCERS: (on_topics(READ),),
    ApiKey.BROKER_REGISTRATION: NODES,
    ApiKey.BROKER_HEARTBEAT: NODES,
    ApiKey.UNREGISTER_BROKER: (on_cluster(ALTER),),
    ApiKey.DESCRIBE_TRANSACTIONS: (on_ids(DESCRIBE),),
    ApiKey.ALLOCATE_PRODUCER_IDS: NODES,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (on_groups(READ), on_topics(DESCRIBE)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (on_groups(DESCRIBE),),
    ApiKey.CONTROLLER_REGISTRATION: NODES,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: NODES,
    ApiKey.LIST_CONFIG_RESOURCES: (on_cluster(DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (on_topics(DESCRIBE),),
    ApiKey.SHARE_GROUP_HEARTBEAT: (on_groups(READ), on_topics(DESCRIBE)),
    ApiKey.SHARE_GROUP_DESCRIBE: (on_groups(DESCRIBE),),
    ApiKey.SHARE_FETCH: (on_groups(READ),),
    ApiKey.SHARE_ACKNOWLEDGE: (on_groups(READ),),
    ApiKey.ADD_RAFT_VOTER: (on_cluster(ALTER),),
    ApiKey.REMOVE_RAFT_VOTER: (on_cluster(ALTER),),
    ApiKey.UPDATE_RAFT_VOTER: NODES,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: NODES,
    ApiKey.READ_SHARE_GROUP_STATE: NODES,
    ApiKey.WRITE_SHARE_GROUP_STATE: NODES,
    ApiKey.DELETE_SHARE_GROUP_STATE: NODES,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: NODES,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (on_groups(DESCRIBE), on_topics(DESCRIBE)),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (on_groups(READ), on_topics(READ)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (on_groups(DELETE), on_topics(READ)),
    ApiKey.ACKNOWLEDGE_LOSSES: (on_cluster(ALTER),),
    ApiKey.TELL_LOSSES: NODES,
    ApiKey.FETCH_LOST_RECORDS: (on_topics(READ),),
}
"""What is enough for the latest version of a request that names something of everything."""

DENIED_AS = {ApiKey.FETCH: Code.TOPIC_AUTHORIZATION_FAILED}
"""Where Kafka's code is not that of the resource."""

DENIALS = set(CODES.values())
IDS = [f"{key.name.lower()}-{version}" for key, version in VERSIONS]

SHOWN = {
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_LOSSES,
    ApiKey.DESCRIBE_TOLD_READERS,
    ApiKey.REPORT_RESUMPTIONS,
}
"""What leaves out what is denied, and says nothing of it."""
SAYS_NOTHING = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""No place for an error, but beside directories."""
ASKS_ITSELF = {
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=IDS)
def test_nothing_that_is_denied_comes_to_a_handler(key: ApiKey, version: int, is_long: bool) -> None:
    guarded_api = GuardedApi(ScriptedAuthorizer())
    answer = guarded_api.ask(key, version, request_of(key, version), is_long=is_long)
    if key in SHOWN | ASKS_ITSELF:
        assert len(guarded_api.requests) == 1
        return
    if key == ApiKey.METADATA:
        (passed,) = guarded_api.requests  # the brokers are for everybody
        assert passed.topics == []
    else:
        assert not guarded_api.requests
    found = set(codes_in(answer)) - {0}
    assert found or (key, version) in SAYS_NOTHING
    assert found <= DENIALS


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=IDS)
def test_what_is_allowed_comes_to_its_handler_as_it_is(key: ApiKey, version: int) -> None:
    authorizer = ScriptedAuthorizer(allows_all=True)
    guarded_api = GuardedApi(authorizer)
    request = request_of(key, version)
    answer = guarded_api.ask(key, version, request)
    (passed,) = guarded_api.requests
    assert passed == request
    assert not set(codes_in(answer)) & DENIALS
    assert authorizer.asked or key in ASKS_ITSELF | SHOWN


@pytest.mark.parametrize(
    ("key", "missing"),
    [(key, number) for key, grants in GRANTS.items() if key in APIS for number in range(len(grants) + 1)],
    ids=lambda value: value.name.lower() if isinstance(value, ApiKey) else str(value),
)
def test_all_that_it_needs_is_enough_and_less_is_not(key: ApiKey, missing: int) -> None:
    grants = GRANTS[key]
    given = grants[:missing] + grants[missing + 1 :]  # the last number stands for none
    guarded_api = GuardedApi(ScriptedAuthorizer(*given))
    version = api(key).max_version
    request = request_of(key, version)
    found = set(codes_in(guarded_api.ask(key, version, request))) - {0}
    if given == grants:
        assert guarded_api.requests == [request]
        assert not found
    else:
        assert found == {DENIED_AS.get(key, CODES[grants[missing][1]])}


def test_the_table_has_all_that_deny() -> None:
    assert GRANTS.keys() == NEEDS.keys() - SHOWN - ASKS_ITSELF
