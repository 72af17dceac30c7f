"""The stories of KIP-101, KIP-320 and KIP-1166 over whole nodes: production code, a virtual clock, given faults."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from support.nodes.cluster_stage import PARTITION, Stage, tell
from tidelog.base.errors import TidelogError
from tidelog.base.ids import BrokerId
from tidelog.base.ports import Buffer
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.core.values import ConsumerRecord, PositionReset
from tidelog.log.files.replica_list import REPLICA_LIST_FILE
from tidelog.log.run_files import INCARNATION_FILE
from tidelog.net.address import parse_address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.sim.node import LOGS
from tidelog.sim.runs.cluster_plan import machine_of
from tidelog.sim.runs.workload import TOPIC
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

ROUND_TRIP_MS_MAX = 10
"""Of the simulated network, a slow one, with the disks of a majority in it."""
FETCH_WAIT_MS_MAX = 500
KILLED_MS_MAX = 1_000
SESSION_MS = 4_000
CUT_OFF_MS_MAX = 10_000
"""With a session of 1 s: in it the leader finds out, and meanwhile others elect a controller, and that a leader.

The leader may hold back its answer to Metadata for 5 s (`metadata.consistency.wait.ms.max`), since the client has heard
newer metadata elsewhere; what it answers to produce requests on that connection comes behind it.
"""
REQUEST_TIMEOUT_MS = 30_000
QUORUM_AWAY_SECONDS = 60
WRITE_WAITS_MS_MAX = 300
"""In a controlled shutdown, the time in which a client learns of the new leader included."""


async def read(stage: Stage, count: int, resets: list[PositionReset] | None = None) -> list[str]:
    """The first records, as a consumer is given them."""
    found: list[ConsumerRecord] = []
    on_reset = None if resets is None else resets.append
    async with stage.factory.consumer(auto_offset_reset="earliest", on_reset=on_reset) as consumer:
        consumer.assign([PARTITION])
        async with asyncio.timeout(60):
            while len(found) < count:
                found += await consumer.poll(timeout_ms=100)
    return [bytes(record.value or b"").decode() for record in found]


# KIP-101: high watermarks are no guide to truncation.


def test_a_follower_that_restarts_and_leads_at_once_keeps_what_it_had() -> None:
    """KIP-101, scenario 1: it knows an older high watermark than it had, and cuts nothing to that."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.produce("m1", "m2")
        await stage.until_settled()
        stage.kill(2, 3)
        await stage.start(2, 3)
        stage.kill(1)
        await stage.until(lambda: stage.leader in (2, 3))
        assert stage.values(stage.leader)[:2] == ["m1@0", "m2@0"]
        await stage.produce("m3")
        await stage.start(1)
        await stage.until_settled()
        leader_epochs = [int(value.partition("@")[2]) for value in stage.values(1)]
        assert [value.partition("@")[0] for value in stage.values(1)] == ["m1", "m2", "m3"]
        assert leader_epochs[:2] == [0, 0]
        assert leader_epochs[2] > 0

    tell(story)


def test_followers_that_lost_power_get_again_what_they_lost() -> None:
    """KIP-101, scenario 2: what they had not synced may be gone; the leader has it, and nobody else may lead before."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.produce(*(f"m{number}" for number in range(20)))
        await stage.until_settled()
        stage.lose_power(2, 3)
        await stage.start(2, 3)
        assert stage.leader == 1
        await stage.until_settled()
        stage.kill(1)
        await stage.until(lambda: stage.leader in (2, 3))
        assert [value.partition("@")[0] for value in stage.values(stage.leader)] == [f"m{n}" for n in range(20)]
        await stage.start(1)
        await stage.until_settled()

    tell(story, allows_unclean=True)


def test_a_leader_that_returns_does_not_lead_on_in_its_epoch() -> None:
    """Nobody else could: it is the last one in sync. Its records come in another leader epoch all the same."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(1)
        await stage.produce("m1")
        before = stage.state.leader_epoch
        stage.kill(1)
        await stage.start(1)
        await stage.until(lambda: stage.leader == 1 and stage.state.leader_epoch > before)
        await stage.produce("m2")
        assert stage.values(1) == ["m1@0", f"m2@{stage.state.leader_epoch}"]

    tell(story, properties={"min.insync.replicas": "1"})


# KIP-320: who is behind is told so.


