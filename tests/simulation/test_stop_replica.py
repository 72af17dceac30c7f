"""StopReplica between whole nodes (KIP-570): what the controller pushes, and what becomes of it on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from support.nodes.cluster_stage import PARTITION, Stage, tell
from tidelog.base.errors import Code, NetworkError
from tidelog.base.ids import BrokerId, PartitionIndex, TopicId, TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.controller import ControllerState
from tidelog.controller.partition_changes import change_record, with_replicas
from tidelog.journal import Decision
from tidelog.log.files.checkpoint import format_partition_metadata
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.replica import StopOrder
from tidelog.replica.stop import METADATA_AHEAD_MAX
from tidelog.server.broker.hosted_partitions import HostedPartitions
from tidelog.server.broker.stop_orders import STOPPED_SECONDS_MAX, StopOrders
from tidelog.server.membership.replica_stops import ATTEMPTS_MAX
from tidelog.server.node import Node
from tidelog.sim.checkers.stopping import StoppedMeansStopped
from tidelog.sim.faults.cluster_fault_injector import CLIENT
from tidelog.sim.faults.late_stops import LateStops
from tidelog.sim.node import CLIENT_PORT, INTERNAL_PORT, LOGS
from tidelog.sim.runs.cluster_plan import machine_of
from tidelog.sim.runs.workload import TOPIC
from tidelog.sim.world.rng import SeededRng
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_05_stop_replica import (
    DELETED_TOPIC_EPOCH,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)

FIRST = PartitionIndex(0)
OLD, REFUSED = Code.STALE_CONTROLLER_EPOCH, Code.INVALID_REQUEST


def process_of(stage: Stage, number: int) -> Node:
    node = stage.nodes[BrokerId(number)].node
    assert node is not None
    return node


def others(stage: Stage) -> list[int]:
    """Nodes without the active controller, which hear of commits over the network."""
    return [number for number in (1, 2, 3) if number != stage.controller]


def pushed_by(stage: Stage) -> list[tuple[int, StopReplicaRequest]]:
    """All that any node pushes from now on."""
    found: list[tuple[int, StopReplicaRequest]] = []
    for number in (1, 2, 3):
        process_of(stage, number).replica_stops.push_listeners.append(lambda to, request: found.append((to, request)))
    return found


async def reassign(stage: Stage, *replicas: int) -> None:
    """As the controller records it; return when that is committed."""
    node = stage.nodes[BrokerId(stage.controller)]

    def decide(state: ControllerState) -> Decision[None]:
        topic = state.metadata.topics_by_name[TOPIC]
        before = topic.partitions[0]
        after = with_replicas(
            before, [BrokerId(each) for each in replicas], min_insync_replicas=1, is_active=lambda _: True
        )
        return Decision((change_record(topic.topic_id, FIRST, before, after),), None)

    async def request() -> None:
        await process_of(stage, stage.controller).controller.request(decide)

    await node.machine.do(request)


async def delete_topic(stage: Stage, at: int) -> None:
    stage.recorder.may_be_deleted.add(TOPIC)
    async with stage.factory_at(at).admin() as admin:
        await admin.delete_topics([TOPIC])


async def send(
    stage: Stage, number: int, request: StopReplicaRequest, *, version: int = 4, port: int = INTERNAL_PORT
) -> tuple[Code, list[Code]]:
    """From anywhere. Returns the codes of the answer: of the whole, and of each partition."""
    world = stage.world.client_world(CLIENT)
    address = Address(machine_of(BrokerId(number)), port)
    connection = await open_connection(world.network, address, ConnectionSettings("anybody"))
    try:
        answer = await connection.request(request, StopReplicaResponse, timeout_ms=10_000, version=version)
    finally:
        connection.close()
    return Code(answer.error_code), [Code(one.error_code) for one in answer.partition_errors]


def has_log(stage: Stage, number: int) -> bool:
    return stage.nodes[BrokerId(number)].machine.disk.exists(f"{LOGS}/{PARTITION}")


def is_serving(stage: Stage, number: int) -> bool:
    return stage.replica(number).role.is_active


async def settled(stage: Stage) -> None:
    await stage.make_topic(1, 2, 3)
    await stage.produce("m1")
    await stage.until_settled()


async def delete_before_the_metadata_comes(stage: Stage) -> None:
    await settled(stage)
    slow, quick = others(stage)
    lock = process_of(stage, slow).broker.image_lock
    await lock.acquire()
    await delete_topic(stage, stage.controller)
    await stage.until(lambda: not is_serving(stage, slow))
    await stage.until(lambda: not has_log(stage, quick))
    assert has_log(stage, slow)
    lock.release()
    await stage.until(lambda: not has_log(stage, slow))


def test_a_deleted_topic_is_stopped_before_the_metadata_comes_and_its_files_go_when_it_has_come() -> None:
    tell(delete_before_the_metadata_comes)


def test_what_is_assigned_again_before_the_metadata_comes_has_all_in_the_end() -> None:
    """The order alone gets through, and both changes are committed by the time that its broker hears of them."""

    async def story(stage: Stage) -> None:
        await settled(stage)
        controller, (slow, quick) = stage.controller, others(stage)
        stage.part([controller, quick], [slow])
        await reassign(stage, controller, quick)
        leader_epoch, offset = stage.state.leader_epoch, stage.recorder.metadata.end_offset - 1
        await stage.produce("m2", at=(controller, quick))
        request = order(stage, slow, StopReplicaPartitionState(0, leader_epoch, delete_partition=True), offset)
        assert await send(stage, slow, request) == (Code.NONE, [Code.NONE])
        assert not is_serving(stage, slow)
        await reassign(stage, controller, quick, slow)
        assert has_log(stage, slow)
        stage.heal()
        await stage.until_settled()
        assert [value.partition("@")[0] for value in stage.values(slow)] == ["m1", "m2"]

    tell(story)


@pytest.mark.parametrize("leads", [True, False])
def test_an_order_that_the_metadata_does_not_bear_out_holds_a_replica_up_until_it_says_so(leads: bool) -> None:
    """Nothing of ours sends it: its records were never committed."""

    async def story(stage: Stage) -> None:
        await settled(stage)
        number = stage.leader if leads else next(one for one in (1, 2, 3) if one != stage.leader)
        log, known = stage.replica(number).log, stage.recorder.metadata.end_offset - 1
        uncommitted = StopReplicaPartitionState(0, stage.state.leader_epoch + 1, delete_partition=True)
        assert await send(stage, number, order(stage, number, uncommitted, known)) == (Code.NONE, [Code.NONE])
        assert is_serving(stage, number)
        assert await send(stage, number, order(stage, number, uncommitted, known + 1)) == (Code.NONE, [Code.NONE])
        assert not is_serving(stage, number)
        async with stage.factory.admin() as admin:
            await admin.create_topics([NewTopic("another", 1, 3)])
        await stage.until(lambda: is_serving(stage, number))
        assert stage.replica(number).log is log
        await stage.produce("m2")
        await stage.until_settled()

    tell(story)


def order(
    stage: Stage, number: int, state: StopReplicaPartitionState, offset: int, topic_id: TopicId | None = None
) -> StopReplicaRequest:
    """As the controller of the epoch that a node knows of would push it."""
    process = process_of(stage, number)
    epoch, broker_epoch = process.quorum.leader_epoch, process.broker_epoch
    assert epoch is not None
    assert broker_epoch is not None
    topic = StopReplicaTopicState(TOPIC, [state])
    if topic_id is not None:
        topic.topic_id = topic_id
    return StopReplicaRequest(
        controller_id=stage.controller,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=[topic],
        metadata_offset=offset,
    )


async def late_and_again(stage: Stage) -> None:
    """Twice, and once more when the replica was added again: it names an older leader epoch."""
    await settled(stage)
    slow, _ = others(stage)
    rest = [number for number in (1, 2, 3) if number != slow]
    pushed = pushed_by(stage)
    await reassign(stage, *rest)
    await stage.until(lambda: not has_log(stage, slow))
    ((to, request),) = pushed
    assert to == slow
    assert await send(stage, slow, request) == (Code.NONE, [Code.NONE])
    await reassign(stage, *rest, slow)
    await stage.until_settled()
    assert await send(stage, slow, request) == (Code.NONE, [OLD])
    await stage.until_settled()
    assert is_serving(stage, slow)


def test_an_order_that_comes_again_or_late_does_nothing() -> None:
    tell(late_and_again)


def test_an_order_about_a_topic_that_was_made_anew_stops_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.until_settled()
        slow, _ = others(stage)
        pushed = pushed_by(stage)
        await delete_topic(stage, slow)
        await stage.until(lambda: not has_log(stage, slow))
        await stage.make_topic(1, 2, 3)
        await stage.until_settled()
        (request,) = (request for to, request in pushed if to == slow)
        assert await send(stage, slow, request) == (Code.NONE, [Code.INCONSISTENT_TOPIC_ID])
        assert is_serving(stage, slow)

    tell(story)


def test_a_deposed_controller_and_one_that_means_an_earlier_incarnation_are_refused_as_a_whole() -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        deposed, (slow, quick) = stage.controller, others(stage)
        pushed = pushed_by(stage)
        await reassign(stage, *(number for number in (1, 2, 3) if number != slow))
        await stage.until(lambda: len(pushed) == 1)
        _, request = pushed[0]
        stage.kill(slow)
        await stage.start(slow)
        assert await send(stage, slow, request) == (Code.STALE_BROKER_EPOCH, [])
        stage.part([deposed], [slow, quick])
        await stage.until(lambda: process_of(stage, slow).quorum.leader_id in (slow, quick))
        assert await send(stage, slow, for_any_incarnation(request)) == (OLD, [])
        stage.heal()
        await stage.until_settled()

    tell(story)


def for_any_incarnation(request: StopReplicaRequest) -> StopReplicaRequest:
    request.broker_epoch = (1 << 63) - 1
    return request


def test_a_controller_that_cannot_commit_pushes_nothing() -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        alone, (one, other) = stage.controller, others(stage)
        pushed = pushed_by(stage)
        stage.part([alone], [one, other])
        asked = asyncio.ensure_future(reassign(stage, alone, one))
        await stage.until(lambda: process_of(stage, one).quorum.leader_id in (one, other))
        stage.heal()
        await asyncio.wait([asked])
        assert asked.exception() is not None
        await stage.until_settled()
        assert pushed == []
        assert len(stage.state.replicas) == 3

    tell(story)


def test_whom_the_push_does_not_reach_learns_it_from_the_metadata() -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        controller, (slow, quick) = stage.controller, others(stage)
        stops = process_of(stage, controller).replica_stops
        stage.part([controller, quick], [slow])
        await delete_topic(stage, quick)
        await stage.until(lambda: stops.dropped == 1)
        assert not has_log(stage, quick)
        stage.heal()
        await stage.until(lambda: not has_log(stage, slow))

    assert ATTEMPTS_MAX < 10
    tell(story)


def test_a_log_of_a_topic_that_nobody_knows_goes_by_its_id_alone() -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        slow, _ = others(stage)
        node, process = stage.nodes[BrokerId(slow)], process_of(stage, slow)
        ghost, other = TopicId(process.rng.uuid()), TopicId(process.rng.uuid())
        disk = node.machine.disk
        disk.make_dirs(f"{LOGS}/ghost-0")
        disk.write_atomically(f"{LOGS}/ghost-0/partition.metadata", format_partition_metadata(ghost))
        stage.recorder.may_be_deleted.add("ghost")

        deletion = StopReplicaPartitionState(0, DELETED_TOPIC_EPOCH, delete_partition=True)

        def of_ghost(topic_id: TopicId, offset: int) -> StopReplicaRequest:
            request = order(stage, slow, deletion, offset, topic_id)
            request.topic_states[0].topic_name = "ghost"
            return request

        known = stage.recorder.metadata.end_offset - 1
        assert await send(stage, slow, of_ghost(other, known)) == (Code.NONE, [Code.INCONSISTENT_TOPIC_ID])
        assert await send(stage, slow, of_ghost(ghost, -1)) == (Code.NONE, [OLD])
        assert await send(stage, slow, of_ghost(ghost, known + 1)) == (Code.NONE, [Code.NONE])
        assert disk.exists(f"{LOGS}/ghost-0")
        await reassign(stage, 3, 2, 1)
        await stage.until(lambda: not disk.exists(f"{LOGS}/ghost-0"))
        assert has_log(stage, slow)

    tell(story)


def test_an_order_that_no_metadata_can_bear_out_does_not_hold_a_replica_up_for_good() -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        number = stage.leader
        deletion = StopReplicaPartitionState(0, DELETED_TOPIC_EPOCH, delete_partition=True)
        topic_id = stage.recorder.latest.topics_by_name[TOPIC].topic_id
        no_offset = (1 << 63) - 1
        assert await send(stage, number, order(stage, number, deletion, no_offset, topic_id)) == (REFUSED, [])
        assert is_serving(stage, number)
        far_off = stage.recorder.metadata.end_offset + METADATA_AHEAD_MAX // 2
        request = order(stage, number, deletion, far_off, topic_id)
        assert await send(stage, number, request) == (Code.NONE, [Code.NONE])
        assert not is_serving(stage, number)
        await stage.until(lambda: is_serving(stage, number), seconds_max=2 * STOPPED_SECONDS_MAX)
        await stage.produce("m2")
        await stage.until_settled()

    tell(story)


def test_an_order_about_a_log_whose_topic_is_not_heard_of_yet_does_not_hold_it_up_for_good() -> None:
    """As after a start, when the metadata has not come so far again."""

    async def story(stage: Stage) -> None:
        await settled(stage)
        controller, (slow, quick) = stage.controller, others(stage)
        stage.part([controller, quick], [slow])
        async with stage.factory_at(controller).admin() as admin:
            await admin.create_topics([NewTopic("later", replica_assignments={0: [controller, quick, slow]})])
        topic_id = stage.recorder.latest.topics_by_name["later"].topic_id
        disk = stage.nodes[BrokerId(slow)].machine.disk
        disk.make_dirs(f"{LOGS}/later-0")
        disk.write_atomically(f"{LOGS}/later-0/partition.metadata", format_partition_metadata(topic_id))
        deletion = StopReplicaPartitionState(0, DELETED_TOPIC_EPOCH, delete_partition=True)
        far_off = stage.recorder.metadata.end_offset + METADATA_AHEAD_MAX // 2
        request = order(stage, slow, deletion, far_off, topic_id)
        request.topic_states[0].topic_name = "later"
        assert await send(stage, slow, request) == (Code.NONE, [Code.NONE])
        stage.heal()
        later = TopicPartition("later", FIRST)

        def serves() -> bool:
            partition = process_of(stage, slow).broker.replica_of(later)
            return partition is not None and partition.role.is_active

        await stage.until(serves, seconds_max=2 * STOPPED_SECONDS_MAX)
        assert not process_of(stage, slow).broker.stops.stopped

    tell(story)


def test_an_order_that_waits_while_the_metadata_brings_its_replica_stops_that() -> None:
    """The order finds no replica, and waits for the image that is being applied. That image has one, with a role."""

    async def story(stage: Stage) -> None:
        await settled(stage)
        slow, _ = others(stage)
        lock = process_of(stage, slow).broker.image_lock
        await lock.acquire()
        async with stage.factory_at(stage.controller).admin() as admin:
            await admin.create_topics([NewTopic("later", replica_assignments={0: [1, 2, 3]})])
        await stage.until(lambda: len(lock._waiters or ()) == 1)  # the image
        state = StopReplicaPartitionState(0, 1, delete_partition=False)
        ordered_at = stage.recorder.metadata.end_offset
        request = order(stage, slow, state, ordered_at, stage.recorder.latest.topics_by_name["later"].topic_id)
        request.topic_states[0].topic_name = "later"
        sent = asyncio.create_task(send(stage, slow, request))
        await stage.until(lambda: len(lock._waiters or ()) == 2)  # the order behind it
        lock.release()
        assert await sent == (Code.NONE, [Code.NONE])
        partition = process_of(stage, slow).broker.replica_of(TopicPartition("later", FIRST))
        assert partition is not None
        assert not partition.role.is_active
        await reassign(stage, 3, 2, 1)
        await stage.until(lambda: partition.role.is_active)

    tell(story)


async def move_about(stage: Stage, rng: SeededRng) -> None:
    """Reassign to and fro, with nodes that end and ways that are cut, while what was pushed comes again and again."""
    addresses = {node_id: Address(machine_of(node_id), INTERNAL_PORT) for node_id in stage.nodes}
    late = LateStops(stage.world.client_world(CLIENT).network, addresses, rng)
    for node in stage.nodes.values():
        node.on_made = late.listen_to
        assert node.node is not None
        late.listen_to(node.node)
    await settled(stage)
    delivering = asyncio.ensure_future(late.run())
    for number in range(STEPS):
        await stage.until(lambda: stage.controller != 0)
        await stage.until_settled()
        replicas = [1, 2, 3]
        for _ in range(rng.randrange(1, 3)):
            replicas.append(replicas.pop(rng.randrange(0, 3)))
        await reassign(stage, *replicas[: rng.randrange(2, 4)])
        await stage.produce(f"m{number}")
        drawn, victim = rng.randrange(0, 4), rng.randrange(1, 4)
        if drawn == 0:
            stage.kill(victim)
            await stage.start(victim)
        elif drawn == 1:
            stage.part([victim], [each for each in (1, 2, 3) if each != victim])
            await asyncio.sleep(2 * rng.random())
            stage.heal()
    await stage.until_settled()
    delivering.cancel()
    assert late.delivered > 0


STEPS = 12


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replicas_that_move_about_lose_nothing_to_orders_that_come_late_and_again(seed: int) -> None:
    async def story(stage: Stage) -> None:
        await move_about(stage, stage.world.rng.stream("moves"))

    tell(story, seed=seed)


async def obey_at_once(self: StopOrders, order: StopOrder) -> None:
    """Whatever it says, and whatever the metadata says."""
    partition = self._broker.hosted.by_name.get(order.topic_partition)
    if partition is not None:
        self._broker.hosted.remove(order.topic_partition, partition.topic_id)
        await self._files.deletions.delete([(order.topic_partition, partition.topic_id)])


@pytest.mark.parametrize(
    ("owner", "name", "planted", "play"),
    [
        (StopOrders, "obey", obey_at_once, late_and_again),
        (HostedPartitions, "stop_serving", lambda *_: None, delete_before_the_metadata_comes),
    ],
    ids=["files go at once", "it serves on"],
)
def test_a_broker_that_obeys_too_much_or_too_little_is_told(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    planted: object,
    play: Callable[[Stage], Coroutine[object, object, None]],
) -> None:
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError, match=StoppedMeansStopped.name):
        tell(play)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_what_names_no_incarnation_of_the_broker_is_refused(version: int) -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        slow, _ = others(stage)
        request = StopReplicaRequest(controller_id=1, controller_epoch=1_000)
        if version == 0:
            request.ungrouped_partitions = [StopReplicaPartitionV0(TOPIC, 0), StopReplicaPartitionV0("other", 0)]
            request.delete_partitions = True
        assert await send(stage, slow, request, version=version) == (Code.STALE_BROKER_EPOCH, [])
        assert is_serving(stage, slow)

    tell(story)


@pytest.mark.parametrize("version", [1, 2])
def test_what_tells_no_leader_epochs_stops_nothing(version: int) -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        slow, _ = others(stage)
        topics = [StopReplicaTopicV1(TOPIC, [0]), StopReplicaTopicV1("other", [0])]
        request = StopReplicaRequest(
            controller_id=1, controller_epoch=1_000, broker_epoch=1 << 40, delete_partitions=True, topics=topics
        )
        assert await send(stage, slow, request, version=version) == (Code.NONE, [OLD, Code.NONE])
        assert is_serving(stage, slow)

    tell(story)


def test_clients_are_neither_offered_nor_served_it() -> None:
    async def story(stage: Stage) -> None:
        await settled(stage)
        number = stage.leader
        state = StopReplicaPartitionState(0, stage.state.leader_epoch, delete_partition=True)
        request = order(stage, number, state, stage.recorder.metadata.end_offset)
        network = stage.world.client_world(CLIENT).network
        for port, is_served in ((CLIENT_PORT, False), (INTERNAL_PORT, True)):
            address = Address(machine_of(BrokerId(number)), port)
            connection = await open_connection(network, address, ConnectionSettings("anybody"))
            assert connection.versions.serves(ApiKey.STOP_REPLICA, 4) == is_served
            connection.close()
        with pytest.raises(NetworkError):
            await send(stage, number, request, port=CLIENT_PORT)
        assert is_serving(stage, number)

    tell(story)
