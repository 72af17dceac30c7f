"""Every setting that can be changed while a node runs: it is changed at a running node, and what it is about changes.

What is looked at is what the setting is for (what is refused, stored, closed, compacted, let in), not where it is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from support.fixtures.logs import NOW_MS, batches_of, make_batch, records_of
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.share_observed import ObservedGroup
from support.fixtures.transactions import txn_batch
from support.fixtures.waiting import WAIT_SECONDS_MAX, until
from tidelog.base.errors import Code, ConfigError, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId
from tidelog.base.losses import Loss, LossCause
from tidelog.base.principals import ANONYMOUS, USER, Principal, Requester
from tidelog.controller import (
    BrokerToRegister,
    ConfigChange,
    ConfigOperation,
    ConfigsToAlter,
    ControllerState,
    TopicToCreate,
    TopicToDelete,
    TopicToGrow,
)
from tidelog.controller.client_quotas import QuotasToAlter
from tidelog.controller.delegation_tokens import TokenToCreate
from tidelog.controller.scram_users import SaltedPassword, ScramUserChange
from tidelog.controller.topic_rules import TopicRules
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups.consumer.describe_consumer_groups import GroupView
from tidelog.coordinator.groups.share.describe_share_groups import ShareGroupView
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.log import Log
from tidelog.metadata import RegisteredEndpoint, ResourceKey, ResourceType
from tidelog.metadata.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.metadata.configs import TABLE, BrokerSettings, Scope
from tidelog.metadata.configs.delegation_tokens import TOKEN_SECRET_KEY
from tidelog.metadata.configs.key import INT64_MAX, Support
from tidelog.metadata.configs.sasl import SASL_MECHANISM_INTER_BROKER_PROTOCOL
from tidelog.metadata.features import own_features
from tidelog.metadata.records import NoOpRecord, PartitionChangeRecord
from tidelog.security.sasl_listener import sasl_listener
from tidelog.server.api.handlers.api_00_produce import handle as produce
from tidelog.server.broker.cleaner import Cleaner
from tidelog.server.broker.scrubber import Scrubber
from tidelog.server.node import Node
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.replication import Replication
from tidelog.server.settings.config import NodeConfig
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.node_logins import NodeLogin
from tidelog.server.transport.server_connection import OnClosed, ServerConnection
from tidelog.share import AcknowledgeType
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tidelog.wire.messages.losses import entry_of

US, OTHER = BrokerId(1), BrokerId(2)
SQUARES = b",".join(b"%d" % (number * number) for number in range(3000))


class HalfWay(SystemRng):
    """Draws the same jitter each time."""

    def random(self) -> float:
        return 0.5


class LaterClock(SystemClock):
    """A minute after what is appended."""

    def wall_ms(self) -> int:
        return NOW_MS + 60_000


class World:
    """A node that runs on a disk in memory, one client of it, and another broker, which only the metadata knows."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.count = 0
        self.topic = ""
        config = NodeConfig.from_properties(
            {
                "node.id": "1",
                "process.roles": "broker,controller",
                "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:0",
                "log.dirs": "logs",
                "log.cleaner.backoff.ms": "86400000",
                "broker.session.timeout.ms": "86400000",
                "broker.early.fencing.enable": "false",
            }
        )
        executor, clock = InlineExecutor(), SystemClock()
        self.node = Node(config, disk=self.disk, network=RealNetwork(), clock=clock, rng=HalfWay(), executor=executor)
        self.cleaner = Cleaner(
            self.node.broker, self.node.broker_settings, disk=self.disk, clock=LaterClock(), executor=executor
        )
        self.node._dynamic_configs.follow(self.cleaner)
        self.scrubber = Scrubber(
            *(self.node.broker, self.node.broker_settings),
            disk=self.disk,
            clock=LaterClock(),
            executor=executor,
            rng=HalfWay(),
        )
        self.node._dynamic_configs.follow(self.scrubber)
        self._running: list[Any] = []

    async def start(self) -> None:
        await self.node.start()
        self._running = [*await asyncio.open_connection("127.0.0.1", self.node.listeners.first.port)]
        await until(lambda: self.node.connections.open)
        controller = self.node.controller
        other = BrokerToRegister(
            OTHER,
            UUID(int=2),
            (RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 9),),
            log_dirs=(UUID(int=200),),
            features=own_features(),
        )
        await controller.request(
            lambda state: state.decide_register_broker(other, next_offset=controller.journal.next_offset)
        )

    async def stop(self) -> None:
        """As a node that failed: one that stops in good order waits for another broker, and there is none."""
        self._running[1].close()
        self.node.failure.set_result("the tests are over")
        await self.node.stop()

    # What a test does.

    async def new_topic(self, effect: Effect) -> None:
        """A topic of its own; its configs are what the effect needs."""
        self.count += 1
        self.topic = f"t{self.count}"
        await self.create(self.topic, effect.replicas, effect.given)

    async def create(
        self, name: str, replicas: tuple[BrokerId, ...] = (US,), configs: Mapping[str, str] | None = None
    ) -> None:
        topic = TopicToCreate(name, assignments=[(0, replicas)], configs=tuple((configs or {}).items()))
        (created,) = await self.node.create_topics([topic])
        assert created.code == Code.NONE, created.message

    async def delete(self, name: str) -> None:
        await self.node.controller.request(lambda state: state.decide_delete_topics([TopicToDelete(name)]))
        await self.node.caught_up()

    async def alter(self, resource: ResourceKey, values: Mapping[str, str | None]) -> None:
        """Set these; None takes one back."""
        changes = tuple(
            ConfigChange(name, ConfigOperation.DELETE if text is None else ConfigOperation.SET, text)
            for name, text in values.items()
        )
        (altered,) = await self.node.controller.request(
            lambda state: state.decide_alter_configs([ConfigsToAlter(resource, changes)])
        )
        assert altered.code == Code.NONE, altered.message
        await self.node.caught_up()

    @property
    def partition(self) -> Partition:
        return self.node.broker.partition(self.topic, 0)

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def replication(self) -> Replication:
        return self.node.broker.replication

    def put(self, value: str | bytes = "v", *, acks_all: bool = False, **settings: Any) -> Code:
        """Append a record. Returns why it was refused."""
        batch = make_batch(value, **settings)
        try:
            self.partition.append(memoryview(batch), acks_all=acks_all, now_ms=NOW_MS)
        except KafkaError as error:
            return error.code
        return Code.NONE

    def close_segment(self) -> None:
        self.log.roll(NOW_MS)
        self.log.flush()

    def put_keys(self, *keys: str) -> None:
        """Into a segment of their own, which is closed."""
        for key in keys:
            assert self.put(key=key.encode()) == Code.NONE
        self.close_segment()

    async def clean(self) -> bool:
        """Compact the dirtiest log. Returns whether there was one."""
        return await self.cleaner.clean_dirtiest(self.cleaner._settings)


