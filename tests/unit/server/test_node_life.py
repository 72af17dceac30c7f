"""A node from start to stop on a disk in memory: what it does when something is in the way; what counts as clean."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from support.clients.wire_client import batch_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, ConfigError, DiskError, KafkaError, NetworkError
from tidelog.base.ids import CLUSTER_METADATA, BrokerId, LeaderEpoch
from tidelog.base.principals import ANONYMOUS, Requester
from tidelog.controller import ControllerState, CreateTopicResult, Heartbeat, TopicToCreate, TopicToDelete
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.journal import Decision
from tidelog.log import Log, LogConfig
from tidelog.metadata.records import FeatureLevelRecord, PartitionChangeRecord, encode_record
from tidelog.net.address import Address
from tidelog.records import BatchBuilder
from tidelog.server.api.forwarding import create_topics_with_defaults
from tidelog.server.api.handlers import api_02_list_offsets, api_03_metadata
from tidelog.server.api.handlers.api_00_produce import handle
from tidelog.server.api.handlers.api_03_metadata import DESCRIBED_AT_ONCE_MAX
from tidelog.server.api.request_context import RequestContext
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.broker.log_maintenance import LogMaintenance
from tidelog.server.node import Node
from tidelog.server.observe.metrics_listener import MetricsListener
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.listener_roles import BROKER
from tidelog.server.transport.server_connection import ServerConnection
from tidelog.wire import ApiKey, RequestHeader
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.api_02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MARKER = "logs/.kafka_cleanshutdown"
METADATA = "logs/__cluster_metadata-0"
SECONDS_MAX = 60.0


def new_node(disk: MemoryDisk, port: int = 0, **settings: str) -> Node:
    """A process of its own, as far as the disk can tell."""
    disk.locked.clear()
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "log.dirs": "logs",
    }
    more = {key.replace("_", "."): value for key, value in settings.items()}
    config = NodeConfig.from_properties(properties | more)
    return Node(
        config, disk=disk, network=RealNetwork(), clock=SystemClock(), rng=SystemRng(), executor=InlineExecutor()
    )


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), SECONDS_MAX)

    asyncio.run(bounded())


async def run_once(disk: MemoryDisk, *topics: str) -> None:
    """Start, make topics, stop cleanly."""
    node = new_node(disk)
    await node.start()
    for result in await node.create_topics([TopicToCreate(name, 1, 1) for name in topics]):
        assert result.code == 0, result.message
    await node.stop()


def append_metadata(disk: MemoryDisk, record: object) -> None:
    log = Log.open(disk, METADATA, CLUSTER_METADATA, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=0)
    builder = BatchBuilder()
    builder.append(0, None, encode_record(record))
    epoch = log.lineage.latest_leader_epoch or LeaderEpoch(0)
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=epoch, now_ms=0, origin="controller")
    log.close()


def test_who_is_told_of_a_role_finds_the_metadata_that_gave_it() -> None:
    class Probe(BrokerListener):
        def __init__(self, node: Node) -> None:
            self.broker = node.broker

        def on_leadership_changed(self, partition: Partition) -> None:
            known.append(partition.topic_partition.topic in self.broker.newest_image.topics_by_name)

    known: list[bool] = []

    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        node.broker.add_listener(Probe(node))
        await node.create_topics([TopicToCreate("flights", 1, 1)])
        assert known == [True]
        assert node.broker.newest_image is node.broker.image
        await node.stop()

    run(scenario)


def test_a_broker_that_cannot_follow_the_metadata_fails_the_start_with_the_reason() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = new_node(disk)
        await node.start()
        (topic,) = await node.create_topics([TopicToCreate("flights", 1, 1)])
        await node.stop()
        assert topic.topic_id is not None
        # A leader outside of its ISR: whoever wrote that had a bug.
        append_metadata(disk, PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, isr=[7]))
        node = new_node(disk)
        starting: asyncio.Future[Any] = asyncio.ensure_future(node.start())
        await asyncio.wait([starting, node.failure], return_when=asyncio.FIRST_COMPLETED)
        assert "not in its ISR" in node.failure.result()
        starting.cancel()
        await node.stop()
        assert not disk.exists(MARKER)

    run(scenario)


def test_a_partition_that_is_ahead_of_the_metadata_goes_offline_and_the_others_serve() -> None:
    """The metadata log was put back from a backup."""

    async def scenario() -> None:
        disk = MemoryDisk()
        await run_once(disk, "ahead", "fine")
        log = Log.open(
            disk, "logs/ahead-0", CLUSTER_METADATA, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=0
        )
        log.assign_leader_epoch(LeaderEpoch(99))
        log.close()
        node = new_node(disk)
        await node.start()
        assert node.broker.partition("fine", 0).replica is not None
        with pytest.raises(KafkaError, match=r"leader epoch 99.*older than the data") as refused:
            node.broker.partition("ahead", 0)
        assert refused.value.code.name == "KAFKA_STORAGE_ERROR"
        await node.stop()
        assert not disk.exists(MARKER)

    run(scenario)


def test_a_port_that_is_taken_leaves_a_clean_stop_clean_and_an_unclean_one_unclean() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await run_once(disk, "flights")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for is_clean in (True, False):
                if not is_clean:
                    disk.remove(MARKER)
                node = new_node(disk, port)
                with pytest.raises(NetworkError, match=str(port)):
                    await node.start()
                await node.stop()
                assert disk.exists(MARKER) is is_clean

    run(scenario)


def test_a_start_that_came_half_way_is_no_clean_stop() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await run_once(disk, "flights")
        disk.remove(MARKER)
        node = new_node(disk)
        disk.refusals.add("quorum-state.tmp")
        with pytest.raises(Exception, match="quorum-state"):
            await node.start()
        disk.refusals.clear()
        await node.stop()
        assert not disk.exists(MARKER)  # nobody has looked at flights-0 since it was left in whatever state

    run(scenario)


def test_a_metadata_log_that_cannot_be_written_fails_the_node_and_says_so() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = new_node(disk)
        await node.start()
        disk.free_write_bytes = 0
        with pytest.raises(KafkaError):
            await node.create_topics([TopicToCreate("flights", 1, 1)])
        assert "no space left" in await node.failure
        disk.free_write_bytes = None
        await node.stop()
        assert not disk.exists(MARKER)

    run(scenario)


def test_a_record_that_cannot_be_written_fails_the_node_rather_than_part_the_journal_from_its_log() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        too_large = FeatureLevelRecord(name="a.feature", feature_level=1 << 20)
        with pytest.raises(KafkaError):
            await node.controller.request(lambda _: Decision((too_large,), None))
        assert "feature_level" in await node.failure
        await node.stop()

    run(scenario)


def test_a_flipped_bit_in_the_metadata_is_found_after_a_clean_stop_too() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await run_once(disk, "flights")
        data = disk.files[f"{METADATA}/00000000000000000000.log"].data
        data[data.index(b"flights")] ^= 1
        node = new_node(disk)
        with pytest.raises(Exception, match=rf"{METADATA}.*CRC"):
            await node.start()
        await node.stop()
        assert disk.exists("logs/flights-0/00000000000000000000.log")

    run(scenario)


def test_upkeep_that_ends_takes_the_node_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk())

        async def ends(_: object) -> None:
            raise ZeroDivisionError("of the upkeep")

        monkeypatch.setattr(LogMaintenance, "run", ends)
        await node.start()
        assert "of the upkeep" in await node.failure
        await node.stop()

    run(scenario)


def test_a_broker_may_lead_only_when_it_has_seen_its_own_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it led before, it then leads in a new epoch, and knows so (rule 6)."""

    async def scenario() -> None:
        node = new_node(MemoryDisk())
        seen: list[bool] = []
        decide = ControllerState.decide_heartbeat

        def decide_and_look(state: ControllerState, heartbeat: Heartbeat, *rest: Any, **more: Any) -> Any:
            decision = decide(state, heartbeat, *rest, **more)
            known = node.image.brokers.get(heartbeat.broker_id)
            if not decision.reply.is_fenced:
                seen.append(known is not None and known.broker_epoch == heartbeat.broker_epoch)
            return decision

        apply = node.broker._apply

        async def apply_late(committed: Any) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            await apply(committed)

        monkeypatch.setattr(ControllerState, "decide_heartbeat", decide_and_look)
        monkeypatch.setattr(node.broker, "_apply", apply_late)
        await node.start()
        await node.stop()
        assert seen
        assert all(seen)

    run(scenario)


