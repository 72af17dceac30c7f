"""A node whose authorizer knows nodes and everybody else: what only nodes ask is refused to everybody else."""

from __future__ import annotations

import pytest

from support.fixtures.guarded_api import VERSIONS, GuardedApi, codes_in, request_of
from support.fixtures.scripted_authorizer import ScriptedAuthorizer
from tidelog.base.errors import Code
from tidelog.base.principals import ANONYMOUS, USER, Principal, Requester
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from tidelog.security.cluster_action_authorizer import ClusterActionAuthorizer
from tidelog.server.api.apis import APIS
from tidelog.server.api.authorization import guarded
from tidelog.server.api.needs import NEEDS
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.wire.messages.api_33_alter_configs import AlterableConfig as AlterableConfigOfAll
from tidelog.wire.messages.api_33_alter_configs import AlterConfigsRequest
from tidelog.wire.messages.api_33_alter_configs import AlterConfigsResource as ResourceOfAll
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.api_51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

STRANGER, NODE = ClusterActionAuthorizer(()), ClusterActionAuthorizer((ANONYMOUS,))
OF_NODE = ClusterActionAuthorizer((Principal(USER, "node"),))
UNLESS = {ApiKey.OFFSET_FOR_LEADER_EPOCH: AclOperation.DESCRIBE, ApiKey.WRITE_TXN_MARKERS: AclOperation.ALTER}
"""What does as well as CLUSTER_ACTION, and everybody may."""


