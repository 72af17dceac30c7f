"""What is denied in part: the rest is done, and each row of the answer stands where it is looked for."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from support.clients.wire_client import batch_of
from support.fixtures.guarded_api import GuardedApi, codes_in
from support.fixtures.scripted_authorizer import ScriptedAuthorizer
from tidelog.base.errors import Code, MalformedMessageError
from tidelog.metadata import ResourceType
from tidelog.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from tidelog.server.transport.listener_roles import CONTROLLER
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.api_01_fetch import FetchRequest
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.api_03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
)
from tidelog.wire.messages.api_16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.api_24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidelog.wire.messages.api_27_write_txn_markers import WriteTxnMarkersRequest
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.api_34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.api_43_elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.api_61_describe_producers import DescribeProducersRequest, DescribeProducersTopic
from tidelog.wire.messages.api_65_describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tidelog.wire.messages.api_68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.api_69_consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribePartitions,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.wire.messages.api_75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.wire.messages.api_10005_report_resumptions import ReportResumptionsRequest, ResumptionRow

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
TOPIC, GROUP, TRANSACTIONAL_ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
CLUSTER = AclResourceType.CLUSTER

DENIED = Code.TOPIC_AUTHORIZATION_FAILED
TOPICS = {"mine": (1, 3), "theirs": (2, 3), "ours": (3, 2)}
MINE, THEIRS = UUID(int=1), UUID(int=2)
TRANSACTIONAL = batch_of(b"1", producer=(7, 0), base_sequence=0, transactional=True)


def on(operation: AclOperation, *topics: str) -> list[tuple[AclOperation, AclResourceType, str]]:
    return [(operation, TOPIC, name) for name in topics]


def test_rows_stand_in_the_order_in_which_they_were_listed() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(DESCRIBE, "mine", "ours")), TOPICS)
    topics = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
        )
        for name in ("theirs", "mine", "unheard-of", "ours")
    ]
    answer = api.ask(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=topics))
    assert [topic.name for topic in api.requests[0].topics] == ["mine", "ours"]
    assert [(topic.name, [row.error_code for row in topic.partitions]) for topic in answer.topics] == [
        ("theirs", [DENIED, DENIED]),
        ("mine", [0, 0]),
        ("unheard-of", [DENIED, DENIED]),
        ("ours", [0, 0]),
    ]
    refused = answer.topics[0].partitions[1]
    assert (refused.partition_index, refused.timestamp, refused.offset, refused.leader_epoch) == (1, -1, -1, -1)


@pytest.mark.parametrize("is_long", [False, True])
def test_a_request_that_counts_as_a_whole_is_looked_at_like_any_other(is_long: bool) -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(READ, "mine")), TOPICS)
    topics = [DescribeProducersTopic(name=name, partition_indexes=[0, 1]) for name in ("theirs", "mine")]
    answer = api.ask(ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=topics), is_long=is_long)
    assert [topic.name for topic in api.requests[0].topics] == ["mine"]
    assert [(row.name, row.partitions[1].error_code) for row in answer.topics] == [("theirs", DENIED), ("mine", 0)]
    assert "needs an ACL that allows READ on topic 'theirs'" in answer.topics[0].partitions[0].error_message


def test_who_names_an_id_is_not_told_the_name() -> None:
    api = GuardedApi(ScriptedAuthorizer((READ, GROUP, "g"), *on(READ, "mine")), TOPICS)
    ids = (THEIRS, MINE, UUID(int=99))
    topics = [
        OffsetCommitRequestTopic(
            topic_id=one, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        )
        for one in ids
    ]
    answer = api.ask(ApiKey.OFFSET_COMMIT, 10, OffsetCommitRequest(group_id="g", topics=topics))
    assert [topic.topic_id for topic in api.requests[0].topics] == [MINE]
    assert [(row.topic_id, row.partitions[0].error_code) for row in answer.topics] == list(
        zip(ids, [DENIED, 0, Code.UNKNOWN_TOPIC_ID], strict=True)
    )


# Produce.


def produce(*topics: str, acks: int = -1, records: bytes | None = None, transactional_id: str | None = None) -> Any:
    data = memoryview(batch_of(b"1") if records is None else records)
    rows = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, data)]) for name in topics]
    return ProduceRequest(acks=acks, timeout_ms=1, topic_data=rows, transactional_id=transactional_id)


def test_a_batch_comes_to_its_handler_before_its_bytes_are_anothers() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(WRITE, "mine")), TOPICS)
    answer = api.ask_without_waiting(ApiKey.PRODUCE, 9, produce("theirs", "mine"))
    assert isinstance(answer, ProduceResponse)
    assert [(row.name, row.partition_responses[0].error_code) for row in answer.responses] == [
        ("theirs", DENIED),
        ("mine", 0),
    ]
    assert answer.responses[0].partition_responses[0].base_offset == -1


def test_a_producer_without_acks_is_hung_up_on_and_what_is_allowed_is_appended() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(WRITE, "mine")), TOPICS, lambda request: None)
    assert api.ask(ApiKey.PRODUCE, 9, produce("mine", acks=0)) is None
    with pytest.raises(MalformedMessageError, match="acks=0 was denied"):
        api.ask(ApiKey.PRODUCE, 9, produce("theirs", "mine", acks=0))
    assert [[topic.name for topic in request.topic_data] for request in api.requests] == [["mine"], ["mine"]]
    with pytest.raises(MalformedMessageError, match="acks=0 was denied"):
        api.ask(ApiKey.PRODUCE, 9, produce("theirs", acks=0))
    assert len(api.requests) == 2


@pytest.mark.parametrize(
    ("records", "transactional_id", "code"),
    [
        (TRANSACTIONAL, "id", 0),
        (TRANSACTIONAL, "other", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (TRANSACTIONAL, None, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (None, "other", 0),
    ],
)
def test_a_batch_of_a_transaction_needs_its_id(records: bytes | None, transactional_id: str | None, code: int) -> None:
    api = GuardedApi(ScriptedAuthorizer((WRITE, TRANSACTIONAL_ID, "id"), *on(WRITE, "mine")), TOPICS)
    request = produce("mine", records=records, transactional_id=transactional_id)
    assert set(codes_in(api.ask(ApiKey.PRODUCE, 9, request))) == {code}


# Metadata.


def metadata(*topics: str | UUID, creates: bool = False) -> MetadataRequest:
    rows = [
        MetadataRequestTopic(name=None, topic_id=one) if isinstance(one, UUID) else MetadataRequestTopic(name=one)
        for one in topics
    ]
    return MetadataRequest(topics=rows, allow_auto_topic_creation=creates)


def of_all(request: MetadataRequest) -> MetadataResponse:
    """What is asked for, or all that there is."""
    names = [one.name for one in request.topics or ()] or list(TOPICS)
    topics = [MetadataResponseTopic(name=name) for name in names]
    return MetadataResponse(brokers=[], controller_id=1, topics=topics)


def test_metadata_by_name_and_by_id() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(DESCRIBE, "mine")), TOPICS)
    request = metadata("theirs", "mine", "unheard-of", THEIRS, MINE, UUID(int=99))
    answer = api.ask(ApiKey.METADATA, 12, request)
    assert [(one.name, one.topic_id.int) for one in api.requests[0].topics] == [("mine", 0), (None, 1)]
    assert [(row.error_code, row.name, row.topic_id.int) for row in answer.topics] == [
        (DENIED, "theirs", 0),
        (0, "mine", 0),
        (DENIED, "unheard-of", 0),
        (DENIED, None, 2),
        (0, None, 1),
        (Code.UNKNOWN_TOPIC_ID, None, 99),
    ]


@pytest.mark.parametrize(
    ("grants", "is_created"),
    [([], False), (on(CREATE, "new"), True), ([(CREATE, CLUSTER, CLUSTER_NAME)], True)],
)
def test_a_topic_is_created_for_who_may(grants: list[Any], is_created: bool) -> None:
    api = GuardedApi(ScriptedAuthorizer(*grants, *on(DESCRIBE, "new", "mine")), TOPICS)
    answer = api.ask(ApiKey.METADATA, 9, metadata("new", "mine", creates=True))
    assert [row.error_code for row in answer.topics] == [0 if is_created else DENIED, 0]
    api.ask(ApiKey.METADATA, 9, metadata("new", "mine"))
    assert len(api.requests[-1].topics) == 2  # that it is not there is the handler's to say


@pytest.mark.parametrize(("version", "topics"), [(9, None), (0, [])])
def test_all_topics_are_those_that_one_may_describe(version: int, topics: list[Any] | None) -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(DESCRIBE, "mine", "ours")), TOPICS, of_all)
    answer = api.ask(ApiKey.METADATA, version, MetadataRequest(topics=topics))
    assert [row.name for row in answer.topics] == ["mine", "ours"]


def test_where_no_topics_mean_all_one_that_is_denied_does_not() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(DESCRIBE, "mine")), TOPICS, of_all)
    answer = api.ask(ApiKey.METADATA, 0, metadata("theirs"))
    assert [(row.name, row.error_code) for row in answer.topics] == [("theirs", DENIED)]


# Topics.


@pytest.mark.parametrize("sees", [False, True])
def test_who_may_not_describe_settings_does_not_see_those_of_what_it_made(sees: bool) -> None:
    def created(request: CreateTopicsRequest) -> CreateTopicsResponse:
        configs = [CreatableTopicConfigs("a", "1", read_only=False, config_source=1, is_sensitive=False)]
        rows = [
            CreatableTopicResult(
                name=one.name, topic_id=MINE, error_code=0, num_partitions=3, replication_factor=2, configs=configs
            )
            for one in request.topics
        ]
        return CreateTopicsResponse(topics=rows)

    grants = on(CREATE, "mine") + (on(DESCRIBE_CONFIGS, "mine") if sees else [])
    api = GuardedApi(ScriptedAuthorizer(*grants), {}, created)
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("theirs", "mine")
    ]
    theirs, mine = api.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=1)).topics
    assert (theirs.error_code, theirs.num_partitions, theirs.topic_config_error_code) == (DENIED, -1, 0)
    assert mine.error_code == 0
    seen = (0, 3, 2, 1) if sees else (DENIED, -1, -1, 0)
    told = (mine.topic_config_error_code, mine.num_partitions, mine.replication_factor, len(mine.configs))
    assert told == seen


def test_deletion_by_name_and_by_id() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(DELETE, "mine"), *on(DESCRIBE, "ours", "gone")), TOPICS)
    named = DeleteTopicsRequest(topic_names=["theirs", "mine", "unheard-of", "gone"], timeout_ms=1)
    assert [(row.name, row.error_code) for row in api.ask(ApiKey.DELETE_TOPICS, 5, named).responses] == [
        ("theirs", DENIED),
        ("mine", 0),
        ("unheard-of", DENIED),
        ("gone", Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    topics = [DeleteTopicState(name=None, topic_id=UUID(int=number)) for number in (1, 2, 3, 99)]
    answer = api.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics, timeout_ms=1))
    assert [(row.name, row.topic_id.int, row.error_code) for row in answer.responses] == [
        (None, 1, 0),  # as the stub of a handler has it
        (None, 2, DENIED),
        ("ours", 3, DENIED),
        (None, 99, Code.UNKNOWN_TOPIC_ID),
    ]


def described(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[])


@pytest.mark.parametrize(
    ("limit", "cursor", "expected"),
    [
        (100, None, ["mine", "theirs", "zebra"]),
        (3, None, ["mine", "theirs"]),
        (3, Cursor("mine", 1), ["mine", "theirs", "zebra"]),
        (100, Cursor("ours", 0), ["theirs", "zebra"]),
    ],
)
def test_pages_of_topics_count_what_may_be_seen(limit: int, cursor: Cursor | None, expected: list[str]) -> None:
    topics = {**TOPICS, "zebra": (4, 1)}
    api = GuardedApi(ScriptedAuthorizer(*on(DESCRIBE, "mine", "theirs", "zebra")), topics, described)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=limit, cursor=cursor)
    api.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [one.name for one in api.requests[0].topics] == expected


def test_no_topic_that_may_be_seen_is_not_all_topics() -> None:
    api = GuardedApi(ScriptedAuthorizer(), TOPICS, described)
    assert api.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest(topics=[])).topics == []
    assert not api.requests
    named = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="theirs")])
    (row,) = api.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, named).topics
    assert (row.name, row.error_code) == ("theirs", DENIED)


@pytest.mark.parametrize("grant", [(DESCRIBE, TOPIC, "mine"), (AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)])
def test_leader_epochs_are_told_to_readers_and_to_replicas(grant: Any) -> None:
    api = GuardedApi(ScriptedAuthorizer(grant), TOPICS)
    topics = [
        OffsetForLeaderTopic(name, [OffsetForLeaderPartition(partition=0, leader_epoch=1)]) for name in ("mine", "ours")
    ]
    answer = api.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))
    is_replica = grant[1] == CLUSTER
    assert [row.partitions[0].error_code for row in answer.topics] == [0, 0 if is_replica else DENIED]


@pytest.mark.parametrize(
    ("resource_type", "kind", "name", "code"),
    [
        (ResourceType.TOPIC, TOPIC, "x", DENIED),
        (ResourceType.GROUP, GROUP, "x", Code.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.BROKER, CLUSTER, CLUSTER_NAME, Code.CLUSTER_AUTHORIZATION_FAILED),
        (ResourceType.BROKER_LOGGER, CLUSTER, CLUSTER_NAME, Code.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_settings_belong_to_what_they_are_of(resource_type: int, kind: AclResourceType, name: str, code: int) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource_type, resource_name="x", configuration_keys=None)]
    )
    (row,) = GuardedApi(ScriptedAuthorizer()).ask(ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert (row.error_code, row.resource_type, row.resource_name) == (code, resource_type, "x")
    allowed = GuardedApi(ScriptedAuthorizer((DESCRIBE_CONFIGS, kind, name)))
    assert set(codes_in(allowed.ask(ApiKey.DESCRIBE_CONFIGS, 4, request))) == {0}


def test_a_resource_of_no_kind_is_the_handlers_to_refuse() -> None:
    api = GuardedApi(ScriptedAuthorizer())
    resources = [DescribeConfigsResource(resource_type=77, resource_name="x", configuration_keys=None)]
    api.ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources))
    assert len(api.requests) == 1


# Groups.


@pytest.mark.parametrize(
    ("key_type", "kind", "name", "code"),
    [
        (KEY_TYPE_GROUP, GROUP, "k", Code.GROUP_AUTHORIZATION_FAILED),
        (KEY_TYPE_TRANSACTION, TRANSACTIONAL_ID, "k", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (KEY_TYPE_SHARE, CLUSTER, CLUSTER_NAME, Code.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
@pytest.mark.parametrize("version", [3, 6])
def test_coordinators(version: int, key_type: int, kind: AclResourceType, name: str, code: int) -> None:
    request = (
        FindCoordinatorRequest(key="k", key_type=key_type)
        if version < 4
        else FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
    )
    answer = GuardedApi(ScriptedAuthorizer()).ask(ApiKey.FIND_COORDINATOR, version, request)
    row = answer if version < 4 else answer.coordinators[0]
    assert (row.error_code, row.node_id, row.host, row.port) == (code, -1, "", -1)
    operation = AclOperation.CLUSTER_ACTION if kind == CLUSTER else DESCRIBE
    allowed = GuardedApi(ScriptedAuthorizer((operation, kind, name)))
    assert set(codes_in(allowed.ask(ApiKey.FIND_COORDINATOR, version, request))) == {0}


def offsets(request: OffsetFetchRequest) -> OffsetFetchResponse:
    """All that is named; all topics where none is."""

    def rows(topics: list[OffsetFetchRequestTopic] | None) -> list[OffsetFetchResponseTopic]:
        names = list(TOPICS) if topics is None else [topic.name for topic in topics]
        return [
            OffsetFetchResponseTopic(
                name=name, partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=5)]
            )
            for name in names
        ]

    if not request.groups:
        return OffsetFetchResponse(topics=rows(request.topics))
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=one.group_id, topics=rows(one.topics)) for one in request.groups]
    )


def offset_fetch(version: int, **topics: list[str] | None) -> OffsetFetchRequest:
    """Of groups, and the topics that are asked of each."""
    asked = {
        group: None if names is None else [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
        for group, names in topics.items()
    }
    if version < 8:
        ((group, rows),) = asked.items()
        return OffsetFetchRequest(group_id=group, topics=rows)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one, topics=asked[one]) for one in asked])


@pytest.mark.parametrize("version", [1, 7, 9])
def test_offsets_of_a_group(version: int) -> None:
    api = GuardedApi(ScriptedAuthorizer((DESCRIBE, GROUP, "g"), *on(DESCRIBE, "mine")), TOPICS, offsets)
    answer = api.ask(ApiKey.OFFSET_FETCH, version, offset_fetch(version, g=["theirs", "mine"]))
    topics = answer.topics if version < 8 else answer.groups[0].topics
    rows = [(one.name, one.partitions[0].error_code, one.partitions[0].committed_offset) for one in topics]
    assert rows == [("theirs", DENIED, -1), ("mine", 0, 5)]
    if version > 1:
        answer = api.ask(ApiKey.OFFSET_FETCH, version, offset_fetch(version, g=None))
        assert [one.name for one in (answer.topics if version < 8 else answer.groups[0].topics)] == ["mine"]
    refused = api.ask(ApiKey.OFFSET_FETCH, version, offset_fetch(version, other=["mine"]))
    of_group = refused if version < 8 else refused.groups[0]
    found = of_group.error_code if version > 1 else refused.topics[0].partitions[0].error_code
    assert found == Code.GROUP_AUTHORIZATION_FAILED


def test_offsets_of_several_groups() -> None:
    api = GuardedApi(ScriptedAuthorizer((DESCRIBE, GROUP, "g"), *on(DESCRIBE, "mine")), TOPICS, offsets)
    request = offset_fetch(9, other=["mine"], g=["mine", "theirs"])
    other, ours = api.ask(ApiKey.OFFSET_FETCH, 9, request).groups
    assert (other.group_id, other.error_code, other.topics) == ("other", Code.GROUP_AUTHORIZATION_FAILED, [])
    assert [(one.name, one.partitions[0].error_code) for one in ours.topics] == [("mine", 0), ("theirs", DENIED)]


def test_groups_are_listed_to_who_may_describe_them_or_the_cluster() -> None:
    def listed(request: ListGroupsRequest) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListedGroup(group_id=one, protocol_type="") for one in ("g", "other")])

    one = GuardedApi(ScriptedAuthorizer((DESCRIBE, GROUP, "g")), answer=listed)
    assert [row.group_id for row in one.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups] == ["g"]
    every = GuardedApi(ScriptedAuthorizer((DESCRIBE, CLUSTER, CLUSTER_NAME)), answer=listed)
    assert len(every.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups) == 2


@pytest.mark.parametrize("count", [2, 400])
def test_a_member_subscribes_to_what_it_may_describe(count: int) -> None:
    names = [f"topic-{number}" for number in range(count)]
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=names, rebalance_timeout_ms=1
    )
    allowed = GuardedApi(ScriptedAuthorizer((READ, GROUP, "g"), *on(DESCRIBE, *names)))
    assert allowed.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == 0
    denied = GuardedApi(ScriptedAuthorizer((READ, GROUP, "g"), *on(DESCRIBE, *names[:-1])))
    assert denied.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == DENIED
    assert not denied.requests


def test_a_group_that_reads_what_one_may_not_describe_is_not_described() -> None:
    def member(*topics: str) -> ConsumerGroupDescribeMember:
        partitions = [ConsumerGroupDescribePartitions(topic_id=MINE, topic_name=one, partitions=[0]) for one in topics]
        assignment = ConsumerGroupDescribeAssignment(partitions)
        return ConsumerGroupDescribeMember(
            member_id="m",
            member_epoch=1,
            client_id="c",
            client_host="h",
            subscribed_topic_names=[],
            assignment=assignment,
            target_assignment=ConsumerGroupDescribeAssignment([]),
        )

    def group(group_id: str, *topics: str) -> ConsumerGroupDescribeGroup:
        return ConsumerGroupDescribeGroup(group_id=group_id, members=[member(), member(*topics)])

    api = GuardedApi(
        ScriptedAuthorizer((DESCRIBE, GROUP, None), *on(DESCRIBE, "mine")),
        answer=lambda request: ConsumerGroupDescribeResponse(groups=[group("a", "mine"), group("b", "mine", "theirs")]),
    )
    first, second = api.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["a", "b"])
    ).groups
    assert (first.error_code, len(first.members)) == (0, 2)
    assert (second.error_code, second.members) == (DENIED, [])


# Transactions.


@pytest.mark.parametrize(
    ("grant", "code"),
    [
        (None, Code.CLUSTER_AUTHORIZATION_FAILED),
        ((AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME), 0),
        ((WRITE, TOPIC, "any"), 0),
        ((READ, TOPIC, "any"), Code.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_write_anything_gets_a_producer_id(grant: Any, code: int) -> None:
    api = GuardedApi(ScriptedAuthorizer(*([] if grant is None else [grant])))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    assert api.ask(ApiKey.INIT_PRODUCER_ID, 5, request).error_code == code


@pytest.mark.parametrize("is_long", [False, True])
def test_beside_one_that_is_denied_no_partition_joins_a_transaction(is_long: bool) -> None:
    api = GuardedApi(ScriptedAuthorizer((WRITE, TRANSACTIONAL_ID, "id"), *on(WRITE, "mine")), TOPICS)

    def adding(*names: str) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0, 7]) for name in names],
        )

    answer = api.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding("mine", "theirs"), is_long=is_long)
    assert not api.requests
    codes = {
        row.name: [one.partition_error_code for one in row.results_by_partition]
        for row in answer.results_by_topic_v3_and_below
    }
    assert codes == {
        "mine": [Code.OPERATION_NOT_ATTEMPTED, Code.UNKNOWN_TOPIC_OR_PARTITION],
        "theirs": [DENIED, DENIED],
    }
    answer = api.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding("mine"), is_long=is_long)
    assert set(codes_in(answer)) == {0}


@pytest.mark.parametrize("operation", [AclOperation.ALTER, AclOperation.CLUSTER_ACTION])
def test_markers_are_written_by_nodes_and_by_operators(operation: AclOperation) -> None:
    api = GuardedApi(ScriptedAuthorizer((operation, CLUSTER, CLUSTER_NAME)))
    api.ask(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[]))
    assert len(api.requests) == 1


def test_a_transaction_shows_the_topics_that_one_may_describe() -> None:
    def described_transactions(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        topics = [DescribedTransactionTopic(topic=name, partitions=[0]) for name in ("theirs", "mine")]
        row = DescribedTransaction(
            error_code=0,
            transactional_id="id",
            transaction_state="Ongoing",
            transaction_timeout_ms=1,
            transaction_start_time_ms=1,
            producer_id=1,
            producer_epoch=1,
            topics=topics,
        )
        return DescribeTransactionsResponse(transaction_states=[row])

    api = GuardedApi(
        ScriptedAuthorizer((DESCRIBE, TRANSACTIONAL_ID, "id"), *on(DESCRIBE, "mine")), answer=described_transactions
    )
    answer = api.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=["other", "id"]))
    assert [(row.transactional_id, row.error_code) for row in answer.transaction_states] == [
        ("other", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("id", 0),
    ]
    assert [one.topic for one in answer.transaction_states[1].topics] == ["mine"]


# Nodes and operators.


def test_moves_are_denied_by_topic() -> None:
    dirs = [AlterReplicaLogDir("/a", [AlterReplicaLogDirTopic("x", [0, 1])])]
    answer = GuardedApi(ScriptedAuthorizer()).ask(
        ApiKey.ALTER_REPLICA_LOG_DIRS, 2, AlterReplicaLogDirsRequest(dirs=dirs)
    )
    rows = [(row.topic_name, one.partition_index, one.error_code) for row in answer.results for one in row.partitions]
    assert rows == [("x", 0, Code.CLUSTER_AUTHORIZATION_FAILED), ("x", 1, Code.CLUSTER_AUTHORIZATION_FAILED)]


def test_elections_are_denied_at_the_top_and_in_rows() -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions("x", [4])], timeout_ms=1)
    answer = GuardedApi(ScriptedAuthorizer()).ask(ApiKey.ELECT_LEADERS, 2, request)
    assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    (row,) = answer.replica_election_results
    assert (row.topic, row.partition_result[0].partition_id) == ("x", 4)
    assert row.partition_result[0].error_code == Code.CLUSTER_AUTHORIZATION_FAILED


def test_the_metadata_log_is_for_nodes() -> None:
    api = GuardedApi(ScriptedAuthorizer())
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    answer = api.ask(ApiKey.FETCH, 17, request, role=CONTROLLER)
    assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    api.ask(ApiKey.FETCH, 17, request)  # of a broker: its handler asks
    assert len(api.requests) == 1


def test_what_one_may_not_read_one_does_not_resume() -> None:
    api = GuardedApi(ScriptedAuthorizer(*on(READ, "mine")), TOPICS)
    rows = [
        ResumptionRow(
            topic_id=one,
            partition_index=0,
            leader_epoch=1,
            position=1,
            divergent_offset=1,
            resumed_offset=1,
            policy="p",
        )
        for one in (THEIRS, MINE, UUID(int=99))
    ]
    api.ask(ApiKey.REPORT_RESUMPTIONS, 0, ReportResumptionsRequest(resumptions=rows))
    assert [one.topic_id for one in api.requests[0].resumptions] == [MINE]