def test_deleting_a_topic_that_is_offline_gives_its_space_back_and_lets_another_have_its_name() -> None:
    """A full disk takes a partition offline; deleting it must help."""

    async def scenario() -> None:
        disk = MemoryDisk()
        node = new_node(disk)
        await node.start()
        (topic,) = await node.create_topics([TopicToCreate("flights", 1, 1)])
        old = node.broker.partition("flights", 0)
        node.broker.failures.on_disk_error(old, DiskError("logs/flights-0", "no space left"))
        assert topic.topic_id is not None
        wanted = [TopicToDelete(topic_id=topic.topic_id)]
        await node.controller.request(lambda state: state.decide_delete_topics(wanted))
        await node.caught_up()
        assert not disk.is_directory("logs/flights-0")
        assert any(path.endswith("-delete") for path in disk.directories)
        await node.create_topics([TopicToCreate("flights", 1, 1)])
        new = node.broker.partition("flights", 0)
        node.broker.failures.on_disk_error(old, DiskError("logs/flights-0", "a flush that came late"))
        assert node.broker.partition("flights", 0) is new
        await node.stop()
        assert disk.exists(MARKER)

    run(scenario)


def test_a_node_is_ready_while_it_serves_and_says_why_when_it_does_not() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk())
        assert node.not_ready is not None
        assert node.not_ready.startswith("it starts: ")
        await node.start()
        assert node.not_ready is None
        await node.stop()
        assert node.not_ready == "it stops"
        node.failure.set_result("the metadata log failed")
        assert node.not_ready == "the metadata log failed"

    run(scenario)