def test_a_zombie_behind_a_partition_commits_nothing_and_forgets_what_it_wrote() -> None:
    """Clients reach it all the while; nodes do not. This producer gives up before others come to lead."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        async with stage.factory.producer(delivery_timeout_ms=700, request_timeout_ms=600) as producer:
            await (await producer.send(TOPIC, b"m1"))  # its producer id comes from the controller, which may be cut off
            await stage.until_settled()
            stage.part([1], [2, 3])
            lost = await producer.send(TOPIC, b"zombie")
            with pytest.raises(TidelogError):
                await lost
        assert "zombie@0" in stage.values(1)
        await stage.until(lambda: stage.leader in (2, 3))
        await stage.produce("m2", at=(2, 3))
        stage.heal()
        await stage.until_settled()
        assert [value.partition("@")[0] for value in stage.values(1) if value[0] == "m"] == ["m1", "m2"]
        assert stage.values(1) == stage.values(2) == stage.values(3)
        assert await read(stage, len(stage.values(1))) == [value.partition("@")[0] for value in stage.values(1)]

    tell(story)


def test_a_consumer_is_told_of_what_an_unclean_election_takes_from_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2)
        await stage.produce("m1", "m2")
        await stage.until_settled()
        stage.kill(2)
        await stage.until(lambda: stage.state.isr == (1,))
        await stage.produce("m3", "m4")
        resets: list[PositionReset] = []
        async with stage.factory.consumer(auto_offset_reset="earliest", on_reset=resets.append) as consumer:
            consumer.assign([PARTITION])
            given = 0
            while given < 4:
                given += len(await consumer.poll(timeout_ms=100))
            stage.kill(1)
            await stage.start(2)
            await stage.until(lambda: stage.leader == 0)
            async with stage.factory.admin() as admin:
                await admin.elect_leaders("unclean", [PARTITION])
            await stage.until(lambda: stage.leader == 2)
            await stage.produce("n3")
            found: list[ConsumerRecord] = []
            async with asyncio.timeout(60):
                while not found:
                    found += await consumer.poll(timeout_ms=100)
        (reset,) = resets
        assert reset.divergent_offset == 2
        assert [(record.offset, bytes(record.value or b"")) for record in found] == [(2, b"n3")]
        await stage.start(1)
        await stage.until_settled()
        assert [value.partition("@")[0] for value in stage.values(1)] == ["m1", "m2", "n3"]

    recorder = tell(story, properties={"min.insync.replicas": "1"}, allows_unclean=True)
    assert recorder.facts["unclean election"] == 1


def test_a_topic_placed_on_two_brokers_that_lost_their_disks_waits_for_an_operator() -> None:
    """The controller still takes them for alive, and the third leaves the ISR while they are enough for it.

    Two disks at once are more than `min.insync.replicas` of two covers: the third may lack what both acknowledged, for
    all that the controller knows. So nobody leads, and a run that keeps promises draws no such second loss. One that
    did made no progress (seed 930045 of five nodes).
    """

    async def story(stage: Stage) -> None:
        assert stage.recorder.may_lose_power(BrokerId(4), is_disk=True)
        stage.lose_disk(4)
        assert not stage.recorder.may_lose_power(BrokerId(5), is_disk=True)
        stage.lose_disk(5)
        await stage.make_topic(4, 5, 1)
        stage.kill(1)
        await stage.start(1)
        await stage.until(lambda: set(stage.state.isr) == {4, 5})
        await stage.start()
        await stage.until(lambda: stage.leader == 0)
        assert (stage.state.isr, stage.state.eligible_leader_replicas) == ((), ())
        async with stage.factory.admin() as admin:
            await admin.elect_leaders("unclean", [PARTITION])
        await stage.until_settled()
        await stage.produce("m1")

    recorder = tell(story, nodes=5, allows_unclean=True, seed=2)  # in which node 1 is back before they are fenced
    assert recorder.facts["unclean election"] == 1


# Files that are gone.


def test_who_lost_the_file_of_a_log_and_then_the_list_of_its_logs_does_not_lead_without_records() -> None:
    """The directory of the log is there. What was listed for it is not, and nobody had found out before.

    Elected as one that had been in sync, it led an empty log, and a follower that knew better stopped for good (seed
    3744903 of three nodes).
    """

    async def story(stage: Stage) -> None:
        await stage.make_topic(2, 3)
        await stage.produce("m1", "m2")
        await stage.until_settled()
        stage.kill(1, 2, 3)
        node_id, disk = BrokerId(2), stage.nodes[BrokerId(2)].machine.disk
        stage.recorder.before_log_lost(node_id, PARTITION)
        disk.remove(f"{LOGS}/{PARTITION}/{0:020d}.log")
        disk.remove(f"{LOGS}/{REPLICA_LIST_FILE}")
        stage.recorder.after_end(node_id)
        await stage.start(1, 2)
        await stage.until(lambda: stage.leader != 3)
        assert (stage.leader, stage.state.eligible_leader_replicas) == (0, (3,))
        await stage.start(3)
        await stage.until_settled()
        assert [value.partition("@")[0] for value in stage.values(2)] == ["m1", "m2"]

    tell(story)


# A process that is killed between two others of its broker.


def test_who_is_killed_while_it_registers_has_lost_nothing_all_the_same() -> None:
    """The controller has committed the registration; the directory does not say so yet, and nobody else could lead."""

    def kill_when_registered(stage: Stage, number: int) -> None:
        machine = stage.nodes[BrokerId(number)].machine
        tell_machine = machine.disk.on_change

        def on_change(operation: str, path: str, data: Buffer) -> None:
            if INCARNATION_FILE in path and operation == "write" and b"registers" not in bytes(data):
                machine.disk.on_change = tell_machine
                machine.kill_at_change = 0
            tell_machine(operation, path, data)

        machine.disk.on_change = on_change

    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2)
        await stage.produce("m1")
        await stage.until_settled()
        stage.kill(1, 2)
        for number in (1, 2):
            kill_when_registered(stage, number)
            stage.nodes[BrokerId(number)].start_soon()
        await stage.until(lambda: not any(stage.nodes[BrokerId(number)].machine.is_running for number in (1, 2)))
        stage.kill(1, 2)
        await stage.start()
        await stage.until_settled()
        assert stage.values(1) == stage.values(2) == ["m1@0"]
        await stage.produce("m2")

    tell(story)


# A node that comes back with an empty disk.


def test_the_leader_of_the_quorum_may_come_back_empty_and_leads_nothing_that_it_does_not_know() -> None:
    """The others say that it leads their epoch: it does not any more, and takes what they have."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.produce("m1", "m2")
        await stage.until_settled()
        stage.lose_disk(stage.controller)
        await stage.start()
        await stage.until(lambda: stage.controller != 0)
        await stage.until_settled()
        assert stage.values(1) == stage.values(2) == stage.values(3) == ["m1@0", "m2@0"]

    tell(story)