@dataclass(frozen=True)
class Effect:
    """How to see that a setting counts.

    Attributes:
        value: another one than the default.
        observe: what differs with it.
        given: configs of the topic that it needs.
        given_broker: settings of the broker, likewise.
        replicas: of the topic.
    """

    value: str
    observe: Callable[[World], object | Awaitable[object]]
    given: Mapping[str, str] = field(default_factory=dict)
    given_broker: Mapping[str, str] = field(default_factory=dict)
    replicas: tuple[BrokerId, ...] = (US,)


# What is stored.


def size_of_stored(world: World) -> int:
    world.put(SQUARES)
    return len(batches_of(world.log)[-1][1])


def codec_of_stored(world: World) -> int:
    world.put(SQUARES)
    return batches_of(world.log)[-1][0].compression


def timestamp_of_stored(world: World) -> int:
    world.put(timestamp=NOW_MS - 7)
    return batches_of(world.log)[-1][0].max_timestamp


def rolls(*timestamps: int) -> Callable[[World], int]:
    """How many segments are begun by records of these times, from an empty one on."""

    def observe(world: World) -> int:
        world.put(key=b"k")
        world.log.roll(NOW_MS)
        before = len(world.log.segments.base_offsets)
        for timestamp in timestamps:
            world.put(key=b"k", timestamp=NOW_MS + timestamp)
        return len(world.log.segments.base_offsets) - before

    return observe


def size_of_index(world: World) -> int:
    world.put()
    world.log.roll(NOW_MS)
    base_offset = world.log.segments.base_offsets[-1]
    for _ in range(3):
        world.put()
    world.close_segment()
    return len(world.disk.read_bytes(f"{world.log.directory}/{base_offset:020}.index"))


def is_synced(world: World) -> bool:
    """By the upkeep of the node, which looks once a second."""
    if world.log.log_end_offset == 0:
        world.put()
    return world.log.recovery_point == world.log.log_end_offset


def is_retained(world: World) -> bool:
    world.put(timestamp=NOW_MS - 60_000)
    world.close_segment()
    return not world.log.apply_retention(high_watermark=world.log.log_end_offset, now_ms=NOW_MS)