def test_metrics_can_be_read_in_every_phase_of_a_node() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk(), metrics_listener="HTTP://127.0.0.1:0", metrics_partitions_enable="true")
        listener = MetricsListener(node, InlineExecutor(), node.tasks)

        async def ready() -> bytes:
            status, _, body = await listener._answer(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert status == 200
            return next(line for line in body.splitlines() if line.startswith(b"tidelog_node_ready "))

        assert await ready() == b"tidelog_node_ready 0.0"
        await node.start()
        assert await ready() == b"tidelog_node_ready 1.0"
        await node.stop()
        assert await ready() == b"tidelog_node_ready 0.0"

    run(scenario)


class Swept(ServerConnection):
    """Counts how often the node looks whether it is idle."""

    def __init__(self) -> None:
        self.listener_name = "PLAINTEXT"
        self.requester = Requester(ANONYMOUS, "127.0.0.1")
        self.sweeps = 0

    def sweep(self, sweeps_max: int | None) -> None:
        self.sweeps += 1

    def close_when_answered(self) -> None: ...

    def close(self, why: Closed = Closed.STOPPED) -> None: ...


def test_connections_that_may_not_idle_at_all_do_not_keep_the_node_busy() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk(), connections_max_idle_ms="0")
        await node.start()
        connection = Swept()
        node.connections.open[connection] = None
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert connection.sweeps < 100
        node.connections.open.clear()
        await node.stop()

    run(scenario)


def test_many_topics_that_cannot_be_made_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk(), default_replication_factor="3")
        await node.start()
        caplog.clear()
        await create_topics_with_defaults(node, [f"topic-{number}" for number in range(101)])
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
            "topic topic-0 (and 100 more) was not created"
        ]
        await node.stop()

    run(scenario)