# A process that is gone, long before its session ends.


@pytest.mark.parametrize("is_controller", [False, True])
def test_a_leader_that_is_killed_is_noticed_by_its_closed_connection(is_controller: bool) -> None:
    """If it led the quorum too, its successor first hears of the others."""

    async def story(stage: Stage) -> None:
        numbers = sorted((1, 2, 3), key=lambda number: (number == stage.controller) != is_controller)
        await stage.make_topic(*numbers)
        await stage.produce("m1")
        await stage.until_settled()
        victim, *others = numbers
        killed_at = asyncio.get_running_loop().time()
        stage.kill(victim)
        await stage.until(lambda: stage.leader in others)
        await stage.produce("m2", at=tuple(others))
        assert (asyncio.get_running_loop().time() - killed_at) * 1000 < KILLED_MS_MAX
        assert stage.recorder.latest.brokers[BrokerId(victim)].is_fenced
        await stage.start()
        await stage.until_settled()

    tell(story, session_ms=600_000)


@pytest.mark.parametrize(("milliseconds", "end_ms_max"), [(1, 0), (20, 0), (80, 0), (0, 40), (1, 40)])
def test_whoever_asks_once_for_the_leader_that_was_killed_learns_of_its_successor(
    milliseconds: int, end_ms_max: float
) -> None:
    """Stock clients ask when their connection breaks, and then not for a second. The killed one is shown all the same:
    librdkafka drops the partitions of whom an answer does not show. Whoever is asked may have yet to hear of its end,
    because the client's connection ended first."""

    async def story(stage: Stage) -> None:
        controller = stage.controller
        victim, asked = (number for number in (1, 2, 3) if number != controller)
        await stage.make_topic(victim, asked, controller)
        await stage.produce("m1")
        await stage.until_settled()
        client = stage.world.client_world("asks once")
        address = parse_address(stage.nodes[BrokerId(asked)].bootstrap)
        connection = await open_connection(client.network, address, ConnectionSettings(client_id="asks once"))
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        stage.world.network.faults.end_ms_max = end_ms_max
        stage.kill(victim)
        await asyncio.sleep(milliseconds / 1000)
        answer = await connection.request(request, MetadataResponse, timeout_ms=1_000)
        assert answer.topics[0].partitions[0].leader_id in (asked, controller)
        assert victim in {broker.node_id for broker in answer.brokers}
        connection.close()
        await stage.start()
        await stage.until_settled()

    tell(story, session_ms=600_000)