def remembers_a_producer(world: World) -> bool:
    producer_id = 1000 + world.log.log_end_offset
    batch = make_batch("v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    world.partition.append(memoryview(batch), acks_all=False, now_ms=NOW_MS)
    world.log.apply_retention(high_watermark=world.log.log_end_offset, now_ms=NOW_MS + 1000)
    return world.log.producers.get(producer_id) is not None


async def ask_group(world: World, group_id: str, command: Callable[..., None]) -> Any:
    """The answer of the coordinator of a group."""
    await world.node.groups.create_topic()

    async def answered() -> Any:
        answer = world.node.groups.submit(group_id, command)
        return await answer if isinstance(answer, asyncio.Future) else answer

    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while isinstance(answer := await answered(), KafkaError):
            await asyncio.sleep(0.001)
    return answer


async def heartbeat(world: World, member_id: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
    """Of a member of the group that is called as the topic."""
    is_joining = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id=world.topic,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=1_000 if is_joining else -1,
        subscribed_topic_names=[world.topic] if is_joining else None,
        topic_partitions=[] if is_joining else None,
    )
    answer: ConsumerGroupHeartbeatResponse = await ask_group(
        world,
        world.topic,
        lambda machine, request_id, now_ms, wall_ms: machine.consumer_groups.on_consumer_group_heartbeat(
            request_id, request, api_version=1, client_id="c", client_host="/h", now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    return answer


async def assigns_at_once(world: World) -> bool:
    """Of two members that join a group, one after the other, both are assigned."""
    for member_id in ("a", "b"):
        await heartbeat(world, member_id, 0)
    group: GroupView = await ask_group(
        world,
        world.topic,
        lambda machine, request_id, now_ms, wall_ms: machine.consumer_groups.on_consumer_group_describe(
            request_id, world.topic, now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    for member_id in ("a", "b"):
        await heartbeat(world, member_id, -1)
    return group.target_epoch == group.epoch


async def told_to_come_again(world: World) -> int:
    """How soon a member is told to send its next heartbeat."""
    answer = await heartbeat(world, "a", 0)
    await heartbeat(world, "a", -1)
    return answer.heartbeat_interval_ms


async def is_missed_after(world: World) -> int:
    """How long a member may be silent, in seconds."""
    await heartbeat(world, "a", 0)
    machines = [one.coordinator for one in world.node.groups.here]
    alarm = Alarm(Cause.CONSUMER_SESSION, world.topic, "a")
    (due_ms,) = [
        machine._journal.deadlines._due_ms[alarm]
        for machine in machines
        if world.topic in machine.consumer_groups.groups
    ]
    await heartbeat(world, "a", -1)
    return round((due_ms - world.node.clock.now_ms()) / 1000)


async def share_heartbeat(world: World, member_id: str, epoch: int) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=world.topic, member_id=member_id, member_epoch=epoch, subscribed_topic_names=[world.topic]
    )
    answer: ShareGroupHeartbeatResponse = await ask_group(
        world,
        world.topic,
        lambda machine, request_id, now_ms, wall_ms: machine.share_groups.on_share_group_heartbeat(
            request_id, request, client_id="c", client_host="/h", now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    return answer


@asynccontextmanager
async def sharing(world: World, *member_ids: str) -> AsyncIterator[list[ShareGroupHeartbeatResponse]]:
    """What members of a share group are told that join one after the other. No group is there before and afterwards."""

    def deleted(machine: Any, request_id: Any, now_ms: int, wall_ms: int) -> None:
        if world.topic in {**machine.share_groups.groups, **machine.consumer_groups.groups}:
            machine.on_delete_group(request_id, world.topic, now_ms=now_ms, wall_ms=wall_ms)
        else:
            machine.on_list_groups(request_id, (), (), now_ms=now_ms, wall_ms=wall_ms)

    async def forget() -> None:
        await ask_group(world, world.topic, deleted)

    await forget()
    yield [await share_heartbeat(world, member_id, 0) for member_id in member_ids]
    for member_id in member_ids:
        await share_heartbeat(world, member_id, -1)
    await forget()


async def shares_at_once(world: World) -> bool:
    """Of two members that join a share group, one after the other, both count in its target assignment."""
    async with sharing(world, "a", "b"):
        group: ShareGroupView = await ask_group(
            world,
            world.topic,
            lambda machine, request_id, now_ms, wall_ms: machine.share_groups.on_share_group_describe(
                request_id, world.topic, now_ms=now_ms, wall_ms=wall_ms
            ),
        )
        return group.target_epoch == group.epoch


async def told_to_share_again(world: World) -> int:
    """How soon a member of a share group is told to send its next heartbeat."""
    async with sharing(world, "a") as (answer,):
        return answer.heartbeat_interval_ms


async def shares_silently_for(world: World) -> int:
    """How long a member of a share group may be silent, in seconds."""
    async with sharing(world, "a"):
        machines = [one.coordinator for one in world.node.groups.here]
        alarm = Alarm(Cause.SHARE_SESSION, world.topic, "a")
        (due_ms,) = [
            machine._journal.deadlines._due_ms[alarm]
            for machine in machines
            if world.topic in machine.share_groups.groups
        ]
        return round((due_ms - world.node.clock.now_ms()) / 1000)


async def takes_what_no_coordinator_knows(world: World) -> Code:
    """A producer's batch is in a transaction that was never begun."""
    return Code((await sent_in_a_transaction(world)).error_code)


async def sent_in_a_transaction(world: World, *, has_room: bool = True) -> PartitionProduceResponse:
    batch = txn_batch(2000 + world.log.log_end_offset, "v")
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id="t",
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=world.topic, partition_data=[data])],
    )
    memory = SimpleNamespace(kept=lambda: nullcontext(SimpleNamespace(hold=lambda size_bytes: has_room)))
    context: Any = SimpleNamespace(
        api_version=9,
        header=SimpleNamespace(api_version=9, client_id="c"),
        connection=SimpleNamespace(memory=memory, listener_name="PLAINTEXT"),
        gathering=None,
    )
    answer = produce(world.node, request, context)
    response = await answer if isinstance(answer, Awaitable) else answer
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


# What is delivered to share groups.


async def new_group(world: World) -> ObservedGroup:
    """The group that is called as the topic; it begins anew."""
    group = ObservedGroup(world.node, world.partition, world.topic)
    await group.begin()
    return group


async def is_locked_for(world: World) -> int:
    """How long a member has what it acquired, in seconds."""
    group = await new_group(world)
    world.put()
    group.acquire()
    return round(group.due_in_ms / 1000)


async def is_delivered_times(world: World) -> int:
    """How often a record is delivered that nobody accepts."""
    group, count = await new_group(world), 0
    world.put()
    while acquired := group.acquire():
        count += 1
        await group.acknowledge(acquired, AcknowledgeType.RELEASE)
    return count


async def acquires_at_once(world: World) -> int:
    group = await new_group(world)
    for _ in range(120):
        world.put()
    return sum(last - first + 1 for first, last, _ in group.acquire())


async def gets_what_there_was(world: World) -> bool:
    world.put()
    return bool((await new_group(world)).acquire())


async def gets_what_is_not_committed(world: World) -> bool:
    group = await new_group(world)
    batch = txn_batch(3000 + world.log.log_end_offset, "v")
    leading = world.partition.role.leading()
    world.log.append_as_leader(batch, leader_epoch=leading.replica.leader_epoch, now_ms=NOW_MS)
    leading.on_appended()
    return bool(group.acquire())


async def renews(world: World) -> Code:
    group = await new_group(world)
    world.put()
    try:
        await group.acknowledge(group.acquire(), AcknowledgeType.RENEW)
    except KafkaError as error:
        return error.code
    return Code.NONE


# What is compacted.

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


async def keeps_tombstone(world: World) -> bool:
    key = b"gone%d" % world.log.log_end_offset
    batch = make_batch("v", key=key)
    world.partition.append(memoryview(batch), acks_all=False, now_ms=NOW_MS)
    tombstone = make_batch(None, key=key)
    world.partition.append(memoryview(tombstone), acks_all=False, now_ms=NOW_MS)
    world.close_segment()
    await world.clean()
    world.put_keys("another")
    await world.clean()
    return any(record.key == key for record in records_of(world.log))


async def compacts_a_little(world: World) -> bool:
    world.put_keys("a", "b", "c", "d", "e", "f")
    await world.clean()
    world.put_keys("a")
    return await world.clean()


async def compacts_young(world: World) -> bool:
    world.put_keys("a", "b")
    return await world.clean()


async def compacts_in_one_turn(world: World) -> bool:
    world.put_keys(*(f"key{world.log.log_end_offset}-{number}" for number in range(40)))
    end_offset = world.log.log_end_offset
    await world.clean()
    is_whole = world.log.compaction.mark.end_offset == end_offset
    while await world.clean():
        pass
    return is_whole


async def compacts_without_a_pause(world: World) -> bool:
    world.put_keys("a", "b")
    job = asyncio.ensure_future(world.clean())
    for _ in range(1000):
        await asyncio.sleep(0)  # the disk is in memory: all that takes time is the rate
    is_done = job.done()
    job.cancel()
    await asyncio.wait([job])
    return is_done


async def is_looked_through_at_once(world: World) -> bool:
    world.put()
    world.close_segment()
    job = asyncio.ensure_future(world.scrubber.scrub_round())
    await asyncio.wait([job], timeout=1)
    is_done = job.done()
    job.cancel()
    await asyncio.wait([job])
    return is_done


def is_compacted(world: World) -> bool:
    if world.log.log_end_offset == 0:
        world.put_keys("a", "a")
    return world.log.compaction.mark.end_offset > 0


# What is replicated.


def throttles(side: str) -> Callable[[World], bool]:
    def observe(world: World) -> bool:
        replication = world.replication
        throttle = replication.leader_throttle if side == "leader" else replication.follower_throttle
        return throttle.covers(world.partition.topic_partition)

    return observe


def moves_have_no_limit(world: World) -> bool:
    return world.node.broker.moves.throttle.room_bytes == INT64_MAX


async def fetchers(world: World) -> int:
    """How many ask a leader that has all partitions of a few topics."""
    if not world.node.image.brokers[OTHER].is_active:
        epoch = world.node.image.brokers[OTHER].broker_epoch
        await world.node.controller.request(lambda state: state.decide_unfence_broker(OTHER, epoch))
        await world.node.caught_up()
        await world.node.controller.request(
            lambda state: state.decide_create_topics(
                [TopicToCreate("followed", assignments=[(index, (OTHER, US)) for index in range(16)])], rng=SystemRng()
            )
        )
        await world.node.caught_up()
    await until(lambda: world.replication._fetchers._fetchers)
    return max(number for _, number in world.replication._fetchers._fetchers) + 1


def allows_unclean(world: World) -> bool:
    state = world.node.controller.journal.committed
    return TopicRules(state.metadata, state.settings).allows_unclean(world.topic)


def forgets_a_loss(world: World) -> bool:
    """One that was opened an hour ago, when another one is opened."""
    state = world.node.controller.journal.committed.clone()
    topic_id, index = world.partition.topic_id, world.partition.topic_partition.partition
    old = Loss("gone", TopicId(UUID(int=99)), index, LeaderEpoch(1), LossCause.FOUND, None, NOW_MS - 3_600_000, ())
    state.apply(NoOpRecord(losses=[entry_of(old)]))
    elected = PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=US, unclean_epoch=99)
    records = state.accounted([elected], now_ms=NOW_MS)
    return any(isinstance(one, NoOpRecord) and one.forgotten_losses for one in records)


# Who is let in.


class Port:
    is_open = True

    def pause(self) -> None:
        self.is_open = False

    def resume(self) -> None:
        self.is_open = True


def accepts(world: World) -> bool:
    port = Port()
    world.node.connections.hold_up(port)
    world.node.connections.forget(port)
    return port.is_open


def admits(world: World) -> bool:
    leave: list[OnClosed] = []

    def make(on_closed: OnClosed) -> ServerConnection:
        leave.append(on_closed)
        return cast(ServerConnection, object())

    is_in = world.node.connections.admit(make, True, "127.0.0.1", 0) is not None
    for closed in leave:
        closed(Closed.IDLE, None)
    return is_in


def decided(world: World, decide: Callable[[ControllerState], Any]) -> list[Code]:
    """What the controller would answer, part by part; nothing comes of it."""
    try:
        reply = decide(world.node.controller.journal.speculative).reply
    except KafkaError as error:
        return [error.code]
    return [getattr(one, "code", Code.NONE) for one in reply] if isinstance(reply, tuple) else [Code.NONE]


def makes_rules(world: World) -> list[Code]:
    kinds = (AclResourceType.TOPIC, AclResourceType.GROUP)
    rules = [
        Acl(kind, "a", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW) for kind in kinds
    ]
    return decided(world, lambda state: state.decide_create_acls(rules, rng=world.node.rng))


def limits_users(world: World) -> list[Code]:
    entries = [QuotasToAlter((("user", user),), (("producer_byte_rate", 1.0),)) for user in "ab"]
    return decided(world, lambda state: state.decide_alter_client_quotas(entries, validate_only=True))


def keeps_passwords(world: World) -> list[Code]:
    changes = [ScramUserChange(user, 1, SaltedPassword(b"salt", b"x" * 32, 4_096)) for user in "ab"]
    return decided(world, lambda state: state.decide_alter_scram_users(changes))


def makes_tokens(world: World) -> list[Code]:
    """With one that there is already."""
    requester = Requester(Principal(USER, "a"), "h")

    def two(state: ControllerState) -> Any:
        copy = state.clone()
        copy.settings = replace(copy.settings, broker=BrokerSettings.of({TOKEN_SECRET_KEY.name: "secret"}))
        create = partial(copy.decide_create_token, requester, TokenToCreate(), rng=world.node.rng, now_ms=0)
        for record in create().records:
            copy.metadata.apply(record)
        return create()

    return decided(world, two)


def sets_groups(world: World) -> list[Code]:
    change = ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, "50000")
    wanted = [ConfigsToAlter(ResourceKey(ResourceType.GROUP, group), (change,)) for group in ("limit-a", "limit-b")]
    return decided(world, lambda state: state.decide_alter_configs(wanted, validate_only=True))


def grows(world: World) -> list[Code]:
    topic = TopicToGrow(world.topic, 2)
    return decided(world, lambda state: state.decide_create_partitions([topic], rng=world.node.rng, validate_only=True))


def makes_topics_when_asked(world: World) -> list[str]:
    world.count += 1
    return world.node.connections.peers.admit_topics(Requester(ANONYMOUS, f"192.0.2.{world.count}"), ["a", "b"])


def looks_at_passwords(world: World) -> bool:
    world.count += 1
    logins, host = world.node.connections.peers.failed_logins, f"192.0.2.{world.count}"
    logins.on_failed(host, "a")
    return logins.admits(host, "a")


async def remembers_two_producers(world: World) -> bool:
    for producer_id in (1, 2):
        end_offset = world.log.log_end_offset
        batch = make_batch("v", producer_id=producer_id * 10_000 + end_offset, producer_epoch=0, base_sequence=0)
        world.partition.append(memoryview(batch), acks_all=False, now_ms=NOW_MS)
    await world.node.broker.producers.forget_excess()
    return len(world.log.producers) >= 2


def listens_beside(world: World) -> bool:
    return "EXTRA" in world.node.listeners.names


def certificates(world: World) -> object:
    """What a listener over TLS would show and trust from its next connection on."""
    return world.node.networks.certificates("EXTRA")


def mechanisms(world: World) -> object:
    """What a listener would offer from its next connection on."""
    try:
        return sasl_listener(world.node.authentication.texts, "EXTRA").mechanisms
    except ConfigError:
        return None


def logs_in_by(world: World) -> str:
    return NodeLogin(world.node.logins, "EXTRA", SASL_MECHANISM_INTER_BROKER_PROTOCOL).mechanism


async def keeps_deleted_files(world: World) -> bool:
    world.count += 1
    name = f"doomed{world.count}"
    await world.create(name)
    await world.delete(name)
    await asyncio.sleep(0.01)
    return any(each.startswith(f"{name}-") for each in world.disk.list("logs"))


LISTENERS = "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"
EXTRA_MAP = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
THROTTLED = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
RATES = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}

