"""A broker's life, with a controller that answers as the test says, and metadata that comes when the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import pytest

from support.fixtures.lone_broker import lone_replication
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.scripted_broker import SILENT, ScriptedBroker
from tidelog.base.errors import Code, ConfigError, TimedOutError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.controller.leaders import LOST_DIRECTORY
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.log.files.incarnation import Incarnation
from tidelog.metadata import RegisteredEndpoint
from tidelog.metadata.features import own_features
from tidelog.metadata.records.brokers import (
    FENCED,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCED,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from tidelog.metadata.records.topics import PartitionRecord, TopicRecord
from tidelog.net.address import Address
from tidelog.server.broker.broker import Broker
from tidelog.server.membership.broker_lifecycle import BrokerLifecycle
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.notifier import Notifier
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_62_broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tidelog.wire.messages.api_63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.api_73_assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartition,
    AssignedPartitionResult,
    AssignedTopic,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

R = TypeVar("R")

SECONDS_MAX = 60.0
FOREVER_MS = 3_600_000
EPOCH = BrokerEpoch(7)
INCARNATION = ".tidelog_incarnation"
US, OTHER = 1, 2
LET_IN = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
LOG, LIST = "logs/flights-0", "logs/.tidelog_replicas"
TOPIC_ID = UUID(int=5)
REPLICA = (
    TopicRecord(name="flights", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[OTHER, US],
        isr=[OTHER, US],
        leader=OTHER,
        leader_epoch=0,
        partition_epoch=0,
    ),
)
NOT_YET = BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True)


class SoleController:
    """Who leads the quorum, whenever anybody does."""

    def __init__(self, leader_id: BrokerId, leader_address: Address) -> None:
        self.leader_id = leader_id
        self.leader_epoch = LeaderEpoch(1)
        self._address = leader_address
        self._changed = Notifier()
        self.is_leaderless = False
        self.leaderless_ms = 0
        self.voters_heard = "1 of the 3 voters answers"

    @property
    def leader_address(self) -> Address | None:
        return None if self.is_leaderless else self._address

    def leads(self, *, is_so: bool) -> None:
        self.is_leaderless = not is_so
        self._changed.notify()

    async def leader_changed(self) -> None:
        await self._changed.wait()


class PatientChannel(ControllerChannel):
    """Notes how long each request may take."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.patience_ms: list[int] = []

    async def request(self, message: object, response: type[R], *, timeout_ms: int, **named: Any) -> R:
        self.patience_ms.append(timeout_ms)
        return await super().request(message, response, timeout_ms=timeout_ms, **named)


