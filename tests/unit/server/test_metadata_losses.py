"""A voter whose metadata log, or `quorum-state`, is not there any more: it is no fresh one, and says so."""

from __future__ import annotations

import asyncio
import logging

import pytest

from support.worlds.simulated_quorum import METADATA, Quorum, run_quorum
from tidelog.base.errors import TidelogError
from tidelog.quorum import QuorumState, parse_quorum_state
from tidelog.sim.world.disk import SimulatedDisk

QUORUM_STATE = f"{METADATA}/quorum-state"


def lose(disk: SimulatedDisk, what: str) -> None:
    if what == "directory":
        disk.remove_tree(METADATA)
    elif what == "quorum-state":
        disk.remove(QUORUM_STATE)
    else:
        for path in [path for path in disk.files if path.startswith(METADATA) and path.endswith(".log")]:
            disk.remove(path)
    for path in ("logs", METADATA):
        if disk.is_directory(path):
            disk.sync_dir(path)


def state_of(quorum: Quorum, node_id: int) -> QuorumState:
    return parse_quorum_state(quorum.machine(node_id).disk.read_bytes(QUORUM_STATE))


@pytest.mark.parametrize("in_log", [False, True], ids=["configured", "in the log"])
@pytest.mark.parametrize("what", ["directory", "segments", "quorum-state"])
def test_it_neither_votes_nor_stands_until_it_has_what_others_commit(
    what: str, in_log: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of three voters two have the latest record; one of these loses its log while the third is away."""

    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        loser, absent = (node_id for node_id in (1, 2, 3) if node_id != leader)
        quorum.nodes[absent].kill()
        await quorum.set(3_000)
        await quorum.until(
            lambda: quorum.node(loser).quorum.high_watermark == quorum.node(leader).quorum.high_watermark, "it has it"
        )
        for node_id in (leader, loser):
            quorum.nodes[node_id].kill()
        lose(quorum.machine(loser).disk, what)
        starting = [quorum.nodes[node_id].start_soon() for node_id in (loser, absent)]
        await asyncio.sleep(20)
        assert quorum.leaders() == []
        assert state_of(quorum, loser).is_lost
        await quorum.nodes[leader].start()
        await asyncio.gather(*starting)
        await quorum.until_all_have(3_000)
        await quorum.until(lambda: not state_of(quorum, loser).is_lost, "it votes again")
        # So it can make up a majority with the one that was away.
        quorum.nodes[leader].kill()
        await quorum.leader()
        await quorum.set(4_000)

    with caplog.at_level(logging.WARNING):
        run_quorum(story, in_log=in_log)
    said = [record for record in caplog.records if "is LOST" in record.getMessage()]
    assert len(said) == 1
    assert said[0].levelno == logging.ERROR
    assert "it votes again" in caplog.text


def test_the_loss_is_remembered_by_a_voter_that_is_killed_while_it_catches_up() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        leader = await quorum.leader()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        loser, absent = (node_id for node_id in (1, 2, 3) if node_id != leader)
        for node_id in (loser, absent):  # while both are away nothing more is committed
            quorum.nodes[node_id].kill()
        lose(quorum.machine(loser).disk, "directory")
        starting = quorum.nodes[loser].start_soon()
        disk = quorum.machine(loser).disk
        log = f"{METADATA}/00000000000000000000.log"
        await quorum.until(lambda: disk.exists(log) and disk.read_bytes(log), "it has some of the log")
        assert state_of(quorum, loser).is_lost
        quorum.nodes[loser].kill()
        await asyncio.gather(starting, return_exceptions=True)
        starting = quorum.nodes[loser].start_soon()
        await asyncio.sleep(20)
        assert state_of(quorum, loser).is_lost
        await quorum.nodes[absent].start()
        await starting
        await quorum.until(lambda: not state_of(quorum, loser).is_lost, "it votes again")

    run_quorum(story)


@pytest.mark.parametrize("what", ["directory", "segments", "quorum-state"])
def test_the_only_voter_refuses_to_start_and_says_what_to_do(what: str) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        await quorum.nodes[1].stop()
        lose(quorum.machine(1).disk, what)
        for _ in range(2):
            with pytest.raises(TidelogError, match=r"it is the only voter.*Put back.*set tidelogIsLost to false"):
                await quorum.nodes[1].start()
            quorum.nodes[1].kill()
        disk = quorum.machine(1).disk
        disk.write_atomically(QUORUM_STATE, disk.read_bytes(QUORUM_STATE).replace(b'Lost":true', b'Lost":false'))
        await quorum.nodes[1].start()

    run_quorum(story, ids=(1,))


def test_a_directory_of_an_older_release_is_taken_as_it_is_and_its_state_missed_from_then_on() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        await quorum.set(2_000)
        await quorum.until_all_have(2_000)
        for one in quorum.nodes.values():
            await one.stop()
        disk = quorum.machine(1).disk
        properties = disk.read_bytes("logs/meta.properties")
        assert b"tidelog.quorum.state=1\n" in properties
        disk.write_atomically("logs/meta.properties", properties.replace(b"tidelog.quorum.state=1\n", b""))
        state = disk.read_bytes(QUORUM_STATE).replace(b',"tidelogHasRecords":true', b"")
        disk.write_atomically(QUORUM_STATE, state)
        await quorum.start()
        await quorum.set(3_000)
        assert disk.read_bytes("logs/meta.properties") == properties
        assert state_of(quorum, 1).has_records
        assert not state_of(quorum, 1).is_lost

    run_quorum(story)