def test_whoever_is_told_of_a_new_leader_finds_it_leading() -> None:
    """It may hear of its election later than the broker that was asked: it would send clients on, or back."""

    async def story(stage: Stage) -> None:
        controller = stage.controller
        victim, successor = (number for number in (1, 2, 3) if number != controller)
        await stage.make_topic(victim, successor, controller)
        await stage.produce("m1")
        await stage.until_settled()
        client = stage.world.client_world("asks once")
        address = parse_address(stage.nodes[BrokerId(controller)].bootstrap)
        connection = await open_connection(client.network, address, ConnectionSettings(client_id="asks once"))
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        stage.world.network.far_ms[machine_of(BrokerId(successor))] = 20
        stage.kill(victim)
        answer = await connection.request(request, MetadataResponse, timeout_ms=1_000)
        told = answer.topics[0].partitions[0]
        node = stage.nodes[BrokerId(successor)].node
        assert node is not None
        known = node.image.partition(*PARTITION)
        assert known is not None
        assert (known.leader, known.leader_epoch) == (told.leader_id, told.leader_epoch)
        connection.close()
        await stage.start()
        await stage.until_settled()

    tell(story, session_ms=600_000)


@pytest.mark.parametrize("is_controller", [False, True])
def test_what_only_the_killed_one_could_lead_waits_for_its_session(is_controller: bool) -> None:
    """Nobody is elected uncleanly for a connection that closed, though the topic allows it."""

    async def story(stage: Stage) -> None:
        numbers = sorted((1, 2, 3), key=lambda number: (number == stage.controller) != is_controller)
        victim, other, _ = numbers
        await stage.make_topic(victim, other)
        stage.kill(other)
        await stage.until(lambda: stage.state.isr == (victim,))
        await stage.start(other)
        stage.part([other], [victim])
        await stage.produce("m1", at=(victim,))
        killed_at = asyncio.get_running_loop().time()
        stage.kill(victim)
        await stage.until(lambda: stage.leader == other)
        assert (asyncio.get_running_loop().time() - killed_at) * 1000 > SESSION_MS / 2
        stage.heal()
        await stage.start()
        await stage.until_settled()

    properties = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    tell(story, session_ms=SESSION_MS, allows_unclean=True, properties=properties)


def test_a_middle_box_that_refuses_in_its_name_costs_a_living_leader_no_more_than_a_moment() -> None:
    async def story(stage: Stage) -> None:
        leader = next(number for number in (1, 2, 3) if number != stage.controller)
        await stage.make_topic(leader, *(number for number in (1, 2, 3) if number != leader))
        await stage.produce("m1")
        await stage.until_settled()
        us = BrokerId(leader)
        for _ in range(3):
            stage.world.network.refuse(machine_of(us))
            await asyncio.sleep(3)
            assert not stage.recorder.latest.brokers[us].is_fenced, "its next heartbeat has let it in again"
            stage.world.network.admit(machine_of(us))
            await asyncio.sleep(1)
        await stage.until_settled()
        assert stage.state.leader_epoch == 1, "it was taken for dead once, and not again"
        await stage.produce("m2")

    tell(story, session_ms=600_000)


# A leader that is cut off from its followers, and from the controller with them; clients reach everybody.


@pytest.mark.parametrize("is_controller", [False, True])
def test_producers_of_a_leader_that_is_cut_off_look_for_the_next_one(is_controller: bool) -> None:
    """They wait for a session, and for the next leader; not for the time-out of their requests.

    What was written and refused is sent again with its sequence numbers. Nothing is there twice, or out of order.
    """

    async def story(stage: Stage) -> None:
        numbers = sorted((1, 2, 3), key=lambda number: (number == stage.controller) != is_controller)
        await stage.make_topic(*numbers)
        await stage.produce("m")
        await stage.until_settled()
        victim, *others = numbers
        loop = asyncio.get_running_loop()
        values = [f"m{number}" for number in range(40)]
        async with stage.factory.producer(request_timeout_ms=REQUEST_TIMEOUT_MS) as producer:
            parted_at = loop.time()
            stage.part([victim], others)
            sent = []
            for value in values:
                sent.append((value, await producer.send(TOPIC, value.encode())))
                await asyncio.sleep(0.05)
            for value, future in sent:
                stage.acknowledge(value, (await future).offset)
            assert (loop.time() - parted_at) * 1000 < CUT_OFF_MS_MAX < REQUEST_TIMEOUT_MS
        assert stage.leader in others
        stage.heal()
        await stage.until_settled()
        assert [value.partition("@")[0] for value in stage.values(victim)] == ["m", *values]

    tell(story)