class World:
    """One broker, and what it is told.

    Attributes:
        failure: why it said that its node has to stop.
    """

    def __init__(self, controller: ScriptedBroker, disk: MemoryDisk, **settings: str) -> None:
        disk.locked.clear()
        properties = {
            "node.id": str(US),
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{US}@127.0.0.1:0",
            "log.dirs": "logs",
            "broker.rack": "r1",
            "broker.heartbeat.interval.ms": str(FOREVER_MS),
        }
        config = NodeConfig.from_properties(
            properties | {key.replace("_", "."): value for key, value in settings.items()}
        )
        parts: dict[str, Any] = {"clock": SystemClock(), "executor": InlineExecutor(), "tasks": Tasks("node")}
        self.disk = disk
        self.controller = controller
        self.failure: str | None = None
        self.files = LogFiles(config, disk=disk, rng=SystemRng(), room_for_logs=lambda: None, **parts)
        self.files.open()
        self.files.open_metadata_log()
        replication = lone_replication(config.node_id, self.files.served, parts["clock"])
        self.broker = Broker(config.node_id, UUID(int=US), self.files, replication, on_failed=self.fail, **parts)
        self.quorum = SoleController(config.node_id, Address("127.0.0.1", controller.port))
        self.channel = PatientChannel(
            config.node_id,
            self.files.cluster_id,
            self.quorum,
            network=RealNetwork(),
            rng=SystemRng(),
        )
        self.lifecycle = BrokerLifecycle(
            config,
            self.files.cluster_id,
            [RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 9092)],
            broker=self.broker,
            files=self.files,
            channel=self.channel,
            rng=SystemRng(),
            on_failed=self.fail,
        )
        self.starting: asyncio.Future[None] | None = None
        self.registers(EPOCH)
        self.hears(lambda _: SILENT)

    def fail(self, reason: str) -> None:
        self.failure = reason

    def registers(self, *answers: BrokerEpoch | Code) -> None:
        """The controller answers so, and with the last of them from then on."""
        left = list(answers)

        def answer(request: BrokerRegistrationRequest, _: int) -> BrokerRegistrationResponse:
            one = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(one, Code):
                return BrokerRegistrationResponse(error_code=one)
            return BrokerRegistrationResponse(broker_epoch=one)

        self.controller.on(ApiKey.BROKER_REGISTRATION, answer)

    def hears(self, answer: Callable[[BrokerHeartbeatRequest], object]) -> None:
        self.controller.on(ApiKey.BROKER_HEARTBEAT, lambda request, _: answer(request))

    @property
    def registrations(self) -> list[BrokerRegistrationRequest]:
        return self.controller.messages(ApiKey.BROKER_REGISTRATION)

    @property
    def heartbeats(self) -> list[BrokerHeartbeatRequest]:
        return self.controller.messages(ApiKey.BROKER_HEARTBEAT)

    def commit(self, offset: int, *records: object) -> None:
        """The metadata up to this offset, inclusive."""
        self.broker.on_committed(records, Offset(offset + 1))

    def commit_registration(self, broker_id: int = US, epoch: int = EPOCH, *, fenced: bool = True) -> None:
        self.commit(
            epoch,
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=(broker_id == US and self.broker.incarnation_id) or UUID(int=broker_id),
                broker_epoch=epoch,
                end_points=[BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0)],
                features=[],
                fenced=fenced,
            ),
        )

    def commit_fence(self, offset: int, fenced: int, epoch: int = EPOCH) -> None:
        record = BrokerRegistrationChangeRecord(broker_id=US, broker_epoch=epoch, fenced=fenced)
        self.commit(offset, record)

    async def let_in(self) -> None:
        """Start it, as far as that it may lead."""
        self.hears(lambda _: LET_IN)
        starting = asyncio.ensure_future(self.lifecycle.start())
        await until(lambda: self.lifecycle.broker_epoch == EPOCH)
        self.commit_registration()
        await until(lambda: bool(self.heartbeats))
        self.commit_fence(EPOCH + 1, UNFENCED)
        await starting
        await until(lambda: len(self.heartbeats) >= 2)  # it tells at once that it knows

    @property
    def assignments(self) -> list[AssignReplicasToDirsRequest]:
        return self.controller.messages(ApiKey.ASSIGN_REPLICAS_TO_DIRS)

    async def stop(self) -> None:
        if self.starting is not None:
            self.starting.cancel()
        await self.lifecycle.stop()
        await self.broker.stop()
        await self.channel.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(scenario: Callable[[World], Awaitable[None]], disk: MemoryDisk | None = None, **settings: str) -> None:
    async def main() -> None:
        async with ScriptedBroker() as controller, asyncio.timeout(SECONDS_MAX):
            world = World(controller, disk or MemoryDisk(), **settings)
            try:
                await scenario(world)
            finally:
                await world.stop()

    asyncio.run(main())


def test_it_says_what_it_is() -> None:
    async def scenario(world: World) -> None:
        await world.let_in()
        (request,) = world.registrations
        assert (request.broker_id, request.cluster_id, request.rack) == (US, world.files.cluster_id, "r1")
        assert request.incarnation_id == UUID(int=US)
        assert [(one.name, one.host, one.port) for one in request.listeners] == [("PLAINTEXT", "127.0.0.1", 9092)]
        assert request.log_dirs == list(world.files.directory_ids)
        features = [(one.name, one.min_supported_version, one.max_supported_version) for one in request.features]
        assert tuple(features) == own_features()
        assert request.previous_broker_epoch == -1

    run(scenario)


