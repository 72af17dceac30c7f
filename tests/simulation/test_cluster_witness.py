"""What happens to real nodes that nothing of theirs does: whoever looks at them from outside tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from support.nodes.cluster_stage import Stage, tell
from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.quorum import QuorumState, format_quorum_state
from tidelog.sim.node import LOGS
from tidelog.sim.runs.cluster_views import QUORUM_STATE

Doctor = Callable[[Stage], Awaitable[None]]


async def delete_replica(stage: Stage) -> None:
    stage.nodes[BrokerId(2)].machine.disk.rename(f"{LOGS}/flights-0", f"{LOGS}/flights-0.{'0' * 32}-delete")


async def forget_topic(stage: Stage) -> None:
    node = stage.nodes[BrokerId(2)]

    async def forget() -> None:
        assert node.node is not None
        node.node.broker.image = replace(node.node.broker.image, topics_by_name={})

    await node.machine.do(forget)


async def cut_follower(stage: Stage) -> None:
    """Of one that is in sync, behind its back."""
    disk = stage.nodes[BrokerId(2)].machine.disk
    disk.open(f"{LOGS}/flights-0/{0:020}.log").truncate(0)


async def cut_leader(stage: Stage) -> None:
    disk = stage.nodes[BrokerId(1)].machine.disk
    disk.open(f"{LOGS}/flights-0/{0:020}.log").truncate(0)


async def lose_metadata(stage: Stage) -> None:
    """A majority comes back empty, and the one that has all of it does not."""
    stage.kill(1)
    for number in (2, 3):
        stage.lose_disk(number)
        stage.nodes[BrokerId(number)].start_soon()
    await asyncio.sleep(20)


async def vote_again(stage: Stage) -> None:
    """In the epoch that everybody is in."""
    disk = stage.nodes[BrokerId(2)].machine.disk
    for voted_id in (1, 3):
        state = QuorumState(LeaderEpoch(1_000), None, BrokerId(voted_id))
        disk.write_atomically(QUORUM_STATE, format_quorum_state(state))
        stage.recorder.on_process_changed(BrokerId(2))
        await asyncio.sleep(0)


async def acknowledge_what_is_not_there(stage: Stage) -> None:
    stage.acknowledge("m7", 7)


@pytest.mark.parametrize(
    ("doctor", "invariants"),
    [
        (delete_replica, {"StoppedMeansStopped"}),
        (forget_topic, {"ImagesAreEqual"}),
        (cut_follower, {"StrongIsr"}),
        (cut_leader, {"AckedRecordsSurvive"}),
        (lose_metadata, {"LeaderHasCommitted", "CommittedMetadataStays"}),
        (vote_again, {"VotesOnce", "QuorumEpochNeverGoesBack"}),
        (acknowledge_what_is_not_there, {"AckedRecordsSurvive"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_done_behind_the_back_of_nodes_is_told(doctor: Doctor, invariants: set[str]) -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.produce("m1")
        await stage.until_settled()
        await doctor(stage)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError) as raised:
        tell(story)
    assert {text.partition(":")[0] for text in str(raised.value).split("; ")} & invariants
