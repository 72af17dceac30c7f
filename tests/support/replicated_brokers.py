"""Several brokers as production has them, on simulated machines, fed by a controller that has no log of its own.

What the controller decides is production's; it is committed as soon as it is decided, and each broker hears of it at
once, unless a test holds that back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from support.logs import make_batch
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import (
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_MIN,
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    NewTopic,
)
from tidelog.controller.isr_changes import IsrChange, IsrMember, PartitionToAlter
from tidelog.journal import Decision, Journal
from tidelog.metadata import Endpoint, MetadataImage, PartitionImage
from tidelog.metadata.configs import BrokerSettings
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.records import read_records, split_whole_batches
from tidelog.server.api.dispatch import Dispatcher
from tidelog.server.api.fetch_sessions import FetchSessions
from tidelog.server.broker.broker import Broker
from tidelog.server.broker.log_maintenance import LogMaintenance
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.replication import Replication
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.replication_settings import ReplicaFetchSettings
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.listener_roles import BROKER
from tidelog.server.transport.server_connection import ServerConnection
from tidelog.sim.world.machine import Machine
from tidelog.sim.world.world import SimulatedWorld
from tidelog.wire import ConsistencyState
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.api_56_alter_partition import (
    AlteredPartitionData,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

R = TypeVar("R")

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
PORT = 9092
CLIENT = "client"
WAIT_SECONDS_MAX = 120.0
POLL_SECONDS = 0.002
TIMEOUT_MS = 60_000


class TestController:
    """Decides, commits at once, and tells every broker."""

    __test__ = False

    def __init__(self, world: SimulatedWorld, properties: Mapping[str, str]) -> None:
        settings = ControllerSettings(
            cluster_id=None,
            num_partitions=1,
            replication_factor=1,
            delete_topic_enable=True,
            broker=BrokerSettings.of(properties),
            node_id=BrokerId(1),
        )
        self.journal: Journal[ControllerState] = Journal(ControllerState(settings), not_active=Code.NOT_CONTROLLER)
        self.journal.become_active(LeaderEpoch(1), Offset(0))
        self.history: list[tuple[tuple[object, ...], Offset]] = []
        self.servers: list[ReplicatedBroker] = []
        self.answers_nothing = False
        self.delay_seconds = 0.001
        self.requests: list[AlterPartitionRequest] = []
        self.rng = world.rng.stream("controller")
        self.decide(lambda state: state.decide_bootstrap())

    @property
    def image(self) -> MetadataImage:
        return self.journal.committed.image(Offset(self.journal.committed_end_offset - 1))

    def decide(self, decide: Callable[[ControllerState], Decision[Any]]) -> Any:
        ticket = self.journal.submit(Decision.over(self.journal.speculative, decide))
        ready = self.journal.take_ready()
        if ready.batches:
            self.journal.on_committed(ready.batches[-1].end_offset)
        committed = self.journal.take_ready()
        if committed.committed:
            self.history.append((committed.committed, self.journal.committed_end_offset))
            for server in self.servers:
                server.hear()
        for reply in (*ready.replies, *committed.replies):
            if reply.ticket == ticket:
                if isinstance(reply.outcome, Exception):
                    raise reply.outcome
                return reply.outcome
        raise AssertionError("nothing was replied")

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """As the API does, but for the way there."""
        self.requests.append(request)
        await asyncio.sleep(self.delay_seconds)
        if self.answers_nothing:
            raise NetworkError("the controller is away")
        wanted = [
            PartitionToAlter(
                TopicId(topic.topic_id),
                PartitionIndex(one.partition_index),
                IsrChange(
                    LeaderEpoch(one.leader_epoch),
                    one.partition_epoch,  # type: ignore[arg-type]
                    tuple(IsrMember(each.broker_id, each.broker_epoch) for each in one.new_isr_with_epochs),  # type: ignore[arg-type]
                    is_recovering=bool(one.leader_recovery_state),
                ),
            )
            for topic in request.topics
            for one in topic.partitions
        ]
        altered = self.decide(
            lambda state: state.decide_alter_partitions(request.broker_id, request.broker_epoch, wanted)  # type: ignore[arg-type]
        )
        return AlterPartitionResponse(
            topics=[
                AlteredTopic(one.topic_id, [AlteredPartitionData(partition_index=one.partition, error_code=one.code)])
                for one in altered
            ]
        )

    def fence(self, broker_id: int) -> None:
        epoch = self.image.brokers[BrokerId(broker_id)].broker_epoch
        self.decide(lambda state: state.decide_fence_broker(BrokerId(broker_id), epoch))

    def unfence(self, broker_id: int) -> None:
        epoch = self.image.brokers[BrokerId(broker_id)].broker_epoch
        self.decide(lambda state: state.decide_unfence_broker(BrokerId(broker_id), epoch))


class ReplicatedBroker:
    """One broker and its machine; what handlers ask of a node, as far as these tests go."""

    def __init__(self, machine: Machine, broker_id: int, controller: TestController, properties: Mapping[str, str]):
        self.machine = machine
        self.broker_id = BrokerId(broker_id)
        self.config = NodeConfig.from_properties(
            {
                "node.id": str(broker_id),
                "process.roles": "broker,controller",
                "listeners": f"PLAINTEXT://{machine.name}:{PORT},CONTROLLER://{machine.name}:{PORT + 1}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"{broker_id}@{machine.name}:{PORT + 1}",
                "log.dirs": "logs",
                **properties,
            }
        )
        self.is_deaf = False
        """Whether what the controller says does not arrive."""
        self.failures: list[str] = []
        self.previous_epoch: BrokerEpoch | None = None
        self._controller = controller
        self._heard = 0
        self._is_up = False
        machine.disk.make_dirs("logs")
        controller.servers.append(self)

    # What handlers ask.

    @property
    def clock(self) -> Any:
        return self.machine.clock

    @property
    def image(self) -> MetadataImage:
        return self.broker.image

    @property
    def cluster_id(self) -> str:
        return self.files.cluster_id

    @property
    def consistency_state(self) -> ConsistencyState:
        return ConsistencyState(None, None)

    # Its life.

    async def start(self) -> None:
        """Register and be let in; return when it has applied that."""
        await self.machine.start(self._start)

    async def _start(self) -> None:
        machine = self.machine
        rng = machine.new_rng()
        self.files = LogFiles(self.config, disk=machine.disk, clock=machine.clock, rng=rng, executor=machine.executor)
        replication = Replication(
            self.broker_id,
            self.files,
            self._controller.alter_partitions,
            ReplicaFetchSettings.from_properties(self.config.static),
            network=machine.network,
            clock=machine.clock,
            rng=rng,
        )
        self.broker = Broker(
            self.broker_id,
            self.files,
            replication,
            clock=machine.clock,
            executor=machine.executor,
            on_failed=self.failures.append,
        )
        self.broker.incarnation_id = rng.uuid()
        self.fetch_sessions = FetchSessions(100, 1_000, rng)
        self._connections: dict[ServerConnection, None] = {}
        self._memory = ConnectionMemory(1 << 27, 1 << 27, machine.clock)
        dispatcher = Dispatcher(self, BROKER)  # type: ignore[arg-type]
        self.files.open()
        self.files.open_metadata_log()
        acceptor = machine.network.listen(
            machine.name,
            PORT,
            backlog=100,
            admit=partial(self._admit, dispatcher),
            on_trouble=lambda error: self.failures.append(str(error)),
        )
        acceptor.start()
        self._heard, self._is_up = 0, True
        self._tell()
        to_register = BrokerToRegister(
            broker_id=self.broker_id,
            incarnation_id=self.broker.incarnation_id,
            endpoints=(Endpoint("PLAINTEXT", machine.name, PORT),),
            cluster_id=None,
            rack=self.config.rack,
            log_dirs=self.files.directory_ids,
            features=((METADATA_VERSION_FEATURE, METADATA_VERSION_MIN, METADATA_VERSION),),
            previous_broker_epoch=self.previous_epoch,
        )
        controller = self._controller
        controller.decide(
            lambda state: state.decide_register_broker(to_register, next_offset=controller.journal.next_offset)
        )
        self.previous_epoch = controller.image.brokers[self.broker_id].broker_epoch
        await self.broker.applied(controller.journal.committed_end_offset)
        controller.unfence(self.broker_id)
        await self.broker.applied(controller.journal.committed_end_offset)
        maintenance = LogMaintenance(
            self.config, self.files, self.broker, clock=machine.clock, executor=machine.executor
        )
        machine.do(maintenance.run)

    def _admit(self, dispatcher: Dispatcher, ip: str, descriptor: int) -> ServerConnection:
        return ServerConnection(
            dispatcher.on_frame,
            listener_name="PLAINTEXT",
            frame_size_bytes_max=1 << 24,
            connections=self._connections,
            executor=self.machine.executor,
            memory=self._memory,
        )

    def hear(self) -> None:
        """The controller has said something."""
        if self._is_up and not self.is_deaf:
            self.machine.do(self._hear)

    async def _hear(self) -> None:
        self._tell()

    def _tell(self) -> None:
        while not self.is_deaf and self._heard < len(self._controller.history):
            records, end_offset = self._controller.history[self._heard]
            self._heard += 1
            self.broker.on_committed(records, end_offset)

    def tell(self, records: tuple[object, ...], end_offset: Offset) -> None:
        """What the controller decided since, in one step."""
        self._heard = len(self._controller.history)
        self.machine.do(partial(self._apply, records, end_offset))

    async def _apply(self, records: tuple[object, ...], end_offset: Offset) -> None:
        self.broker.on_committed(records, end_offset)

    def kill(self) -> None:
        self._is_up = False
        self.machine.kill()

    def lose_power(self) -> None:
        self._is_up = False
        self.previous_epoch = None
        self.machine.lose_power()

    async def stop(self) -> None:
        self._is_up = False
        await self.machine.do(self._stop)
        self.machine.end()

    async def _stop(self) -> None:
        await self.broker.stop()
        await self.files.close(self.broker.partitions, None)

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.broker.partition(topic, index)

    def values(self, index: int = 0) -> list[bytes]:
        """All that lies in its log."""
        log = self.partition(index).log
        data, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, size_bytes_max=1 << 20, end_offset=log.log_end_offset)
            data += found.read_all()
            offset = found.next_offset
        return values_of(data)


def values_of(data: Any) -> list[bytes]:
    return [
        bytes(record.value or b"")
        for position, header in split_whole_batches(data)
        for record in read_records(data, position, header)
    ]


@dataclass
class ReplicatedCluster:
    """Brokers 1 to n, and a client."""

    world: SimulatedWorld
    count: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)
    racks: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.controller = TestController(self.world, self.properties)
        self.brokers: dict[int, ReplicatedBroker] = {}
        for number in range(1, self.count + 1):
            rack = {"broker.rack": self.racks[number - 1]} if self.racks else {}
            machine = self.world.machine(f"broker-{number}")
            self.brokers[number] = ReplicatedBroker(machine, number, self.controller, {**self.properties, **rack})
        self._client = self.world.machine(CLIENT)

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    async def create(
        self, *, partitions: int = 1, replicas: int | None = None, topic: str = TOPIC, **configs: str
    ) -> None:
        """Create a topic and return when every broker has it."""
        named = tuple((name.replace("_", "."), value) for name, value in configs.items())
        new = NewTopic(topic, partitions, replicas or self.count, configs=named)
        (created,) = self.controller.decide(lambda state: state.decide_create_topics([new], rng=self.controller.rng))
        assert created.code == Code.NONE, created.message
        await self.caught_up()

    async def caught_up(self) -> None:
        """Return when every broker that hears has applied all there is."""
        end_offset = self.controller.journal.committed_end_offset
        for broker in self.brokers.values():
            if broker._is_up and not broker.is_deaf:
                await until(lambda broker=broker: (broker.image.last_offset or 0) + 1 >= end_offset)  # type: ignore[misc]

    def state(self, index: int = 0, topic: str = TOPIC) -> PartitionImage:
        found = self.controller.image.partition(topic, PartitionIndex(index))
        assert found is not None
        return found

    @property
    def leader(self) -> ReplicatedBroker:
        leader = self.state().leader
        assert leader is not None
        return self.brokers[leader]

    @property
    def followers(self) -> list[ReplicatedBroker]:
        state = self.state()
        return [self.brokers[each] for each in state.replicas if each != state.leader]

    # Clients.

    async def ask(self, broker_id: int, request: object, response: type[R], *, version: int) -> R:
        """On a connection of its own: one that waits for its answer holds up what comes behind it."""
        address = Address(f"broker-{broker_id}", PORT)
        connection = await open_connection(self._client.network, address, ConnectionSettings("test"))
        try:
            return await connection.request(request, response, timeout_ms=TIMEOUT_MS, version=version)
        finally:
            connection.close()

    async def produce(
        self,
        *values: str,
        broker: int | None = None,
        acks: int = -1,
        index: int = 0,
        topic: str = TOPIC,
        timeout_ms: int = 30_000,
        batch: Mapping[str, Any] | None = None,
        version: int = 9,
    ) -> PartitionProduceResponse:
        """One batch to the leader, or to who is named."""
        data = PartitionProduceData(index=index, records=memoryview(make_batch(*values, **(batch or {}))))
        request = ProduceRequest(
            acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        to = self.leader.broker_id if broker is None else broker
        answer = await self.ask(to, request, ProduceResponse, version=version)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        offset: int,
        *,
        broker: int | None = None,
        index: int = 0,
        epoch: int = -1,
        last_epoch: int = -1,
        rack: str = "",
        version: int = 12,
    ) -> PartitionData:
        """What a consumer is answered, at once."""
        wanted = FetchPartition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])], rack_id=rack
        )
        to = self.leader.broker_id if broker is None else broker
        answer = await self.ask(to, request, FetchResponse, version=version)
        return answer.responses[0].partitions[0]

    async def in_sync(self, *broker_ids: int, index: int = 0) -> None:
        """Return when the controller says so."""
        await until(lambda: set(self.state(index).isr) == set(broker_ids))

    async def alike(self, index: int = 0) -> None:
        """Return when every broker that is up has what the leader has."""
        await until(
            lambda: len({tuple(broker.values(index)) for broker in self.brokers.values() if broker._is_up}) == 1
        )


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)


def run(
    story: Callable[[ReplicatedCluster], Any],
    *,
    count: int = 3,
    seed: int = 1,
    properties: Mapping[str, str] | None = None,
    racks: Sequence[str] = (),
) -> None:
    """Play a story on a cluster that has started; no broker of it may have failed."""

    async def whole(world: SimulatedWorld) -> None:
        cluster = ReplicatedCluster(world, count, properties or {}, racks)
        await cluster.start()
        await story(cluster)
        assert [broker.failures for broker in cluster.brokers.values()] == [[]] * count

    with SimulatedWorld(seed) as world:
        world.run(whole(world))