def test_it_asks_to_lead_once_it_has_seen_its_own_registration_and_its_files_say_who_writes() -> None:
    async def scenario(world: World) -> None:
        noted: list[bool] = []

        def hear(request: BrokerHeartbeatRequest) -> object:
            noted.append(world.disk.exists(f"logs/{INCARNATION}"))
            return LET_IN

        world.hears(hear)
        starting = asyncio.ensure_future(world.lifecycle.start())
        await until(lambda: world.lifecycle.broker_epoch == EPOCH)
        await asyncio.sleep(0.01)
        assert not world.heartbeats, "the interval is long, and it has not seen itself"
        world.commit_registration()
        await until(lambda: bool(world.heartbeats))
        first = world.heartbeats[0]
        assert (first.broker_epoch, first.current_metadata_offset, first.want_fence) == (EPOCH, EPOCH, False)
        assert noted == [True]
        assert not starting.done(), "that it may lead, the metadata has to say"
        world.commit_fence(EPOCH + 1, UNFENCED)
        await starting

    run(scenario)


def test_it_tells_once_it_knows_what_there_was_when_it_registered() -> None:
    async def scenario(world: World) -> None:
        told: list[bool] = []
        world.hears(lambda _: LET_IN)
        starting = asyncio.ensure_future(world.lifecycle.start(lambda: told.append(starting.done())))
        await until(lambda: world.lifecycle.broker_epoch == EPOCH)
        await asyncio.sleep(0.01)
        assert not told
        world.commit_registration()
        await until(lambda: bool(told))
        assert told == [False], "it may not lead yet"
        world.commit_fence(EPOCH + 1, UNFENCED)
        await starting
        assert told == [False]

    run(scenario)


def test_while_its_logs_are_being_opened_it_is_heard_of_and_does_not_ask_to_lead() -> None:
    async def scenario(world: World) -> None:
        world.hears(lambda _: NOT_YET)
        starting = asyncio.ensure_future(world.lifecycle.start())
        await until(lambda: len(world.heartbeats) >= 2)
        assert all(one.want_fence and one.current_metadata_offset == -1 for one in world.heartbeats)
        starting.cancel()

    run(scenario, broker_heartbeat_interval_ms="10")


def test_who_is_fenced_in_the_midst_says_at_once_that_it_is_there() -> None:
    async def scenario(world: World) -> None:
        await world.let_in()
        before = len(world.heartbeats)
        world.commit_fence(EPOCH + 2, FENCED)
        await until(lambda: len(world.heartbeats) > before)
        assert not world.heartbeats[-1].want_fence
        assert world.heartbeats[-1].current_metadata_offset == EPOCH + 2

    run(scenario)


@pytest.mark.parametrize(("end", "presented"), [("crash", EPOCH), ("power", -1)])
def test_what_it_presents_after_another_end_than_a_clean_stop(end: str, presented: int) -> None:
    disk = MemoryDisk()

    async def first(world: World) -> None:
        await world.let_in()

    async def second(world: World) -> None:
        starting = asyncio.ensure_future(world.lifecycle.start())
        await until(lambda: bool(world.registrations))
        assert world.registrations[0].previous_broker_epoch == presented
        starting.cancel()

    run(first, disk)
    if end == "power":
        disk.lose_power(Random(3))
    else:
        disk.crash()
    run(second, disk)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Code.INCONSISTENT_CLUSTER_ID, "the log directories of this node are of cluster"),
        (Code.UNSUPPORTED_VERSION, "run the release that the others run"),
        (Code.INVALID_REQUEST, "the controller refuses this broker: INVALID_REQUEST"),
    ],
)
def test_a_refusal_for_good_ends_the_start_and_says_what_to_do(code: Code, text: str) -> None:
    async def scenario(world: World) -> None:
        world.registers(code)
        with pytest.raises(ConfigError, match=text):
            await world.lifecycle.start()

    run(scenario)