def test_missing_topics_are_made_a_few_portions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, each waits for syncs of its own: ten thousand took 34 s."""

    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        under_way, seen = 0, list[tuple[int, int]]()
        create = node.create_topics

        async def counted(
            topics: Sequence[TopicToCreate], context: RequestContext | None
        ) -> tuple[CreateTopicResult, ...]:
            nonlocal under_way
            under_way += 1
            seen.append((under_way, len(topics)))
            created = await create(topics, context)
            under_way -= 1
            return created

        monkeypatch.setattr(node, "create_topics", counted)
        await create_topics_with_defaults(node, [f"topic-{number}" for number in range(101)])
        assert seen == [(1, 16), (2, 16), (3, 16), (4, 16), (1, 16), (2, 16), (3, 5)]
        assert len(node.image.topics_by_name) == 101
        await node.stop()

    run(scenario)


@pytest.mark.parametrize(("flush_messages", "synced"), [("1", 2), ("2", 2), ("3", 0)])
def test_records_are_synced_before_they_are_acknowledged_where_that_is_asked_for(
    flush_messages: str, synced: int
) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = new_node(disk)
        await node.start()
        await node.create_topics([TopicToCreate("flights", 1, 1, configs=[("flush.messages", flush_messages)])])
        row = await produce(node, batch_of(b"one", b"two"))
        assert (row.error_code, row.base_offset) == (0, 0)
        assert node.broker.partition("flights", 0).log.recovery_point == synced
        await node.stop()

    run(scenario)


def test_a_sync_that_fails_is_no_acknowledgement() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = new_node(disk)
        await node.start()
        await node.create_topics([TopicToCreate("flights", 1, 1, configs=[("flush.messages", "1")])])
        disk.refusals.add("sync")
        row = await produce(node, batch_of(b"one"))
        disk.refusals.clear()
        assert (Code(row.error_code), row.base_offset) == (Code.KAFKA_STORAGE_ERROR, -1)
        with pytest.raises(KafkaError, match="offline"):
            node.broker.partition("flights", 0)
        await node.stop()

    run(scenario)


async def produce(node: Node, batch: bytes) -> PartitionProduceResponse:
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    request = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="flights", partition_data=[data])]
    )
    header = RequestHeader(ApiKey.PRODUCE, 9, 1, None, None)
    answer = handle(node, request, RequestContext(header, Swept(), BROKER))
    response = await answer if isinstance(answer, Awaitable) else answer
    assert response is not None
    return response.responses[0].partition_responses[0]


def test_logs_without_the_metadata_that_says_whose_they_are_keep_a_node_from_starting() -> None:
    """A disk that was not mounted must not make every topic vanish."""

    async def scenario() -> None:
        disk = MemoryDisk()
        await run_once(disk, "flights")
        disk.remove_tree(METADATA)
        node = new_node(disk)
        with pytest.raises(ConfigError, match=f"{METADATA} is missing.*flights-0"):
            await node.start()
        await node.stop()
        assert disk.is_directory("logs/flights-0")

    run(scenario)


def test_a_broker_is_in_its_metadata_answer_where_all_are_fenced() -> None:
    """As a cluster stops. librdkafka drops every connection that is not in the answer, and asks nobody any more."""

    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        epoch = node.image.brokers[BrokerId(1)].broker_epoch
        await node.controller.request(lambda state: state.decide_fence_broker(BrokerId(1), epoch))
        while not node.image.brokers[BrokerId(1)].is_fenced:
            await asyncio.sleep(0)
        context = RequestContext(RequestHeader(ApiKey.METADATA, 12, 1, None, None), Swept(), BROKER)
        answer = api_03_metadata.handle(node, MetadataRequest(topics=[]), context)
        assert isinstance(answer, MetadataResponse)
        assert [broker.node_id for broker in answer.brokers] == [1]
        await node.stop()

    run(scenario)


def test_the_topics_of_coordinators_are_not_made_because_a_client_asks_for_them() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        names = ["__consumer_offsets", "__transaction_state", "flights"]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        header = RequestHeader(ApiKey.METADATA, 12, 1, None, None)
        answer = api_03_metadata.handle(node, request, RequestContext(header, Swept(), BROKER))
        response = await answer if isinstance(answer, Awaitable) else answer
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        assert [Code(topic.error_code) for topic in response.topics] == [unknown, unknown, Code.NONE]
        assert set(node.image.topics_by_name) == {"flights"}
        await node.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("listeners", "protocols", "warned"),
    [
        ("PLAINTEXT://:0,C://:0", "C:PLAINTEXT,PLAINTEXT:PLAINTEXT", ["PLAINTEXT", "C"]),
        ("PLAINTEXT://127.0.0.1:0,C://localhost:0", "C:PLAINTEXT,PLAINTEXT:PLAINTEXT", []),
        ("PLAINTEXT://:0,C://127.0.0.1:0", "C:PLAINTEXT,PLAINTEXT:PLAINTEXT", ["PLAINTEXT"]),
        ("A://:0,PLAINTEXT://127.0.0.1:0,C://127.0.0.1:0", "A:SASL_PLAINTEXT,C:PLAINTEXT,PLAINTEXT:PLAINTEXT", []),
    ],
)
def test_who_asks_nobody_who_it_is_is_warned_of_it(
    caplog: pytest.LogCaptureFixture, listeners: str, protocols: str, warned: list[str]
) -> None:
    async def scenario() -> None:
        node = new_node(
            MemoryDisk(),
            listeners=listeners,
            controller_listener_names="C",
            listener_security_protocol_map=protocols,
            sasl_enabled_mechanisms="SCRAM-SHA-256",
        )
        await node.start()
        await node.stop()
        lines = [record.getMessage() for record in caplog.records if "nobody there is asked" in record.getMessage()]
        assert [line.partition(":")[0] for line in lines] == [f"listener {name}" for name in warned]

    run(scenario)


def test_who_listens_everywhere_is_warned_of_what_clients_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        for listeners, is_warned in (("PLAINTEXT://:0,C://:0", True), ("PLAINTEXT://127.0.0.1:0,C://:0", False)):
            caplog.clear()
            protocols = "C:PLAINTEXT,PLAINTEXT:PLAINTEXT"
            node = new_node(
                MemoryDisk(),
                listeners=listeners,
                controller_listener_names="C",
                listener_security_protocol_map=protocols,
            )
            await node.start()
            await node.stop()
            assert ("advertised.listeners=PLAINTEXT" in caplog.text) is is_warned

    run(scenario)


def test_many_looks_into_the_log_leave_others_their_turn_and_each_partition_has_one() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        await node.create_topics([TopicToCreate("flights", 50, 1)])
        partitions = [ListOffsetsPartition(partition_index=index % 49, timestamp=5) for index in range(50)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="flights", partitions=partitions)])
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        busy = asyncio.ensure_future(others())
        header = RequestHeader(ApiKey.LIST_OFFSETS, 7, 1, None, None)
        answer = api_02_list_offsets.handle(node, request, RequestContext(header, Swept(), BROKER))
        assert not isinstance(answer, ListOffsetsResponse)
        response = await answer
        busy.cancel()
        assert turns >= 48
        codes = [Code(row.error_code) for row in response.topics[0].partitions]
        assert codes == [Code.INVALID_REQUEST, *[Code.NONE] * 48, Code.INVALID_REQUEST]
        await node.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("advertised", "told"),
    [("PLAINTEXT://k1.example:19092", "k1.example:19092"), ("PLAINTEXT://[::1]:7", "[::1]:7"), (None, "127.0.0.1:{}")],
)
def test_clients_are_told_the_advertised_port_with_the_advertised_host(advertised: str | None, told: str) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        node = new_node(disk) if advertised is None else new_node(disk, advertised_listeners=advertised)
        await node.start()
        first = node.listeners.first
        assert str(Address(first.host, first.port)) == told.format(first.port)
        await node.stop()

    run(scenario)


def test_much_metadata_is_told_on_another_thread_as_it_was_when_it_was_asked_for() -> None:
    async def scenario() -> None:
        node = new_node(MemoryDisk())
        await node.start()
        await node.create_topics([TopicToCreate("few", 3, 1), TopicToCreate("many", DESCRIBED_AT_ONCE_MAX, 1)])
        many_id = node.image.topics_by_name["many"].topic_id
        for topics, told in (
            (None, {"few": 3, "many": DESCRIBED_AT_ONCE_MAX}),
            ([MetadataRequestTopic(name="many")], {"many": DESCRIBED_AT_ONCE_MAX}),
            ([MetadataRequestTopic(topic_id=many_id, name=None)], {"many": DESCRIBED_AT_ONCE_MAX}),
            ([MetadataRequestTopic(name="few"), MetadataRequestTopic(name="none")], {"few": 3, "none": 0}),
        ):
            context = RequestContext(RequestHeader(ApiKey.METADATA, 12, 1, None, None), Swept(), BROKER)
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            answer = api_03_metadata.handle(node, request, context)
            assert isinstance(answer, Awaitable) is context.is_long is ("many" in told)
            assert context.read(node).state == node.consistency_state
            response = await answer if isinstance(answer, Awaitable) else answer
            assert {topic.name: len(topic.partitions) for topic in response.topics} == told
        await node.stop()

    run(scenario)
