"""A metadata quorum that has no leader yet: its nodes wait for as long as it takes, and say what for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from support.worlds.simulated_quorum import METADATA, Quorum, run_quorum
from tidelog.base.errors import TidelogError
from tidelog.base.ids import ClusterId
from tidelog.server.quorum.leaderless import AGAIN_SECONDS, FIRST_SECONDS

TIMEOUT = "initial.broker.registration.timeout.ms"
LATE_SECONDS = 150


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "nobody has led the metadata quorum" in record.getMessage()
    ]


def test_a_voter_that_is_alone_says_now_and_then_whom_it_misses(caplog: pytest.LogCaptureFixture) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.nodes[1].start()
        await asyncio.sleep(FIRST_SECONDS + 2 * AGAIN_SECONDS + 1)
        said = warnings(caplog)
        assert [line.partition(": ")[0].rpartition(" for ")[2] for line in said] == ["5 s", "35 s", "65 s"]
        for line in said:
            assert "2 of its voters (1, 2, 3) have to run and to reach each other" in line
            assert "node 2 does not answer (" in line
            assert "node 3 does not answer (" in line
            assert "start the voters that are down" in line
        await quorum.nodes[2].start()
        await quorum.leader()
        await asyncio.sleep(2 * AGAIN_SECONDS)
        assert warnings(caplog) == said

    run_quorum(story)


def test_a_voter_that_lost_its_vote_says_that_it_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        for node in quorum.nodes.values():
            await node.stop()
        disk = quorum.machine(1).disk
        disk.remove(f"{METADATA}/quorum-state")
        disk.sync_dir(METADATA)
        caplog.clear()
        await quorum.start(1, 2)
        await asyncio.sleep(FIRST_SECONDS + 1)
        own, others = sorted(warnings(caplog), key=lambda line: "without this node" not in line)
        assert "without this node, which lost what it kept for the quorum; node 3 does not answer (" in own
        assert "one that lost what it kept for the quorum does not count; node 3 does not answer (" in others

    run_quorum(story)


def test_who_does_not_know_the_voters_yet_misses_the_servers_to_ask(caplog: pytest.LogCaptureFixture) -> None:
    async def story(quorum: Quorum) -> None:
        quorum.add(4)
        await quorum.nodes[4].start()
        await asyncio.sleep(FIRST_SECONDS + 1)
        (line,) = warnings(caplog)
        assert "no server of controller.quorum.bootstrap.servers has said yet who votes; a server does not" in line

    run_quorum(story, in_log=True)


def test_a_quorum_that_comes_to_be_at_once_warns_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await asyncio.sleep(FIRST_SECONDS + AGAIN_SECONDS)
        assert not warnings(caplog)

    run_quorum(story)


def test_a_broker_waits_for_controllers_that_come_minutes_later() -> None:
    async def story(quorum: Quorum) -> None:
        quorum.add(7, roles="broker")
        starting = quorum.nodes[7].start_soon()
        for node_id in (1, 2):
            await asyncio.sleep(LATE_SECONDS)
            assert not starting.done()
            await quorum.nodes[node_id].start()
        await starting

    run_quorum(story, settings={TIMEOUT: "1000"})


def test_a_broker_whose_controllers_are_of_another_cluster_does_not_wait_for_them() -> None:
    async def story(quorum: Quorum) -> None:
        quorum.add(7, roles="broker", cluster_id=ClusterId("ANOTHER-CLUSTER-000000"))
        await quorum.start(1, 2, 3)
        with pytest.raises(TidelogError, match=rf"no controller took this broker in within 60000 ms \({TIMEOUT}\)"):
            await quorum.nodes[7].start()

    run_quorum(story)