def test_another_process_with_its_id_is_given_the_time_to_turn_out_dead() -> None:
    async def scenario(world: World) -> None:
        world.registers(Code.DUPLICATE_BROKER_REGISTRATION, Code.DUPLICATE_BROKER_REGISTRATION, EPOCH)
        await world.let_in()
        assert len(world.registrations) == 3

    run(scenario)


def test_another_process_with_its_id_that_lives_is_an_error_that_names_it() -> None:
    async def scenario(world: World) -> None:
        world.registers(Code.DUPLICATE_BROKER_REGISTRATION)
        with pytest.raises(ConfigError, match="another process serves as broker 1 of this cluster"):
            await world.lifecycle.start()

    run(scenario, broker_session_timeout_ms="20")


def test_without_a_controller_it_gives_up_in_its_time() -> None:
    async def scenario(world: World) -> None:
        world.controller.on(ApiKey.BROKER_REGISTRATION, lambda request, version: SILENT)
        with pytest.raises(TimedOutError, match=r"within 50 ms \(initial.broker.registration.timeout.ms\): no answer"):
            await world.lifecycle.start()

    run(scenario, initial_broker_registration_timeout_ms="50")


def test_each_leader_has_the_whole_time_to_take_it_in() -> None:
    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()

        async def time_has_passed() -> None:
            now = loop.time()
            await until(lambda: loop.time() > now + 0.02)

        world.quorum.leads(is_so=False)
        world.controller.on(ApiKey.BROKER_REGISTRATION, lambda request, version: SILENT)
        world.starting = asyncio.ensure_future(world.lifecycle.start())
        await time_has_passed()
        assert not world.channel.patience_ms
        for count in (1, 2, 3):
            world.quorum.leads(is_so=True)
            await until(lambda count=count: len(world.registrations) == count)  # type: ignore[misc]
            await time_has_passed()
            world.quorum.leads(is_so=False)
            await time_has_passed()
        assert world.channel.patience_ms == [60_000] * 3

    run(scenario)


@pytest.mark.parametrize("code", [Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED])
def test_a_controller_that_does_not_know_it_is_asked_to_take_it_in_again(code: Code) -> None:
    async def scenario(world: World) -> None:
        await world.let_in()
        later = BrokerEpoch(EPOCH + 10)
        world.registers(later)
        world.hears(
            lambda request: LET_IN if request.broker_epoch == later else BrokerHeartbeatResponse(error_code=code)
        )
        world.commit_fence(EPOCH + 2, FENCED)  # so that it does not wait for its interval
        await until(lambda: world.lifecycle.broker_epoch == later)
        assert world.registrations[-1].previous_broker_epoch == EPOCH, "this process has all that it wrote"
        assert world.registrations[-1].incarnation_id == world.registrations[0].incarnation_id
        before = len(world.heartbeats)
        world.commit_registration(epoch=later)
        await until(lambda: len(world.heartbeats) > before)
        assert world.heartbeats[-1].broker_epoch == later
        assert f'"brokerEpoch":{later}'.encode() in world.disk.read_bytes(f"logs/{INCARNATION}")

    run(scenario)


def test_who_is_killed_while_it_registers_is_the_same_incarnation_at_the_next_start() -> None:
    disk = MemoryDisk()

    async def first(world: World) -> None:
        world.controller.on(ApiKey.BROKER_REGISTRATION, lambda request, version: SILENT)
        starting = asyncio.ensure_future(world.lifecycle.start())
        await until(lambda: bool(world.registrations))
        assert world.files.incarnations.previous.registers is None
        starting.cancel()

    async def second(world: World) -> None:
        assert world.files.incarnations.previous.registers == UUID(int=US)
        await world.let_in()
        assert f'"incarnation":"{UUID(int=US)}"'.encode() in world.disk.read_bytes(f"logs/{INCARNATION}")

    async def third(world: World) -> None:
        assert world.files.incarnations.previous == Incarnation(EPOCH)

    for each in (first, second, third):
        run(each, disk)
        disk.crash()