TOPIC_EFFECTS: dict[str, Effect] = {
    "cleanup.policy": Effect("compact", lambda world: world.put(key=None)),
    "compression.gzip.level": Effect("1", size_of_stored, {"compression.type": "gzip"}),
    "compression.lz4.level": Effect("12", size_of_stored, {"compression.type": "lz4"}),
    "compression.type": Effect("zstd", codec_of_stored),
    "compression.zstd.level": Effect("19", size_of_stored, {"compression.type": "zstd"}),
    "delete.retention.ms": Effect("0", keeps_tombstone, COMPACT),
    "flush.messages": Effect("1", is_synced),
    "flush.ms": Effect("5", is_synced),
    "follower.replication.throttled.replicas": Effect("*", throttles("follower"), given_broker=RATES),
    "index.interval.bytes": Effect("0", size_of_index),
    "leader.replication.throttled.replicas": Effect("*", throttles("leader"), given_broker=RATES),
    "max.compaction.lag.ms": Effect("1000", rolls(0, 5000), {"cleanup.policy": "compact"}),
    "max.message.bytes": Effect("20", World.put),
    "message.timestamp.after.max.ms": Effect("1000", lambda world: world.put(timestamp=NOW_MS + 60_000)),
    "message.timestamp.before.max.ms": Effect("1000", lambda world: world.put(timestamp=NOW_MS - 60_000)),
    "message.timestamp.type": Effect("LogAppendTime", timestamp_of_stored),
    "min.cleanable.dirty.ratio": Effect("0.01", compacts_a_little, {"cleanup.policy": "compact"}),
    "min.compaction.lag.ms": Effect("3600000", compacts_young, COMPACT),
    "min.insync.replicas": Effect("2", lambda world: world.put(acks_all=True), replicas=(US, OTHER)),
    "retention.bytes": Effect("0", is_retained),
    "retention.ms": Effect("1000", is_retained),
    "segment.bytes": Effect("100", rolls(0, 0)),
    "segment.index.bytes": Effect("12", rolls(0, 0, 0), {"index.interval.bytes": "0"}),
    "segment.jitter.ms": Effect("1000", rolls(0, 900), {"segment.ms": "1000"}),
    "segment.ms": Effect("1000", rolls(0, 5000)),
    "unclean.leader.election.enable": Effect("true", allows_unclean),
}