def test_a_metadata_quorum_that_is_away_costs_no_write() -> None:
    """Only fetches count: no heartbeat of a broker is answered for many sessions, and followers fetch on."""

    async def story(stage: Stage) -> None:
        controllers, brokers = stage.plan.voter_ids, tuple(stage.plan.broker_ids)
        await stage.make_topic(*brokers)
        await stage.until_settled()
        loop = asyncio.get_running_loop()
        waited_ms: list[float] = []
        async with stage.factory_at(*brokers).producer() as producer:

            async def produce() -> None:
                value, sent_at = f"m{len(waited_ms)}", loop.time()
                stage.acknowledge(value, (await (await producer.send(TOPIC, value.encode()))).offset)
                waited_ms.append((loop.time() - sent_at) * 1000)

            await produce()  # its producer id comes from the controller
            stage.kill(*controllers)
            gone_at = loop.time()
            while loop.time() - gone_at < QUORUM_AWAY_SECONDS:
                await produce()
                await asyncio.sleep(0.1 if len(waited_ms) % 50 else 5)  # for some sessions, nothing is written
        assert max(waited_ms[1:]) < WRITE_WAITS_MS_MAX
        await stage.start()
        await stage.until_settled()
        assert stage.state.leader_epoch == 0

    tell(story, nodes=6, voters=3, is_parted=True)


# A controlled shutdown.


@pytest.mark.parametrize("is_controller", [False, True])
def test_no_write_waits_long_for_a_leader_that_stops(is_controller: bool) -> None:
    """Others lead before it goes; if it leads the quorum too, it says so to the others before it goes."""

    async def story(stage: Stage) -> None:
        numbers = sorted((1, 2, 3), key=lambda number: (number == stage.controller) != is_controller)
        await stage.make_topic(*numbers)
        await stage.until_settled()
        assert (stage.leader == stage.controller) == is_controller
        loop = asyncio.get_running_loop()
        waited_ms: list[float] = []
        async with stage.factory.producer() as producer:

            def on_outcome(sent_at: float, _: object) -> None:
                waited_ms.append((loop.time() - sent_at) * 1000)

            async def produce() -> None:
                for number in range(200):
                    future = await producer.send(TOPIC, b"m%d" % number)
                    future.add_done_callback(partial(on_outcome, loop.time()))
                    await asyncio.sleep(0.01)

            producing = asyncio.create_task(produce())
            await asyncio.sleep(1)
            await stage.stop(stage.leader)
            await producing
            await producer.flush()
        assert len(waited_ms) == 200
        assert max(waited_ms) < WRITE_WAITS_MS_MAX
        await stage.start()
        await stage.until_settled()

    tell(story, session_ms=9_000)


# KIP-1166: what is committed is known everywhere in a round trip.


async def ms_until_known(stage: Stage, name: str) -> int:
    """How long after a topic was told to be made the last broker knows of it."""
    async with stage.factory.admin() as admin:
        await admin.create_topics([NewTopic(name, 1, 3)])
    loop = asyncio.get_running_loop()
    told_at = loop.time()

    def is_known() -> bool:
        nodes = (node.node for node in stage.nodes.values())
        return all(node is not None and node.image.topic(name) is not None for node in nodes)

    while not is_known():
        await asyncio.sleep(0.001)
    return round((loop.time() - told_at) * 1000)


async def longest_ms_until_known(stage: Stage) -> int:
    """Of some topics, each made when all is quiet."""
    stage.world.network.faults.straggle_rate = 0.0
    longest = 0
    for number in range(20):
        await asyncio.sleep(0.777)
        longest = max(longest, await ms_until_known(stage, f"topic-{number}"))
    return longest


def test_a_topic_is_known_everywhere_in_a_round_trip_and_with_fetch_17_when_its_wait_is_over() -> None:
    """The first is the rule, the second its replay with what a follower of an older release sends."""

    async def story(stage: Stage) -> None:
        assert await longest_ms_until_known(stage) <= ROUND_TRIP_MS_MAX

    async def replay(stage: Stage) -> None:
        for node in stage.nodes.values():
            assert node.node is not None
            node.node.quorum.peers.fetch_version_max = 17
        assert FETCH_WAIT_MS_MAX / 2 < await longest_ms_until_known(stage) <= FETCH_WAIT_MS_MAX + ROUND_TRIP_MS_MAX

    tell(story)
    tell(replay)
