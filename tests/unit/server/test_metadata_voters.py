"""Voters of the metadata quorum that stand in its log: the first ones, one more, one less, one elsewhere (KIP-853)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.worlds.simulated_quorum import METADATA, PORT, Quorum, directory_id, format_directory, run_quorum, voter
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId
from tidelog.log.directory import LogDirectory
from tidelog.quorum.values import ReplicaKey, Role
from tidelog.wire.messages import api_55_describe_quorum as describe
from tidelog.wire.messages import api_80_add_raft_voter as add
from tidelog.wire.messages import api_81_remove_raft_voter as remove

SEEDS = pytest.mark.parametrize("seed", range(3))
SMALL = {"metadata.log.max.record.bytes.between.snapshots": "400"}


def described() -> describe.DescribeQuorumRequest:
    topic = describe.DescribeQuorumTopic("__cluster_metadata", [describe.DescribeQuorumPartition(0)])
    return describe.DescribeQuorumRequest(topics=[topic])


def to_add(node_id: int, timeout_ms: int = 20_000) -> add.AddRaftVoterRequest:
    return add.AddRaftVoterRequest(
        timeout_ms=timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory_id(node_id),
        listeners=[add.Listener("CONTROLLER", f"node-{node_id}", PORT)],
    )


@SEEDS
def test_the_first_voters_come_with_the_directories_and_go_into_the_log(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        await quorum.until(lambda: all(len(node.image.controllers) == 3 for node in quorum.running), "all registered")
        for node in quorum.running:
            assert node.quorum.voters.voters == (voter(1), voter(2), voter(3))
        answer = await quorum.ask(leader, described(), describe.DescribeQuorumResponse)
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (leader, 1)
        assert {one.replica_id: one.replica_directory_id for one in partition.current_voters} == {
            node_id: directory_id(node_id) for node_id in (1, 2, 3)
        }
        assert {one.log_end_offset for one in partition.current_voters} == {partition.high_watermark}
        assert {one.node_id: one.listeners[0].host for one in answer.nodes} == {
            node_id: f"node-{node_id}" for node_id in (1, 2, 3)
        }
        quorum.add(9, roles="broker")
        observing = quorum.nodes[9].start_soon()
        observing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await quorum.until(lambda: quorum.nodes[9].node is not None, "it starts")
        await quorum.until_all_have(2_000)  # whoever knows only where to ask learns who votes
        assert quorum.node(9).quorum.voters.voters == (voter(1), voter(2), voter(3))

    run_quorum(story, seed, in_log=True)


@SEEDS
def test_one_grows_to_three_and_does_without_the_first(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        for node_id in (2, 3):
            quorum.add(node_id)
            await quorum.start(node_id)
            answer = await quorum.ask(1, to_add(node_id), add.AddRaftVoterResponse)
            assert (answer.error_code, answer.error_message) == (0, None)
        await quorum.until(
            lambda: {node.quorum.voters.ids for node in quorum.running} == {(1, 2, 3)}, "all know the voters"
        )
        quorum.nodes[1].kill()
        assert await quorum.leader() in (2, 3)
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        for node_id in (2, 3):
            quorum.nodes[node_id].lose_power()
        await quorum.start(1, 2, 3)
        await quorum.set(4_000)
        await quorum.until_all_have(4_000)
        assert {node.quorum.voters.ids for node in quorum.running} == {(1, 2, 3)}

    run_quorum(story, seed, ids=(1,), in_log=True)


@SEEDS
def test_a_leader_that_is_removed_gives_way(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.set(2_000)
        request = remove.RemoveRaftVoterRequest(voter_id=leader, voter_directory_id=directory_id(leader))
        answer = await quorum.ask(leader, request, remove.RemoveRaftVoterResponse)
        assert (answer.error_code, answer.error_message) == (0, None)
        other = await quorum.leader(other_than=leader)
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)  # the one that votes no more observes
        assert quorum.node(leader).quorum._machine.standing.role is Role.FOLLOWER
        assert leader not in quorum.node(other).quorum.voters.ids
        quorum.nodes[leader].kill()
        await quorum.set(4_000)

    run_quorum(story, seed, in_log=True)


def test_what_cannot_be_done_is_refused() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader)

        async def code(node_id: int, request: add.AddRaftVoterRequest | remove.RemoveRaftVoterRequest) -> Code:
            if isinstance(request, add.AddRaftVoterRequest):
                return Code((await quorum.ask(node_id, request, add.AddRaftVoterResponse)).error_code)
            return Code((await quorum.ask(node_id, request, remove.RemoveRaftVoterResponse)).error_code)

        gone = remove.RemoveRaftVoterRequest(voter_id=other, voter_directory_id=directory_id(99))
        foreign = remove.RemoveRaftVoterRequest(
            cluster_id="another", voter_id=other, voter_directory_id=directory_id(other)
        )
        assert await code(leader, to_add(other)) is Code.DUPLICATE_VOTER
        assert await code(leader, to_add(9, timeout_ms=300)) is Code.REQUEST_TIMED_OUT  # it does not follow
        assert await code(leader, gone) is Code.VOTER_NOT_FOUND
        assert await code(leader, foreign) is Code.INCONSISTENT_CLUSTER_ID
        assert await code(other, to_add(9)) is Code.NOT_LEADER_OR_FOLLOWER
        answer = await quorum.ask(other, described(), describe.DescribeQuorumResponse)
        assert answer.error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert answer.topics[0].partitions[0].leader_id == leader

    run_quorum(story, in_log=True)


def test_configured_voters_stay_as_they_are() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        with pytest.raises(KafkaError, match=r"controller\.quorum\.voters") as refused:
            await quorum.machine(leader).do(
                lambda: quorum.node(leader).voter_requests.remove(ReplicaKey(BrokerId(leader)))
            )
        assert refused.value.code is Code.UNSUPPORTED_VERSION

    run_quorum(story)


def test_a_voter_that_lost_its_disk_is_another_node() -> None:
    """It has forgotten whom it voted for, and what it had promised to keep."""

    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        lost = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        await quorum.set(2_000)
        quorum.nodes[lost].kill()
        disk = quorum.machine(lost).disk
        disk.remove_tree(METADATA)
        disk.remove("logs/meta.properties")
        format_directory(quorum.machine(lost), lost)
        directory = LogDirectory.open(disk, "logs")
        properties = directory.read_meta_properties()
        assert properties is not None
        directory.write_meta_properties(replace(properties, directory_id="AAAAAAAAAAAAAAAAAAAB4A"))
        directory.close()
        await quorum.nodes[lost].start()
        await quorum.until_all_have(2_000)
        node = quorum.node(lost)
        assert not node.quorum.voters.is_voter(node.quorum.key)
        quorum.nodes[leader].kill()
        await asyncio.sleep(20)
        assert quorum.leaders() == []  # one of two voters is no majority of three

    run_quorum(story, in_log=True)


def test_a_voter_that_listens_elsewhere_says_so() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        moved = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        await quorum.set(2_000)
        await quorum.nodes[moved].stop()
        quorum.configure(moved, listeners=f"CONTROLLER://node-{moved}:19093")
        await quorum.nodes[moved].start()

        def is_known() -> bool:
            known = [node.quorum.voters.voter(BrokerId(moved)) for node in quorum.running]
            return all(one is not None and one.endpoints[0][2] == 19_093 for one in known)

        await quorum.until(is_known, "all know where it listens")
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)

    run_quorum(story, in_log=True)


@SEEDS
def test_voters_are_in_snapshots_too(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        quorum.add(4)
        await quorum.start(4)
        leader = await quorum.leader()
        assert (await quorum.ask(leader, to_add(4), add.AddRaftVoterResponse)).error_code == 0
        for value in range(2_000, 2_040):
            await quorum.set(value)
        await quorum.until(lambda: quorum.node(leader).quorum.storage.log.log_start_offset > 10, "the log starts later")
        quorum.add(5)
        await quorum.start(5)
        await quorum.until_all_have(2_039)
        assert set(quorum.node(5).quorum.voters.ids) == {1, 2, 3, 4}
        for node in quorum.nodes.values():
            node.kill()
        await quorum.start()
        await quorum.set(3_000)
        await quorum.until_all_have(3_000)
        assert {frozenset(node.quorum.voters.ids) for node in quorum.running} == {frozenset({1, 2, 3, 4})}

    run_quorum(story, seed, SMALL, in_log=True)