BROKER_EFFECTS: dict[str, Effect] = {
    **{
        TABLE["topic"][name].synonyms[0].name: effect
        for name, effect in TOPIC_EFFECTS.items()
        if TABLE["topic"][name].synonyms
    },
    "follower.replication.throttled.rate": Effect("1000", throttles("follower"), THROTTLED),
    "leader.replication.throttled.rate": Effect("1000", throttles("leader"), THROTTLED),
    "group.consumer.assignment.interval.ms": Effect("0", assigns_at_once),
    "group.share.assignment.interval.ms": Effect("0", shares_at_once),
    "listener.security.protocol.map": Effect(EXTRA_MAP, listens_beside, given_broker={"listeners": LISTENERS}),
    "listeners": Effect(LISTENERS, listens_beside, given_broker={"listener.security.protocol.map": EXTRA_MAP}),
    "log.cleaner.backoff.ms": Effect("1", is_compacted, COMPACT),
    "log.cleaner.dedupe.buffer.size": Effect("1024", compacts_in_one_turn, COMPACT),
    "log.cleaner.io.max.bytes.per.second": Effect("1", compacts_without_a_pause, COMPACT),
    "log.scrubber.io.max.bytes.per.second": Effect("1", is_looked_through_at_once),
    "log.segment.delete.delay.ms": Effect("0", keeps_deleted_files),
    "sasl.enabled.mechanisms": Effect(
        "PLAIN",
        mechanisms,
        given_broker={"listener.name.extra.plain.sasl.jaas.config": 'PlainLoginModule required user_a="b";'},
    ),
    "sasl.mechanism.inter.broker.protocol": Effect("PLAIN", logs_in_by),
    "ssl.client.auth": Effect("required", certificates),
    "ssl.enabled.protocols": Effect("TLSv1.3", certificates),
    "ssl.endpoint.identification.algorithm": Effect("", certificates),
    "ssl.key.password": Effect("of the key", certificates),
    "ssl.keystore.certificate.chain": Effect("c", certificates, given_broker={"ssl.keystore.key": "k"}),
    "ssl.keystore.key": Effect("k", certificates, given_broker={"ssl.keystore.certificate.chain": "c"}),
    "ssl.keystore.location": Effect("/k.pem", certificates, given_broker={"ssl.keystore.type": "PEM"}),
    "ssl.keystore.password": Effect(
        "of the store",
        certificates,
        given_broker={"ssl.keystore.location": "/k.p12", "ssl.keystore.type": "PKCS12"},
    ),
    "ssl.keystore.type": Effect("PEM", certificates, given_broker={"ssl.keystore.location": "/k.pem"}),
    "ssl.truststore.certificates": Effect("c", certificates),
    "ssl.truststore.location": Effect("/t.pem", certificates, given_broker={"ssl.truststore.type": "PEM"}),
    "ssl.truststore.password": Effect(
        "of the store",
        certificates,
        given_broker={"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"},
    ),
    "ssl.truststore.type": Effect("PEM", certificates, given_broker={"ssl.truststore.location": "/t.pem"}),
    "losses.kept.bytes": Effect("1", lambda world: world.replication.loss_notes.kept_size_bytes_max),
    "losses.retained.max": Effect("1", forgets_a_loss, replicas=(US, OTHER)),
    "losses.retention.ms": Effect("1000", forgets_a_loss, replicas=(US, OTHER)),
    "max.acls": Effect("1", makes_rules),
    "max.auto.created.topics.per.ip": Effect("1", makes_topics_when_asked),
    "max.client.quotas": Effect("1", limits_users),
    "max.configured.resources": Effect("1", sets_groups),
    "max.connections": Effect("1", accepts),
    "max.connections.per.ip": Effect("1", admits),
    "max.connections.per.ip.overrides": Effect("127.0.0.1:1", admits),
    "max.delegation.tokens": Effect("1", makes_tokens),
    "max.failed.authentications.per.ip": Effect("1", looks_at_passwords),
    "max.partitions": Effect("1", grows),
    "max.producer.ids": Effect("1", remembers_two_producers),
    "max.scram.credentials": Effect("1", keeps_passwords),
    "num.replica.fetchers": Effect("3", fetchers),
    "producer.id.expiration.ms": Effect("1", remembers_a_producer),
    "replica.alter.log.dirs.io.max.bytes.per.second": Effect("1000", moves_have_no_limit),
    "transaction.partition.verification.enable": Effect("false", takes_what_no_coordinator_knows),
}