def test_a_broker_whose_id_another_process_has_taken_stops_its_node() -> None:
    async def scenario(world: World) -> None:
        await world.let_in()
        world.registers(Code.DUPLICATE_BROKER_REGISTRATION)
        world.hears(lambda _: BrokerHeartbeatResponse(error_code=Code.STALE_BROKER_EPOCH))
        world.commit_fence(EPOCH + 2, FENCED)
        await until(lambda: world.failure is not None)
        assert "another process serves as broker 1" in str(world.failure)

    run(scenario, broker_session_timeout_ms="20")


async def with_replica(world: World) -> None:
    await world.let_in()
    world.commit(EPOCH + 2, *REPLICA)
    await until(lambda: world.disk.exists(LOG))


def lose_replica(disk: MemoryDisk) -> None:
    disk.crash()
    disk.remove_tree(LOG)


async def registered_without_replica(world: World) -> None:
    world.registers(BrokerEpoch(EPOCH + 5), BrokerEpoch(EPOCH + 10))
    world.hears(lambda _: LET_IN)
    world.starting = asyncio.ensure_future(world.lifecycle.start())
    await until(lambda: world.lifecycle.broker_epoch == EPOCH + 5)
    world.commit(EPOCH + 2, *REPLICA)
    world.commit_registration(epoch=EPOCH + 5)
    await until(lambda: bool(world.assignments))


def noted(code: Code) -> AssignReplicasToDirsResponse:
    topic = AssignedTopicResult(TOPIC_ID, [AssignedPartitionResult(0, code)])
    return AssignReplicasToDirsResponse(directories=[AssignedDirectoryResult(LOST_DIRECTORY, [topic])])


def test_a_replica_that_is_gone_is_told_before_the_broker_asks_to_be_let_in() -> None:
    """Until that is committed nothing lies in its place."""
    disk = MemoryDisk()

    async def lost(world: World) -> None:
        world.controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda *_: SILENT)
        await registered_without_replica(world)
        (told,) = world.assignments
        (directory,) = told.directories
        assert (told.broker_epoch, directory.id) == (EPOCH + 5, LOST_DIRECTORY)
        assert directory.topics == [AssignedTopic(TOPIC_ID, [AssignedPartition(0)])]
        assert not world.heartbeats
        assert not disk.exists(LOG)

    async def committed(world: World) -> None:
        world.controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda *_: noted(Code.NONE))
        await registered_without_replica(world)
        await until(lambda: bool(world.heartbeats))
        (registration,) = world.registrations
        assert registration.previous_broker_epoch == EPOCH + 5, "the rest of its logs is what it was"
        assert not world.heartbeats[0].want_fence
        assert not world.broker.lost
        assert world.broker.partition("flights", 0).log.log_end_offset == 0

    run(with_replica, disk)
    lose_replica(disk)
    run(lost, disk)
    disk.crash()
    run(committed, disk)


@pytest.mark.parametrize("code", [Code.INVALID_REQUEST, Code.UNSUPPORTED_VERSION])
def test_a_controller_that_knows_no_lost_replicas_takes_it_for_one_that_may_have_lost_anything(code: Code) -> None:
    disk = MemoryDisk()

    async def lost(world: World) -> None:
        later = BrokerEpoch(EPOCH + 10)
        answer = noted(code) if code is Code.INVALID_REQUEST else AssignReplicasToDirsResponse(error_code=code)
        world.controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda *_: answer)
        await registered_without_replica(world)
        await until(lambda: world.lifecycle.broker_epoch == later)
        shown, belied = world.registrations
        assert (shown.previous_broker_epoch, belied.previous_broker_epoch) == (EPOCH, -1)
        assert shown.incarnation_id != belied.incarnation_id
        assert all(heartbeat.want_fence for heartbeat in world.heartbeats)
        world.commit_registration(epoch=later)
        await until(lambda: any(not heartbeat.want_fence for heartbeat in world.heartbeats))
        assert world.broker.partition("flights", 0).log.log_end_offset == 0

    run(with_replica, disk)
    lose_replica(disk)
    run(lost, disk)


