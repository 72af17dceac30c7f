"""Stories of the account of losses over whole nodes: three candidates, one that stays away, a disk that lies, a loss
during a loss, and a replica that ends between its note and its cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from support.nodes.cluster_stage import CLIENTS, PARTITION, Stage, tell
from tidelog.base.ids import BrokerId
from tidelog.base.losses import Loss, LossCause, ReplicaFate
from tidelog.base.ports import Buffer
from tidelog.controller import losses as controller_losses
from tidelog.sim.node import LOGS

TOLD_POLLS_MAX = 600
FATES = {
    ReplicaFate.AWAITED: "awaited",
    ReplicaFate.LED: "led",
    ReplicaFate.WHOLE: "whole",
    ReplicaFate.CUT: "cut",
    ReplicaFate.LEFT: "left",
}


def losses(stage: Stage) -> list[Loss]:
    return list(stage.recorder.latest.losses.values())


def rows(loss: Loss) -> dict[int, str]:
    """What became of each replica: `cut 2..3`, both inclusive, where something was cut off."""
    return {
        int(one.broker_id): FATES[one.fate]
        + (f" {one.cut_from}..{(one.end_offset or 0) - 1}" if one.fate is ReplicaFate.CUT else "")
        for one in loss.replicas
    }


async def lead_uncleanly(stage: Stage, number: int) -> None:
    """Nobody may lead any more, and of the replicas only this one runs."""
    await stage.until(lambda: stage.leader == 0)
    await stage.start(number)
    await stage.until(lambda: not stage.recorder.latest.brokers[BrokerId(number)].is_fenced)
    async with stage.factory_at(number).admin() as admin:
        await admin.elect_leaders("unclean", [PARTITION])
    await stage.until(lambda: stage.leader == number)


async def until_told(stage: Stage) -> None:
    """All is healed, nobody is awaited, and the account has what was lost."""
    await stage.until_settled()
    for _ in range(TOLD_POLLS_MAX):
        if stage.recorder.awaited() is None:
            break
        await asyncio.sleep(0.1)
    stage.recorder.check_account()


async def three_in_steps(stage: Stage) -> None:
    """Brokers 4, 5 and 6, of which each had more than the next before it ended: 4 has four records, 6 three, 5 two."""
    await stage.make_topic(4, 5, 6)
    await stage.produce("m1", "m2")
    await stage.until_settled()
    stage.kill(5)
    await stage.until(lambda: set(stage.state.isr) == {4, 6})
    await stage.produce("m3", at=(4,))
    await stage.until(lambda: len(stage.values(6)) == 3)
    stage.kill(6)
    await stage.until(lambda: stage.state.isr == (4,))
    await stage.produce("m4", at=(4,))
    stage.kill(4)


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    """With controllers of their own, which stay."""
    clients = replace(CLIENTS, min_insync_replicas=1)
    properties = {"min.insync.replicas": "1"}
    tell(story, nodes=6, is_parted=True, clients=clients, allows_unclean=True, properties=properties)


def test_of_three_candidates_the_shortest_is_elected_and_the_others_tell_what_they_had() -> None:
    async def story(stage: Stage) -> None:
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        await stage.produce("n3", at=(5,))
        await stage.start(6)
        await stage.start(4)
        await until_told(stage)
        (loss,) = losses(stage)
        assert loss.cause is LossCause.BY_OPERATOR
        assert rows(loss) == {4: "cut 2..3", 5: "led", 6: "cut 2..2"}

    play(story)


async def never_returns(stage: Stage) -> None:
    await three_in_steps(stage)
    await lead_uncleanly(stage, 5)
    await stage.start(6)
    await stage.until(lambda: stage.recorder.awaited() == f"{losses(stage)[0].name} awaits [4]")
    await asyncio.sleep(30)
    assert losses(stage)[0].awaited == (4,)
    async with stage.factory_at(5).admin() as admin:
        await admin.alter_partition_reassignments({PARTITION: [5, 6]})
    await until_told(stage)
    assert rows(losses(stage)[0]) == {4: "left", 5: "led", 6: "cut 2..2"}


def test_one_that_never_returns_is_awaited_until_it_is_taken_out() -> None:
    play(never_returns)


def test_one_that_is_awaited_though_it_is_taken_out_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: who left may tell for ever."""
    monkeypatch.setattr(controller_losses, "_without_who_left", lambda *_: {})
    with pytest.raises(AssertionError, match=r"awaits \[4\]"):
        play(never_returns)


