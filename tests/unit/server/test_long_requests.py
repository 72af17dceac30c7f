"""A request that lists much is answered in pieces; the answer is as if it had been one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.loop_steps import Steps
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.ports import Executor
from tidelog.controller import AlteredPartition
from tidelog.io.executor import InlineExecutor, ThreadExecutor
from tidelog.server.api.apis import APIS
from tidelog.server.api.division import Division
from tidelog.server.api.handlers import (
    api_19_create_topics,
    api_35_describe_log_dirs,
    api_37_create_partitions,
    api_56_alter_partition,
    api_73_assign_replicas_to_dirs,
)
from tidelog.server.api.long_requests import in_pieces, is_long, let_go
from tidelog.wire.api import ApiKey, api
from tidelog.wire.messages.api_00_produce import (
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.api_13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.api_24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.api_27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.messages.api_37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.api_43_elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.api_56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
)
from tidelog.wire.messages.api_73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from tidelog.wire.schema import Layout, layout_of

DIVISIONS = {key: served.division for key, served in APIS.items() if served.division is not None}
IDS = [ApiKey(key).name for key in DIVISIONS]


def field_of(layout: Layout, name: str) -> Any:
    return next(spec for spec in layout.fields if spec.name == name)


def check_fields(division: Division, asked: Layout, answer: Layout) -> None:
    listed, answered = field_of(asked, division.listed).type, field_of(answer, division.answered).type
    assert (listed.kind, answered.kind) == ("array", "array")
    if division.inner is not None:
        check_fields(division.inner, listed.element.layout, answered.element.layout)


@pytest.mark.parametrize(("key", "division"), DIVISIONS.items(), ids=IDS)
def test_what_is_divided_is_a_list_of_the_request_and_of_its_answer(key: int, division: Division) -> None:
    known = api(key)
    for one in (division, division.earlier):
        if one is not None:
            check_fields(one, layout_of(known.request), layout_of(known.response))


def topics(*counts: int) -> list[ListOffsetsTopic]:
    return [
        ListOffsetsTopic(
            name=f"t{number}", partitions=[ListOffsetsPartition(partition_index=at, timestamp=0) for at in range(count)]
        )
        for number, count in enumerate(counts)
    ]


def test_pieces_are_as_long_as_they_may_be_and_say_all_in_order() -> None:
    division = Division("topics", "topics", Division("partitions", "partitions"), weight_max=10)
    request = ListOffsetsRequest(topics=topics(3, 3, 25, 1, 0, 9))
    assert division.is_long(request)
    pieces = division.pieces_of(request)
    said = [(topic.name, one.partition_index) for piece in pieces for topic in piece.topics for one in topic.partitions]
    assert said == [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    assert [topic.name for piece in pieces for topic in piece.topics].count("t4") == 1
    for piece in pieces:
        assert sum(1 + len(topic.partitions) for topic in piece.topics) <= 10
    assert len(pieces) <= 6
    assert len(request.topics[2].partitions) == 25, "the request is left as it was"


def positions(*groups: tuple[str, dict[str, int]]) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=name,
                topics=[
                    OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(n))) for topic, n in of.items()
                ],
            )
            for name, of in groups
        ]
    )


def position_in(index: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index)


def test_lists_in_lists_in_lists_are_divided_and_joined_at_every_depth() -> None:
    division = DIVISIONS[ApiKey.OFFSET_FETCH]
    request = positions(("one", {"t": 1_000, "u": 300}), ("all", {}), ("many", {f"t{at}": 0 for at in range(700)}))
    request.groups[1].topics = None
    pieces = division.pieces_of(request)
    for piece in pieces:
        within = [topic for group in piece.groups for topic in group.topics or ()]
        assert len(piece.groups) + len(within) + sum(len(one.partition_indexes) for one in within) <= 256
    answers = [
        OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        OffsetFetchResponseTopic(
                            name=topic.name,
                            partitions=[
                                OffsetFetchResponsePartition(partition_index=at) for at in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or ()
                    ],
                )
                for group in piece.groups
            ]
        )
        for piece in pieces
    ]
    told = [
        (group.group_id, {one.name: [row.partition_index for row in one.partitions] for one in group.topics})
        for group in division.joined(answers).groups
    ]
    assert told == [
        (group.group_id, {one.name: one.partition_indexes for one in group.topics or ()}) for group in request.groups
    ]


def test_a_request_for_one_group_is_divided_by_its_topics() -> None:
    request = OffsetFetchRequest(
        group_id="one", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(1_000)))]
    )
    assert is_long(api(ApiKey.OFFSET_FETCH), request, 100_000)
    pieces = DIVISIONS[ApiKey.OFFSET_FETCH].of(request).pieces_of(request)
    assert [at for piece in pieces for topic in piece.topics for at in topic.partition_indexes] == list(range(1_000))


@pytest.mark.parametrize("listed", [None, []])
def test_what_lists_nothing_is_one_piece(listed: list[MetadataRequestTopic] | None) -> None:
    division, request = DIVISIONS[ApiKey.METADATA], MetadataRequest(topics=listed)
    assert not division.is_long(request)
    assert division.pieces_of(request) == [request]


def test_what_is_said_of_one_name_stays_together() -> None:
    division = DIVISIONS[ApiKey.CREATE_TOPICS]
    names = [f"t{number}" for number in range(200)]
    twice = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in (*names, *names)])
    for piece in division.pieces_of(twice):
        in_piece = [topic.name for topic in piece.topics]
        assert all(in_piece.count(name) == 2 for name in in_piece)
    heavy = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=count) for count in (40, 30)])
    assert len(division.pieces_of(heavy)) == 1


@pytest.mark.parametrize("count", [65, 128, 129, 1_000])
def test_an_order_that_says_too_much_of_one_name_says_it_more_than_once_in_each_piece(count: int) -> None:
    """A name that comes twice is refused: were it alone in a piece, it would be carried out there."""
    division = DIVISIONS[ApiKey.DELETE_TOPICS]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t") for _ in range(count)])
    lengths = [len(piece.topics) for piece in division.pieces_of(request)]
    assert sum(lengths) == count
    assert min(lengths) > 1
    assert max(lengths) <= division.weight_max + 1


def test_what_says_too_much_of_one_name_is_divided_all_the_same() -> None:
    division = DIVISIONS[ApiKey.METADATA]
    pieces = division.pieces_of(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 1_000))
    assert sum(len(piece.topics) for piece in pieces) == 1_000
    assert max(len(piece.topics) for piece in pieces) <= division.weight_max


def test_an_order_weighs_what_it_makes() -> None:
    division = DIVISIONS[ApiKey.CREATE_TOPICS]
    many = [CreatableTopic(name=f"t{number}", num_partitions=40) for number in range(3)]
    assert [len(piece.topics) for piece in division.pieces_of(CreateTopicsRequest(topics=many))] == [1, 1, 1]
    huge = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=(1 << 31) - 1)])
    assert len(division.pieces_of(huge)) == 1


def test_who_wants_no_acknowledgement_is_served_at_once() -> None:
    """He may have hung up before a second piece, and all that came is to be appended."""
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index) for index in range(1_000)])
    for acks, is_divided in ((0, False), (1, True), (-1, True)):
        request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[data])
        assert is_long(api(ApiKey.PRODUCE), request, 100_000) is is_divided


def test_all_whom_answers_name_are_named_by_the_whole() -> None:
    one, other = (NodeEndpoint(node_id=number, host="h", port=number) for number in (1, 2))
    answers = [ProduceResponse(responses=[], node_endpoints=list(ends)) for ends in ((), (one,), (one, other))]
    assert DIVISIONS[ApiKey.PRODUCE].joined(answers).node_endpoints == [one, other]


def test_earlier_versions_list_elsewhere() -> None:
    request = DeleteTopicsRequest(topic_names=["t"] * 3 + ["u"] * 200)
    division = DIVISIONS[ApiKey.DELETE_TOPICS].of(request)
    assert division.is_order
    assert division.is_long(request)
    pieces = division.pieces_of(request)
    assert [name for piece in pieces for name in piece.topic_names] == ["t"] * 3 + ["u"] * 200


def elected(code: int, *rows: tuple[str, range]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic, partition_result=[PartitionResult(partition_id=one) for one in partitions]
            )
            for topic, partitions in rows
        ],
    )


def test_answers_are_joined_where_they_were_divided() -> None:
    answers = [
        elected(0, ("a", range(3)), ("b", range(2))),
        elected(41, ("b", range(2, 4))),
        elected(0, ("c", range(1))),
    ]
    assert DIVISIONS[ApiKey.ELECT_LEADERS].joined(answers) == elected(
        41, ("a", range(3)), ("b", range(4)), ("c", range(1))
    )


class Counted:
    """Counts, by step of the loop, how many of those of its kind are freed there. Other threads do not count."""

    steps: Steps
    loop_thread = 0

    def __del__(self) -> None:
        if threading.get_ident() == Counted.loop_thread:
            Counted.steps.count()


class Asked(Counted, ListOffsetsPartition):
    pass


class Told(Counted, ListOffsetsPartitionResponse):
    pass


class Answering:
    """What `in_pieces` needs of a node."""

    consistency_state = None

    def __init__(self, executor: Executor) -> None:
        self.executor = executor


class Context:
    def read(self, node: Any) -> None:
        pass


def answered(node: Any, request: ListOffsetsRequest, context: Any) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[Told(partition_index=one.partition_index) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


async def asked_and_answered(node: Any, counts: tuple[int, ...]) -> list[tuple[str, int]]:
    """Ask for so many partitions, and have all that was asked and answered freed."""
    known = api(ApiKey.LIST_OFFSETS)

    def read() -> ListOffsetsRequest:
        request = ListOffsetsRequest(topics=topics(*counts))
        for topic in request.topics:
            topic.partitions = [Asked(partition_index=one.partition_index, timestamp=0) for one in topic.partitions]
        return request

    message = await in_pieces(known, answered)(node, await node.executor.compute(read), Context())  # type: ignore[arg-type]
    said = [(topic.name, one.partition_index) for topic in message.topics for one in topic.partitions]
    await node.executor.compute(partial(let_go, known, message))
    assert message.topics == []
    return said


@pytest.mark.parametrize("counts", [(5_000,), (10,) * 500], ids=["one topic", "many topics"])
def test_what_a_long_request_lists_is_freed_in_pieces_too(counts: tuple[int, ...]) -> None:
    """To free a hundred thousand objects takes as long as to answer a dozen requests."""

    async def story() -> None:
        executor = ThreadExecutor()
        Counted.steps, Counted.loop_thread = Steps(), threading.get_ident()
        try:
            said = await asked_and_answered(Answering(executor), counts)
        finally:
            executor.close()
        Counted.loop_thread = 0
        assert said == [(f"t{number}", at) for number, count in enumerate(counts) for at in range(count)]
        assert sum(Counted.steps.counts) == sum(counts), "what was asked is freed with its piece, answers elsewhere"
        assert max(Counted.steps.counts) <= 256

    asyncio.run(story())


def test_others_have_their_turn_between_pieces_and_what_is_given_up_is_freed_elsewhere() -> None:
    async def story() -> None:
        executor = ThreadExecutor()
        Counted.steps, Counted.loop_thread = Steps(), threading.get_ident()
        asked = asyncio.ensure_future(asked_and_answered(Answering(executor), (5_000,)))
        while not Counted.steps.counts and not asked.done():  # the first piece
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not asked.done()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        executor.close()
        Counted.loop_thread = 0
        assert sum(Counted.steps.counts) < 2_500

    asyncio.run(story())


def test_a_request_without_a_division_lists_nothing_once_it_is_answered() -> None:
    """Its lists may be somebody else's by then: a member's, say."""
    protocols = [JoinGroupRequestProtocol(name=str(number), metadata=b"") for number in range(3)]
    request = JoinGroupRequest(group_id="g", session_timeout_ms=1, protocol_type="consumer", protocols=protocols)

    async def story() -> object:
        known = api(ApiKey.JOIN_GROUP)
        return await in_pieces(known, lambda node, request, context: len(request.protocols))(
            Answering(InlineExecutor()),  # type: ignore[arg-type]
            request,
            Context(),  # type: ignore[arg-type]
        )

    assert asyncio.run(story()) == 3
    assert (len(protocols), request.protocols) == (3, [])


def test_members_leave_in_pieces_and_each_has_its_row() -> None:
    members = [MemberIdentity(member_id=str(number % 300)) for number in range(1_000)]
    request = LeaveGroupRequest(group_id="g", members=members)
    division = DIVISIONS[ApiKey.LEAVE_GROUP]
    assert is_long(api(ApiKey.LEAVE_GROUP), request, 100_000)
    pieces = division.pieces_of(request)
    assert max(len(piece.members) for piece in pieces) <= 64
    answers = [
        LeaveGroupResponse(members=[MemberResponse(member_id=one.member_id) for one in piece.members])
        for piece in pieces
    ]
    assert [one.member_id for one in division.joined(answers).members] == [one.member_id for one in members]


def test_a_transaction_is_never_divided() -> None:
    """All its partitions are added to it, or none."""
    heavy = [AddPartitionsToTxnTopic(name="t", partitions=list(range(1_000)))]
    earlier = AddPartitionsToTxnRequest(v3_and_below_transactional_id="one", v3_and_below_topics=heavy)
    assert is_long(api(ApiKey.ADD_PARTITIONS_TO_TXN), earlier, 100_000)
    division = DIVISIONS[ApiKey.ADD_PARTITIONS_TO_TXN]
    assert division.of(earlier).pieces_of(earlier) == [earlier]
    light = [AddPartitionsToTxnTopic(name="t", partitions=list(range(15)))]
    several = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=str(number), producer_id=number, producer_epoch=0, topics=topics
            )
            for number, topics in enumerate((light, light, heavy, light))
        ]
    )
    pieces = [[one.transactional_id for one in piece.transactions] for piece in division.pieces_of(several)]
    assert pieces == [["0", "1"], ["2"], ["3"]]


def test_markers_of_one_producer_are_one_row() -> None:
    division = DIVISIONS[ApiKey.WRITE_TXN_MARKERS]
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=True,
                coordinator_epoch=0,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(range(100)))],
            )
            for producer_id in (7, 8)
        ]
    )
    answers = [
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in piece.markers
            ]
        )
        for piece in division.pieces_of(request)
    ]
    assert len(answers) > 2
    joined = division.joined(answers)
    told = [
        (one.producer_id, [row.partition_index for topic in one.topics for row in topic.partitions])
        for one in joined.markers
    ]
    assert told == [(7, list(range(100))), (8, list(range(100)))]
    division.let_go(joined)
    assert joined.markers == []


class LogDirStandIn:
    path, failure = "d", None


class Replica:
    """One that counts, by step of the loop, how often it is looked at."""

    log = SimpleNamespace(log_end_offset=0, segments=SimpleNamespace(size_bytes=1))

    def __init__(self, index: int, steps: Steps) -> None:
        self.topic_partition = TopicPartition("t", PartitionIndex(index))
        self.topic_id = None
        self._steps = steps

    @property
    def high_watermark(self) -> int:
        self._steps.count()
        return 0


def test_log_directories_are_described_in_turns_however_many_replicas_there_are() -> None:
    steps, directory = Steps(), LogDirStandIn()

    async def room(_: object) -> tuple[int, int]:
        return 2, 1

    node: Any = SimpleNamespace(
        broker=SimpleNamespace(
            partitions=[Replica(index, steps) for index in range(1_300)], moves=SimpleNamespace(copies=[])
        ),
        config=SimpleNamespace(log_directories=["d"]),
        consistency_state=None,
        executor=InlineExecutor(),
        image=SimpleNamespace(topic_by_id=lambda _: SimpleNamespace(partitions=range(1_300))),
        files=SimpleNamespace(directories=[directory], directory_of=lambda _: directory, room_in=room),
    )
    context: Any = SimpleNamespace(is_long=False, read=lambda node: node)
    answer = asyncio.run(api_35_describe_log_dirs.handle(node, DescribeLogDirsRequest(topics=None), context))
    (topic,) = answer.results[0].topics
    assert [one.partition_index for one in topic.partitions] == list(range(1_300))
    assert steps.counts == [500, 500, 300]
    assert context.is_long, "the answer is written on another thread"


class CountedConfig(Counted, CreatableTopicConfig):
    pass


@pytest.mark.parametrize("others", [[], ["light"]], ids=["alone", "with another"])
def test_what_cannot_be_divided_is_freed_elsewhere(others: list[str]) -> None:
    def read() -> CreateTopicsRequest:
        configs: list[CreatableTopicConfig] = [CountedConfig(name="k", value=None) for _ in range(5_000)]
        heavy = CreatableTopic(name="heavy", configs=configs)
        return CreateTopicsRequest(topics=[heavy, *(CreatableTopic(name=name) for name in others)])

    async def create(node: Any, request: CreateTopicsRequest, context: Any) -> CreateTopicsResponse:
        await asyncio.sleep(0)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=one.name) for one in request.topics])

    async def story() -> list[str]:
        executor = ThreadExecutor()
        Counted.steps, Counted.loop_thread = Steps(), threading.get_ident()
        node: Any = Answering(executor)
        context: Any = Context()
        answer = await in_pieces(api(ApiKey.CREATE_TOPICS), create)(node, await executor.compute(read), context)
        executor.close()
        Counted.loop_thread = 0
        return [one.name for one in answer.topics]

    assert asyncio.run(story()) == ["heavy", *others]
    assert Counted.steps.counts == []


def test_the_directories_of_many_replicas_are_read_and_answered_elsewhere() -> None:
    threads: set[int] = set()

    class Listed(list[AssignedDirectory]):
        def __iter__(self) -> Iterator[AssignedDirectory]:
            threads.add(threading.get_ident())
            return super().__iter__()

    async def request_in_pieces(decides: Iterable[partial[object]]) -> list[Code]:
        return [Code.NONE for decide in decides for _ in decide.keywords["replicas"]]

    settings = SimpleNamespace(partition_changes_max=1_000)
    controller = SimpleNamespace(
        journal=SimpleNamespace(speculative=SimpleNamespace(settings=settings)), request_in_pieces=request_in_pieces
    )
    node: Any = SimpleNamespace(controller=controller, executor=ThreadExecutor())
    context: Any = SimpleNamespace(is_long=True)
    topics = [AssignedTopic(UUID(int=1), [AssignedPartition(0), AssignedPartition(1)])]
    asked = Listed(AssignedDirectory(UUID(int=number), topics) for number in range(3_000))
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1, directories=asked)
    answer = asyncio.run(api_73_assign_replicas_to_dirs.handle(node, request, context))
    assert [one.id for one in answer.directories] == [UUID(int=number) for number in range(3_000)]
    assert {row.error_code for one in answer.directories for row in one.topics[0].partitions} == {Code.NONE}
    assert threads
    assert threading.get_ident() not in threads


def test_the_isrs_of_many_partitions_are_decided_in_portions() -> None:
    """What one decision takes holds the event loop of the controller."""
    sizes: list[int] = []

    async def request_in_pieces(decides: Iterable[partial[object]]) -> list[AlteredPartition]:
        pieces = [decide.keywords["partitions"] for decide in decides]
        sizes.extend(map(len, pieces))
        return [AlteredPartition(one.topic_id, one.partition, Code.NOT_LEADER_OR_FOLLOWER) for p in pieces for one in p]

    settings = SimpleNamespace(partition_changes_max=100)
    controller = SimpleNamespace(
        journal=SimpleNamespace(speculative=SimpleNamespace(settings=settings)), request_in_pieces=request_in_pieces
    )
    node: Any = SimpleNamespace(controller=controller, executor=ThreadExecutor())
    context: Any = SimpleNamespace(is_long=True, api_version=3)
    rows = [
        AlterPartitionData(partition_index=index, leader_epoch=1, new_isr_with_epochs=[], partition_epoch=1)
        for index in range(250)
    ]
    request = AlterPartitionRequest(broker_id=1, topics=[AlterPartitionTopic(topic_id=UUID(int=1), partitions=rows)])
    answer = asyncio.run(api_56_alter_partition.handle(node, request, context))
    assert sizes == [100, 100, 50]
    assert [row.partition_index for row in answer.topics[0].partitions] == list(range(250))


def new_isr(rows: Any) -> AlterPartitionData:
    return AlterPartitionData(partition_index=0, leader_epoch=1, new_isr_with_epochs=rows, partition_epoch=1)


@pytest.mark.parametrize(
    ("handler", "request_of"),
    [
        (
            api_19_create_topics,
            lambda rows: CreateTopicsRequest(topics=[CreatableTopic(name="t", assignments=rows)]),
        ),
        (
            api_37_create_partitions,
            lambda rows: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=1, assignments=rows)]),
        ),
        (
            api_56_alter_partition,
            lambda rows: AlterPartitionRequest(
                broker_id=1, topics=[AlterPartitionTopic(topic_id=UUID(int=1), partitions=[new_isr(rows)])]
            ),
        ),
    ],
    ids=["create topics", "create partitions", "alter partition"],
)
def test_what_one_of_those_listed_lists_is_read_elsewhere(handler: Any, request_of: Callable[[Any], Any]) -> None:
    threads: set[int] = set()

    class Listed(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            threads.add(threading.get_ident())
            return super().__iter__()

        def __getitem__(self, at: Any) -> Any:
            return Listed(super().__getitem__(at))

    async def refuse(*_: object, **__: object) -> None:
        raise refusal(Code.NOT_CONTROLLER)

    controller = SimpleNamespace(
        request=refuse,
        request_in_pieces=refuse,
        journal=SimpleNamespace(speculative=SimpleNamespace(settings=SimpleNamespace(partition_changes_max=100))),
    )
    node: Any = SimpleNamespace(controller=controller, create_topics_here=refuse, executor=ThreadExecutor())
    context: Any = SimpleNamespace(is_long=True, api_version=3)
    asyncio.run(handler.handle(node, request_of(Listed([])), context))
    assert threads
    assert threading.get_ident() not in threads