GROUP_EFFECTS: dict[str, Effect] = {
    "consumer.assignment.interval.ms": Effect("0", assigns_at_once),
    "consumer.heartbeat.interval.ms": Effect("7000", told_to_come_again),
    "consumer.session.timeout.ms": Effect("55000", is_missed_after),
    "share.assignment.interval.ms": Effect("0", shares_at_once),
    "share.auto.offset.reset": Effect("earliest", gets_what_there_was),
    "share.delivery.count.limit": Effect("3", is_delivered_times),
    "share.heartbeat.interval.ms": Effect("7000", told_to_share_again),
    "share.isolation.level": Effect("read_committed", gets_what_is_not_committed),
    "share.partition.max.record.locks": Effect("100", acquires_at_once),
    "share.record.lock.duration.ms": Effect("20000", is_locked_for),
    "share.renew.acknowledge.enable": Effect("false", renews),
    "share.session.timeout.ms": Effect("55000", shares_silently_for),
}

EFFECTS: dict[Scope, dict[str, Effect]] = {"topic": TOPIC_EFFECTS, "broker": BROKER_EFFECTS, "group": GROUP_EFFECTS}
EACH_BROKERS_OWN = {"listeners", "listener.security.protocol.map"}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[asyncio.Runner, World]]:
    async def start() -> World:
        world = World()
        await world.start()
        return world

    with asyncio.Runner() as runner:
        world = runner.run(start())
        yield runner, world
        runner.run(world.stop())


