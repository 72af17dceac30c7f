"""Which voters of the metadata quorum live: what its leader knows, what a node without one knows, and who is ready."""

from __future__ import annotations

import asyncio

from support.worlds.simulated_quorum import Quorum, run_quorum
from tidelog.server.node import Node

SESSION_MS = "3000"
ALL = (1, 2, 3)


def test_the_leader_knows_who_fetches_and_the_others_do_not() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.until(lambda: quorum.node(leader).quorum.living_voters == ALL, "all fetch")
        followers = [node_id for node_id in ALL if node_id != leader]
        assert [quorum.node(node_id).quorum.living_voters for node_id in followers] == [None, None]
        quorum.nodes[followers[0]].kill()
        left = tuple(sorted((leader, followers[1])))
        await quorum.until(lambda: quorum.node(leader).quorum.living_voters == left, "one is missed")

    run_quorum(story)


def test_a_lost_quorum_is_said_with_how_many_answer() -> None:
    """Of a voter that is left, and of a broker: neither is ready, and each says who answers it."""

    async def story(quorum: Quorum) -> None:
        quorum.add(7, roles="broker")
        await quorum.start()
        leader = await quorum.leader()
        left = next(node_id for node_id in ALL if node_id != leader)
        dead = [node_id for node_id in ALL if node_id != left]
        voter, broker = quorum.node(left), quorum.node(7)
        await asyncio.sleep(30)
        assert voter.not_ready is None
        assert broker.not_ready is None
        for node_id in dead:
            quorum.nodes[node_id].kill()
        assert broker.not_ready is None, "what lasts no longer than an election is none of anybody's business"
        for node in (voter, broker):
            await until_ready(quorum, node, is_so=False)
            await until_living(quorum, node, left)
            why = node.not_ready
            assert why is not None
            assert "no active controller has been heard of for 3 s" in why
            assert f"1 of the 3 voters of the metadata quorum answers node {node.config.node_id} ({left})" in why
            assert "and 2 are needed" in why
            for node_id in dead:
                assert f"node {node_id} does not answer (" in why
        await quorum.start(dead[0])
        for node in (voter, broker):
            await until_ready(quorum, node, is_so=True)

    run_quorum(story, settings={"broker.session.timeout.ms": SESSION_MS, "broker.heartbeat.interval.ms": "500"})


async def until_ready(quorum: Quorum, node: Node, *, is_so: bool) -> None:
    await quorum.until(lambda: (node.not_ready is None) is is_so, f"node {node.config.node_id}: ready: {is_so}")


async def until_living(quorum: Quorum, node: Node, *voters: int) -> None:
    await quorum.until(lambda: node.quorum.living_voters == voters, f"node {node.config.node_id}: {voters} live")