class Denying(ScriptedAuthorizer):
    """Denies CLUSTER_ACTION, and is asked about everything; keeps which operations."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[AclOperation] = set()

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        self.operations.add(operation)
        return operation is not AclOperation.CLUSTER_ACTION

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return self.authorize(requester, operation, resource_type, "")


@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda one: getattr(one, "name", str(one)))
def test_whatever_asks_for_cluster_action_is_refused_to_strangers(key: ApiKey, version: int, role: str) -> None:
    if role not in APIS[key].roles:
        return
    denying = Denying()
    GuardedApi(denying).ask(key, version, request_of(key, version), role=role)
    is_of_nodes = AclOperation.CLUSTER_ACTION in denying.operations and UNLESS.get(key) not in denying.operations
    is_of_nodes |= key == ApiKey.ADD_RAFT_VOTER

    serving = GuardedApi(STRANGER)
    answer = serving.ask(key, version, request_of(key, version), role=role)
    assert bool(serving.requests) is not is_of_nodes
    if is_of_nodes and (key, role, version < 7) != (ApiKey.FETCH, CONTROLLER, True):  # it had no error of its own
        denied = {Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED}
        assert set(codes_in(answer)) & denied or answer.error_code in denied
    serving = GuardedApi(NODE)
    serving.ask(key, version, request_of(key, version), role=role)
    assert serving.requests


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_strangers_abort_a_transaction_as_tools_do_and_commit_none(is_commit: bool) -> None:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=1,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
        coordinator_epoch=1,
    )
    serving = GuardedApi(STRANGER)
    answer = serving.ask(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
    assert set(codes_in(answer)) == {Code.CLUSTER_AUTHORIZATION_FAILED if is_commit else Code.NONE}
    assert bool(serving.requests) is not is_commit


def test_whoever_may_alter_the_cluster_commits_nothing() -> None:
    marker = WritableTxnMarker(producer_id=7, producer_epoch=1, transaction_result=True, topics=[], coordinator_epoch=1)
    serving = GuardedApi(ScriptedAuthorizer((AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME)))
    serving.ask(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
    assert not serving.requests


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize(("user", "is_refused"), [("alice", False), ("node", True)])
def test_a_stranger_gives_no_node_a_password(user: str, is_refused: bool, is_long: bool) -> None:
    upsertion = ScramCredentialUpsertion(name=user, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion], deletions=[])
    for authorizer, is_denied in ((OF_NODE, is_refused), (ScriptedAuthorizer(allows_all=True), False)):
        serving = GuardedApi(authorizer)
        answer = serving.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, is_long=is_long)
        assert bool(serving.requests) is not is_denied
        assert set(codes_in(answer)) == {Code.CLUSTER_AUTHORIZATION_FAILED if is_denied else Code.NONE}


@pytest.mark.parametrize(
    ("kind", "names", "is_refused"),
    [
        (ResourceType.BROKER, ["log.retention.ms", "listeners"], False),
        (ResourceType.BROKER, ["log.retention.ms", "listener.name.nodes.plain.sasl.jaas.config"], True),
        (ResourceType.BROKER, ["listener.name.beside.sasl.enabled.mechanisms"], True),
        (ResourceType.BROKER, ["ssl.truststore.certificates"], True),
        (ResourceType.BROKER, [f"k{number}" for number in range(257)], True),
        (ResourceType.TOPIC, ["retention.ms"] * 257, False),
    ],
    ids=["others", "passwords", "mechanisms", "authorities", "too many to be settings", "of a topic"],
)
def test_a_stranger_does_not_change_how_nodes_log_in(kind: ResourceType, names: list[str], is_refused: bool) -> None:
    configs = [AlterableConfig(name=name, config_operation=0, value="x") for name in names]
    resources = [AlterConfigsResource(resource_type=kind, resource_name="1", configs=configs)]
    request = IncrementalAlterConfigsRequest(resources=resources)
    for authorizer, is_denied in (
        (STRANGER, is_refused),
        (NODE, False),
        (ScriptedAuthorizer(allows_all=True), False),
    ):
        serving = GuardedApi(authorizer)
        answer = serving.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert bool(serving.requests) is not is_denied
        assert set(codes_in(answer)) == {Code.CLUSTER_AUTHORIZATION_FAILED if is_denied else Code.NONE}


@pytest.mark.parametrize("named", [[], ["log.retention.ms"]])
def test_a_stranger_does_not_take_back_how_nodes_log_in(named: list[str]) -> None:
    """AlterConfigs replaces all: what it does not list goes."""
    configs = [AlterableConfigOfAll(name, "1") for name in named]
    resources = [ResourceOfAll(resource_type=ResourceType.BROKER, resource_name="1", configs=configs)]
    for there, is_denied in ((["log.retention.ms"], False), (["listener.name.nodes.plain.sasl.jaas.config"], True)):
        for authorizer, may in ((STRANGER, not is_denied), (NODE, True)):
            serving = GuardedApi(authorizer)
            serving.image.configs[ResourceKey(ResourceType.BROKER, "1")] = dict.fromkeys(there, "x")
            serving.ask(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=resources))
            assert bool(serving.requests) is may


def test_a_stranger_makes_nobody_a_voter() -> None:
    """The others would show it what they log in with."""
    request = request_of(ApiKey.ADD_RAFT_VOTER, 0)
    for authorizer, is_denied in ((STRANGER, True), (NODE, False), (ScriptedAuthorizer(allows_all=True), False)):
        serving = GuardedApi(authorizer)
        answer = serving.ask(ApiKey.ADD_RAFT_VOTER, 0, request)
        assert answer.error_code == (Code.CLUSTER_AUTHORIZATION_FAILED if is_denied else Code.NONE)


@pytest.mark.parametrize("operation", [AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS])
def test_a_stranger_has_no_token_of_a_node(operation: AclOperation) -> None:
    alice, node = Requester(Principal(USER, "alice"), "host"), Requester(Principal(USER, "node"), "host")
    assert OF_NODE.authorize(alice, operation, AclResourceType.USER, "User:bob")
    assert not OF_NODE.authorize(alice, operation, AclResourceType.USER, "User:node")
    assert OF_NODE.authorize(node, operation, AclResourceType.USER, "User:node")


def test_the_refusal_says_who_may_ask(caplog: pytest.LogCaptureFixture) -> None:
    serving = GuardedApi(STRANGER)
    with caplog.at_level("INFO", logger="tidelog.audit"):
        serving.ask(ApiKey.BROKER_HEARTBEAT, 0, request_of(ApiKey.BROKER_HEARTBEAT, 0))
    (line,) = caplog.messages
    assert line == "denied BrokerHeartbeat: User:ANONYMOUS at host is none of the nodes, which alone ask for this"


def test_what_everybody_may_costs_nothing() -> None:
    def handle(node: object, request: object, context: object) -> None: ...

    for key in (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.CREATE_TOPICS):
        is_bare = guarded(api(key), handle, NEEDS[key], STRANGER.deniable) is handle
        assert is_bare is (key is not ApiKey.CREATE_TOPICS)
