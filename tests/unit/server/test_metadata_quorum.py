"""Three controllers and what can happen to them: the metadata log goes on, and nothing that was committed is lost."""

from __future__ import annotations

import asyncio

import pytest

from support.fixtures.loop_steps import Steps
from support.worlds.simulated_quorum import METADATA, PORT, Quorum, format_directory, run_quorum
from tidelog.base.errors import Code, ConfigError, CorruptLogError, KafkaError, NetworkError
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch, Offset
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.quorum.values import FetchAnswer, QuorumSettings, Role, VoteAnswer
from tidelog.server.quorum import metadata_quorum
from tidelog.server.quorum.controller import Controller
from tidelog.server.quorum.metadata_log import MetadataBatch
from tidelog.server.quorum.quorum_messages import METADATA_TOPIC_ID
from tidelog.server.quorum.quorum_peers import Namesake
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from tidelog.wire.messages.api_52_vote import VotePartition, VoteRequest, VoteResponse, VoteTopic

SEEDS = pytest.mark.parametrize("seed", range(3))


@SEEDS
def test_one_of_three_leads_and_all_have_what_is_committed(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        assert {node.quorum.leader_id for node in quorum.running} == {leader}
        assert {node.quorum.leader_epoch for node in quorum.running} == {1}
        assert quorum.log_of(1) == quorum.log_of(2) == quorum.log_of(3)
        for node in quorum.running:
            address = node.quorum.leader_address
            assert address is not None
            assert address.host == f"node-{leader}"
            assert node.quorum.is_leader == (node.config.node_id == leader)

    run_quorum(story, seed)


@SEEDS
def test_when_the_leader_is_killed_another_one_goes_on(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        first = await quorum.leader()
        await quorum.set(2_000)
        quorum.nodes[first].kill()
        killed = asyncio.get_running_loop().time()
        second = await quorum.leader()
        assert second != first
        assert asyncio.get_running_loop().time() - killed < 0.5  # its connections closed: nobody waits for silence
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        await quorum.nodes[first].start()
        await quorum.until_all_have(3_000)
        assert await quorum.leader() == second
        await quorum.until(lambda: quorum.log_of(first) == quorum.log_of(second), "its log is the leader's")

    run_quorum(story, seed)


@SEEDS
def test_a_leader_that_is_cut_off_leads_no_more_and_gives_way(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        first = await quorum.leader()
        await quorum.set(2_000)
        for other in {1, 2, 3} - {first}:
            quorum.world.network.partition(f"node-{first}", f"node-{other}")
        lonely = quorum.node(first)
        waiting = quorum.machine(first).do(lambda: quorum.set_at(lonely, 9_999))
        second = await quorum.leader(other_than=first)
        await quorum.until(lambda: lonely.active_controller is None, "it knows that it leads no more")
        assert not lonely.quorum.is_leader
        with pytest.raises(KafkaError) as lost:
            await waiting
        assert lost.value.code is Code.NOT_CONTROLLER
        assert quorum.values()[first] == "2000"
        quorum.world.network.heal()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)  # what it alone had written is gone
        assert second in quorum.leaders()
        await quorum.until(lambda: quorum.log_of(first) == quorum.log_of(second), "its log is the leader's")

    run_quorum(story, seed)


@SEEDS
def test_all_lose_power_at_once_and_nothing_is_lost(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        for value in range(2_000, 2_020):
            await quorum.set(value)
        for node in quorum.nodes.values():
            node.lose_power()
        await quorum.start()
        await quorum.until_all_have(2_019)
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)

    run_quorum(story, seed)


class Replaying:
    """What controllers replay of the metadata log, and which ends they publish while they are not active."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = Steps()
        self.ends: set[int] = set()
        self.published: set[int] = set()
        replay, publish = Controller.on_replayed, Controller.on_committed

        def on_replayed(controller: Controller, batch: MetadataBatch) -> None:
            self.steps.count(len(batch.records))
            self.ends.add(batch.end_offset)
            replay(controller, batch)

        def on_committed(controller: Controller, end_offset: Offset) -> None:
            if not controller.is_active and self.ends:
                self.published.add(end_offset)
            publish(controller, end_offset)

        monkeypatch.setattr(Controller, "on_replayed", on_replayed)
        monkeypatch.setattr(Controller, "on_committed", on_committed)


@SEEDS
def test_who_has_much_to_replay_does_so_in_turns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts again, and one that is to lead by then."""
    monkeypatch.setattr(metadata_quorum, "RECORDS_PER_TURN", 10)

    async def story(quorum: Quorum) -> None:
        await quorum.start()
        first = await quorum.leader()
        (behind, *_) = {1, 2, 3} - {first}
        quorum.nodes[behind].kill()
        for value in range(2_000, 2_050):
            await quorum.set(value)
        replaying = Replaying(monkeypatch)
        await quorum.nodes[behind].start()
        await quorum.until_all_have(2_049)
        assert sum(replaying.steps.counts) >= 50
        assert max(replaying.steps.counts) <= 20, "a turn, and what was committed meanwhile"
        assert replaying.published <= {0, *replaying.ends}, "whole batches, or nothing yet"
        quorum.nodes[first].kill()
        await quorum.leader(other_than=first)
        await quorum.set(3_000)
        await quorum.nodes[first].start()
        await quorum.until_all_have(3_000)
        assert max(replaying.steps.counts) <= 20

    run_quorum(story, seed)


def test_who_stops_hands_over_at_once() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        for _ in range(3):
            first = await quorum.leader()
            await quorum.set(2_000)
            assert await quorum.nodes[first].stop()
            stopped = asyncio.get_running_loop().time()
            assert await quorum.leader() != first
            assert asyncio.get_running_loop().time() - stopped < 0.3
            await quorum.nodes[first].start()

    run_quorum(story)


def test_a_majority_is_needed_and_enough() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start(1)
        await asyncio.sleep(20)
        assert quorum.leaders() == []
        with pytest.raises(KafkaError) as refused:
            quorum.node(1).controller.leader_epoch  # noqa: B018
        assert refused.value.code is Code.NOT_CONTROLLER
        await quorum.start(3)
        await quorum.leader()
        await quorum.set(2_000)
        await quorum.start(2)
        await quorum.until_all_have(2_000)

    run_quorum(story)


def test_an_observer_follows_whoever_leads() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        quorum.add(7, roles="broker", listeners="PLAINTEXT://node-7:9092")
        starting = quorum.nodes[7].start_soon()
        starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        assert quorum.node(7).quorum._machine.standing.role is Role.FOLLOWER
        first = await quorum.leader()
        quorum.nodes[first].kill()
        await quorum.leader()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        assert len(quorum.running) == 3

    run_quorum(story)


def test_an_answer_that_nobody_waits_for_does_not_take_the_place_of_what_is_to_be_appended() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        follower = quorum.node(next(number for number in (1, 2, 3) if number != leader)).quorum
        storage = follower.storage
        await quorum.set(1_000)
        await quorum.until_all_have(1_000)
        async with storage.log_lock:  # its disk is at work
            setting = asyncio.ensure_future(quorum.set(2_000))
            await quorum.until(lambda: storage.fetched is not None, "records wait to be appended")
            late = FetchAnswer(Code.NONE, LeaderEpoch(0), None, Offset(0), end_offset=Offset(1))
            follower.on_answered(1, late, b"of a leader that was silent for long")
        await setting
        await quorum.until_all_have(2_000)
        assert len(quorum.running) == 3

    run_quorum(story)


def test_a_follower_whose_tail_was_damaged_fetches_it_again() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        for value in (2_000, 2_001, 2_002):
            await quorum.set(value)
        await quorum.until_all_have(2_002)
        hurt = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        quorum.nodes[hurt].kill()
        (path,) = _segments(quorum, hurt)
        quorum.machine(hurt).disk.files[path].data[-1] ^= 1
        await quorum.nodes[hurt].start()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        await quorum.until(lambda: quorum.log_of(hurt) == quorum.log_of(leader), "its log is whole again")

    run_quorum(story)


def test_sectors_that_were_never_synced_are_no_damage() -> None:
    """Of what was written and not synced a loss of power may keep the later sectors, and not the earlier ones."""

    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        for value in range(2_000, 2_150):
            await quorum.set(value)
        await quorum.until_all_have(2_149)
        hurt = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        quorum.nodes[hurt].kill()
        (path,) = _segments(quorum, hurt)
        data = quorum.machine(hurt).disk.files[path].data
        assert len(data) > 8_192
        data[4_096:4_608] = bytes(512)
        await quorum.nodes[hurt].start()
        await quorum.until_all_have(2_149)
        await quorum.nodes[hurt].stop()
        await quorum.nodes[hurt].start()
        await quorum.until(lambda: quorum.log_of(hurt) == quorum.log_of(leader), "its log is whole again")

    run_quorum(story)


def test_damage_in_the_middle_is_refused_with_the_offset() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        for value in (2_000, 2_001, 2_002):
            await quorum.set(value)
        hurt = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        quorum.nodes[hurt].kill()
        (path,) = _segments(quorum, hurt)
        data = quorum.machine(hurt).disk.files[path].data
        data[len(data) // 2] ^= 1
        with pytest.raises(CorruptLogError, match=r"damaged at offset \d+, committed metadata behind the damage"):
            await quorum.nodes[hurt].start()
        quorum.nodes[hurt].kill()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)  # the others are unharmed

    run_quorum(story)


def _segments(quorum: Quorum, node_id: int) -> list[str]:
    files = quorum.machine(node_id).disk.files
    return sorted(path for path in files if path.startswith(METADATA) and path.endswith(".log"))


def test_a_node_of_another_cluster_is_refused_and_the_cluster_is_unharmed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        leader = await quorum.leader()
        quorum.add(7, roles="broker", cluster_id=ClusterId("ANOTHER-CLUSTER-000000"))
        starting = quorum.nodes[7].start_soon()
        starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(20)
        assert quorum.node(7).quorum.leader_id is None
        await quorum.set(3_000)
        assert await quorum.leader() == leader
        said = [record.getMessage() for record in caplog.records]
        for text in ("is of cluster ANOTHER-CLUSTER-000000, this node of", "is of another cluster than this node"):
            told = [line for line in said if text in line]
            assert 1 <= len(told) <= 3, told  # each of the three is told, and tells, once

    run_quorum(story)


def test_a_second_process_with_the_id_of_the_leader_ends_and_says_why() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        twin = quorum.twin(leader)
        await twin.start()
        assert twin.node is not None
        why = await twin.node.failure
        assert f"another process leads the metadata quorum as node {leader}" in why
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        assert await quorum.leader() == leader
        assert quorum.node(leader).quorum.leader_epoch == 1

    run_quorum(story)


def test_a_leader_that_lost_its_directory_follows_the_next_one() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        leader = await quorum.leader()
        quorum.nodes[leader].kill()
        quorum.machine(leader).disk.remove_tree("logs")
        format_directory(quorum.machine(leader), leader)
        await quorum.nodes[leader].start()
        await quorum.until_all_have(2_000)
        assert await quorum.leader() != leader

    run_quorum(story)


def test_to_be_named_for_a_moment_shows_no_namesake() -> None:
    """As a leader is that lost its directory: until the others notice that nobody leads."""
    settings = QuorumSettings()
    namesake = Namesake(BrokerId(1), settings, is_controller=True)

    def is_seen(now_ms: int, leader_epoch: int = 5, leader_id: int | None = 1, *, leads: bool = False) -> bool:
        who = None if leader_id is None else BrokerId(leader_id)
        answer = VoteAnswer(Code.NONE, LeaderEpoch(leader_epoch), who)
        return namesake.is_seen(answer, leads=leads, now_ms=now_ms)

    assert namesake.patience_ms > settings.fetch_timeout_ms + 2 * settings.election_timeout_ms
    assert not is_seen(1_000)
    assert not is_seen(1_000 + namesake.patience_ms - 1)
    assert not is_seen(1_000 + namesake.patience_ms, leader_id=2)
    assert not is_seen(1_000 + namesake.patience_ms, leader_id=None)
    assert not is_seen(1_000 + namesake.patience_ms, leads=True)
    assert not is_seen(1_000 + namesake.patience_ms, leader_epoch=6), "this one may have led in it, and lost it"
    assert not is_seen(1_000 + 2 * namesake.patience_ms - 1, leader_epoch=6)
    assert is_seen(1_000 + 2 * namesake.patience_ms, leader_epoch=6)
    assert Namesake(BrokerId(1), settings, is_controller=False).is_seen(
        VoteAnswer(Code.NONE, LeaderEpoch(5), BrokerId(1)), leads=False, now_ms=0
    )


def test_a_directory_that_nobody_formatted_is_refused_where_others_vote_too() -> None:
    """It may be new, or in place of one that is lost, whose votes nobody knows: the remedies differ."""

    async def story(quorum: Quorum) -> None:
        quorum.machine(1).disk.remove("logs/meta.properties")
        with pytest.raises(ConfigError) as raised:
            await quorum.nodes[1].start()
        command = "tidelog storage format --cluster-id ID --config-file FILE"
        for_new, for_lost = str(raised.value).split(". If it had a directory")
        assert for_new.endswith(f"If this node is new: {command}, with the same id at every node")
        assert f"put that back (is a disk not mounted?); where it is lost: {command} --lost" in for_lost

    run_quorum(story)


def test_a_directory_of_another_node_is_refused() -> None:
    async def story(quorum: Quorum) -> None:
        quorum.machine(1).disk.write_atomically(
            "logs/meta.properties", quorum.machine(2).disk.read_bytes("logs/meta.properties")
        )
        with pytest.raises(ConfigError, match="belongs to node 2, this is node 1"):
            await quorum.nodes[1].start()

    run_quorum(story)


def test_news_of_a_commit_come_at_once_and_with_an_older_peer_in_half_a_second() -> None:
    """Fetch 18 says what the follower knows, so that the leader need not be silent (KIP-1166); 17 is spoken as well."""

    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        new, old = sorted({1, 2, 3} - {leader})
        quorum.node(old).quorum.peers.fetch_version_max = 17
        loop = asyncio.get_running_loop()
        longest = {new: 0.0, old: 0.0}
        await asyncio.sleep(2)
        for value in range(2_000, 2_020):
            await quorum.set(value)
            committed = loop.time()
            for node_id in sorted(longest):
                await quorum.until(lambda n=node_id, v=value: quorum.values()[n] == str(v), "it is told")  # type: ignore[misc]
                longest[node_id] = max(longest[node_id], loop.time() - committed)
            await asyncio.sleep(0.7)
        assert longest[old] > 0.3
        assert longest[new] < longest[old]

    run_quorum(story)


def test_a_fetch_whose_connection_ends_is_forgotten() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.set(2_000)
        machine = quorum.node(leader).quorum
        fetch = FetchPartition(
            partition=0,
            current_leader_epoch=machine.leader_epoch or 0,
            fetch_offset=machine.high_watermark or 0,
            last_fetched_epoch=machine.leader_epoch or 0,
            partition_max_bytes=1_000,
            high_watermark=machine.high_watermark or 0,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=99),
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[fetch])],
        )
        world = quorum.world.client_world("client")
        address = Address(f"node-{leader}", PORT)
        connection = await open_connection(world.network, address, ConnectionSettings("test"))
        answer = connection.send(request, FetchResponse, timeout_ms=60_000)
        await quorum.until(lambda: machine.pending_requests.count == 3, "it waits, as those of the two followers do")
        connection.close()
        with pytest.raises(NetworkError):
            await answer
        await quorum.until(lambda: machine.pending_requests.count < 3, "it is forgotten")
        await asyncio.sleep(2)
        assert machine.pending_requests.count <= 2

    run_quorum(story)