@pytest.mark.parametrize("scope", EFFECTS)
def test_every_dynamic_key_is_tried_or_declared_to_do_nothing(scope: Scope) -> None:
    served = {key.name for key in TABLE[scope].values() if key.is_dynamic and key.support == Support.SERVED}
    assert EFFECTS[scope].keys() == served


@pytest.mark.parametrize(
    ("scope", "name"), [(scope, name) for scope, effects in EFFECTS.items() for name in sorted(effects)]
)
def test_a_changed_setting_counts_at_once(running: tuple[asyncio.Runner, World], scope: Scope, name: str) -> None:
    runner, world = running
    effect = EFFECTS[scope][name]

    async def observed() -> object:
        found = effect.observe(world)
        return await found if isawaitable(found) else found

    async def scenario() -> None:
        await world.new_topic(effect)
        broker = ResourceKey(ResourceType.BROKER, "1" if name in EACH_BROKERS_OWN else "")
        kind = ResourceType.GROUP if scope == "group" else ResourceType.TOPIC
        resource = broker if scope == "broker" else ResourceKey(kind, world.topic)
        if effect.given_broker:
            await world.alter(broker, effect.given_broker)
        before = await observed()
        assert await observed() == before
        await world.alter(resource, {name: effect.value})
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await observed() == before:
                await asyncio.sleep(0.001)
        await world.alter(resource, {name: None})
        if effect.given_broker:
            await world.alter(broker, dict.fromkeys(effect.given_broker))
        await world.delete(world.topic)

    runner.run(scenario())


def test_a_batch_that_may_not_wait_for_its_coordinator_is_to_be_sent_again(
    running: tuple[asyncio.Runner, World],
) -> None:
    runner, world = running

    async def scenario() -> None:
        await world.new_topic(Effect("", lambda world: None))
        row = await sent_in_a_transaction(world, has_room=False)
        assert row.error_code == Code.NOT_ENOUGH_REPLICAS
        assert "queued.max.request.bytes" in (row.error_message or "")
        assert world.log.log_end_offset == 0

    runner.run(scenario())