def test_a_disk_that_lies_has_an_entry_though_its_replica_leads_on() -> None:
    """It said that records were synced, and they are not there after a loss of power. Nobody else may lead."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(4, 5, 6)
        await stage.produce("m1", "m2")
        await stage.until_settled()
        stage.kill(5, 6)
        await stage.until(lambda: stage.state.isr == (4,))
        await stage.produce("m3", at=(4,))
        node_id, disk = BrokerId(4), stage.nodes[BrokerId(4)].machine.disk
        stage.lose_power(4)
        disk.open(f"{LOGS}/{PARTITION}/{0:020}.log").truncate(0)
        stage.recorder.after_end(node_id)
        await stage.start(4)
        await stage.until(lambda: stage.leader == 4)
        await stage.start(5, 6)
        await until_told(stage)
        (loss,) = losses(stage)
        assert loss.cause is LossCause.LOST_BY_LEADER
        assert rows(loss) == {4: "led", 5: "cut 0..1", 6: "cut 0..1"}

    play(story)


def test_a_loss_during_a_loss_has_an_entry_of_its_own() -> None:
    """5 is elected without what 4 had, and 6 without what 5 wrote: each tells it for the first epoch that lacks it."""

    async def story(stage: Stage) -> None:
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        await stage.produce("n3", "n4", at=(5,))
        stage.kill(5)
        await lead_uncleanly(stage, 6)
        await stage.produce("o4", at=(6,))
        await stage.start(4)
        await stage.start(5)
        await until_told(stage)
        first, second = losses(stage)
        assert [rows(first)[4], rows(second)[4]] == ["cut 3..3", "whole"]
        assert rows(second)[5] == "cut 2..3"

    play(story)


def test_what_a_later_election_brings_back_stays_in_the_earlier_entry() -> None:
    """6 cut off what 5 lacked; then 4 is elected, which has it yet."""

    async def story(stage: Stage) -> None:
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        await stage.start(6)
        await stage.until(lambda: losses(stage)[0].awaited == (4,))
        stage.kill(5, 6)
        await lead_uncleanly(stage, 4)
        await stage.start(5, 6)
        await until_told(stage)
        assert [value.partition("@")[0] for value in stage.values(6)] == ["m1", "m2", "m3", "m4"]
        first, second = losses(stage)
        assert rows(first) == {4: "whole", 5: "led", 6: "cut 2..2"}
        assert rows(second) == {4: "led", 5: "whole", 6: "whole"}

    play(story)


def kill_before_cut(stage: Stage, number: int) -> None:
    """Its process ends in place of the first cut of the log, when that is noted."""
    machine = stage.nodes[BrokerId(number)].machine
    tell_machine = machine.disk.on_change

    def on_change(operation: str, path: str, data: Buffer) -> None:
        if operation.startswith("truncate") and path.endswith(".log") and f"/{PARTITION}/" in path:
            machine.disk.on_change = tell_machine
            machine.kill_at_change = 0
        tell_machine(operation, path, data)

    machine.disk.on_change = on_change


def test_what_was_noted_and_not_cut_off_is_not_told_as_cut() -> None:
    """4 ends between its note and its cut. Then it is elected itself, and has all that it was about to lose."""

    async def story(stage: Stage) -> None:
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        kill_before_cut(stage, 4)
        stage.nodes[BrokerId(4)].start_soon()
        await stage.until(lambda: not stage.nodes[BrokerId(4)].machine.is_running)
        stage.kill(4, 5)
        await lead_uncleanly(stage, 4)
        await stage.start(5, 6)
        await until_told(stage)
        assert [value.partition("@")[0] for value in stage.values(6)] == ["m1", "m2", "m3", "m4"]
        assert [rows(loss)[4] for loss in losses(stage)] == ["whole", "led"]
        notes = [path for path in stage.nodes[BrokerId(4)].machine.disk.files if path.endswith((".loss", ".lost"))]
        assert notes == []

    play(story)


def test_what_was_noted_and_not_cut_off_is_cut_after_the_next_start_and_told_once() -> None:
    async def story(stage: Stage) -> None:
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        kill_before_cut(stage, 4)
        stage.nodes[BrokerId(4)].start_soon()
        await stage.until(lambda: not stage.nodes[BrokerId(4)].machine.is_running)
        stage.kill(4)
        await stage.start(4, 6)
        await until_told(stage)
        assert rows(losses(stage)[0]) == {4: "cut 2..3", 5: "led", 6: "cut 2..2"}

    play(story)