def test_garbage_moves_nobody() -> None:
    """Who took the last epoch that there is could not be followed by anybody."""

    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        for node_id in (1, 2, 3):
            for epoch in (2**31 - 1, -1):
                ballot = VotePartition(replica_epoch=epoch, replica_id=2, last_offset_epoch=1, last_offset=1)
                request = VoteRequest(topics=[VoteTopic("__cluster_metadata", [ballot])])
                try:
                    answer = await quorum.ask(node_id, request, VoteResponse)
                except NetworkError:
                    continue  # hung up on
                assert answer.error_code == Code.INVALID_REQUEST
            elsewhere = VoteRequest(topics=[VoteTopic("another", [ballot])])
            assert (await quorum.ask(node_id, elsewhere, VoteResponse)).error_code == Code.INVALID_REQUEST
        await quorum.set(2_000)
        assert await quorum.leader() == leader
        assert quorum.node(leader).quorum.leader_epoch == 1

    run_quorum(story)


def test_voters_that_disagree_elect_nobody_whom_the_others_do_not_know(caplog: pytest.LogCaptureFixture) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        others = "1@node-1:9093,2@node-2:9093,4@node-4:9093"
        quorum.add(4, controller_quorum_voters=others, controller_quorum_fetch_timeout_ms="500")  # so it stands first
        await quorum.start(4)
        quorum.nodes[await quorum.leader()].kill()
        await asyncio.sleep(10)
        leader = await quorum.leader()
        assert leader in (1, 2, 3)
        await quorum.set(3_000)
        said = [record.getMessage() for record in caplog.records]
        assert any("asks to be led by node 4, which is none of the voters here (1, 2, 3)" in line for line in said)
        assert any("INCONSISTENT_VOTER_SET" in line for line in said)

    run_quorum(story)