def test_a_list_of_replicas_that_is_gone_makes_a_loss_of_each_that_is_absent_and_is_written_anew() -> None:
    disk = MemoryDisk()

    async def lost(world: World) -> None:
        world.controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda *_: noted(Code.NONE))
        await registered_without_replica(world)
        await until(lambda: bool(world.heartbeats))
        assert disk.exists(LIST)

    async def there(world: World) -> None:
        world.controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda *_: noted(Code.NONE))
        world.registers(BrokerEpoch(EPOCH + 5))
        world.hears(lambda _: LET_IN)
        world.starting = asyncio.ensure_future(world.lifecycle.start())
        await until(lambda: world.lifecycle.broker_epoch == EPOCH + 5)
        world.commit(EPOCH + 2, *REPLICA)
        world.commit_registration(epoch=EPOCH + 5)
        await until(lambda: bool(world.heartbeats))
        assert all(one.id != LOST_DIRECTORY for told in world.assignments for one in told.directories)
        assert disk.exists(LIST)

    run(with_replica, disk)
    disk.crash()
    disk.remove(LIST)
    run(there, disk)
    lose_replica(disk)
    disk.remove(LIST)
    run(lost, disk)


def test_that_a_directory_failed_the_controller_hears_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.let_in()
        before = len(world.heartbeats)
        directory = world.files.directories[0]
        world.broker.failures._fail_directory(directory, "its sync was refused")
        await until(lambda: len(world.heartbeats) > before)
        assert world.heartbeats[-1].offline_log_dirs == [directory.directory_id]
        assert len(world.registrations) == 1

    run(scenario)


# Going.


async def with_another(world: World) -> None:
    await world.let_in()
    world.commit_registration(OTHER, EPOCH + 5, fenced=False)
    await until(lambda: OTHER in world.broker.image.brokers)


def test_it_goes_once_the_controller_lets_it() -> None:
    async def scenario(world: World) -> None:
        await with_another(world)
        answers = [LET_IN, LET_IN, BrokerHeartbeatResponse(is_caught_up=True, should_shut_down=True)]
        world.hears(lambda request: answers.pop(0) if request.want_shut_down else LET_IN)
        await world.lifecycle.shut_down()
        assert not answers
        count = len(world.heartbeats)
        world.commit_fence(EPOCH + 6, FENCED)
        await asyncio.sleep(0.01)
        assert len(world.heartbeats) == count, "who has gone says nothing more"

    run(scenario)


@pytest.mark.parametrize("why", ["alone", "off"])
def test_it_goes_at_once(why: str) -> None:
    """Where nobody else could lead, or the operator does not want it to wait."""

    async def scenario(world: World) -> None:
        await (world.let_in() if why == "alone" else with_another(world))
        await world.lifecycle.shut_down()
        assert not any(one.want_shut_down for one in world.heartbeats)

    run(scenario, controlled_shutdown_enable=str(why == "alone").lower())


def test_it_goes_though_no_controller_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.server.membership.broker_lifecycle.CONTROLLER_ABSENT_MS_MAX", 20)

    async def scenario(world: World) -> None:
        await with_another(world)
        world.hears(lambda _: SILENT)
        await world.lifecycle.shut_down()

    run(scenario)


def test_it_goes_though_others_do_not_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.server.membership.broker_lifecycle.CONTROLLED_SHUTDOWN_MS_MAX", 20)

    async def scenario(world: World) -> None:
        await with_another(world)
        await world.lifecycle.shut_down()

    run(scenario)


def test_when_another_goes_the_controller_hears_at_once_that_this_one_knows_who_leads() -> None:
    async def scenario(world: World) -> None:
        await with_another(world)
        before = len(world.heartbeats)
        change = BrokerRegistrationChangeRecord(
            broker_id=OTHER, broker_epoch=EPOCH + 5, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
        )
        world.commit(EPOCH + 6, change)
        await until(lambda: len(world.heartbeats) > before)
        assert world.heartbeats[-1].current_metadata_offset == EPOCH + 6

    run(scenario)
