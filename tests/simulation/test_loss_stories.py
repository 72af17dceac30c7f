"""Stories of the account of losses over whole nodes: three candidates, one that stays away, a disk that lies, a loss
during a loss, a replica that ends between its note and its cut, and an upgrade in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.nodes.cluster_stage import CLIENTS, PARTITION, Stage, tell
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId
from tidelog.base.losses import Loss, LossCause, ReplicaFate
from tidelog.base.ports import Buffer
from tidelog.controller import losses as controller_losses
from tidelog.server.membership.loss_reports import LossReports
from tidelog.server.replication.replication import Replication
from tidelog.sim.node import LOGS
from tidelog.sim.runs import cluster_recorder

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


class Older:
    """Nodes that run a release without an account of losses, in one process with the others.

    As controllers they open no entry, and do not know the request that tells of one; as brokers they neither note what
    they cut off nor tell.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: set[int] = set()
        self.stage: Stage | None = None
        accounted, decide = controller_losses.accounted, controller_losses.decide_tell_losses
        tail, wake = Replication._tail, LossReports._wake

        def opens_none(metadata: Any, settings: Any, records: Sequence[object], *, now_ms: int) -> tuple[object, ...]:
            return tuple(records) if self._is_active else accounted(metadata, settings, records, now_ms=now_ms)

        def knows_no_such_request(*arguments: Any, now_ms: int) -> Any:
            if self._is_active:
                raise refusal(Code.UNSUPPORTED_VERSION, "there is no such request")
            return decide(*arguments, now_ms=now_ms)

        def notes_nothing(replication: Replication, *arguments: Any) -> Any:
            return None if replication._broker_id in self.numbers else tail(replication, *arguments)

        def tells_nothing(reports: LossReports) -> None:
            if reports._broker_id not in self.numbers:
                wake(reports)

        monkeypatch.setattr(controller_losses, "accounted", opens_none)
        monkeypatch.setattr(controller_losses, "decide_tell_losses", knows_no_such_request)
        monkeypatch.setattr(Replication, "_tail", notes_nothing)
        monkeypatch.setattr(LossReports, "_wake", tells_nothing)

    @property
    def _is_active(self) -> bool:
        return self.stage is not None and self.stage.controller in self.numbers

    async def upgrade(self, stage: Stage, *numbers: int) -> None:
        """One by one, as an operator does."""
        for number in numbers:
            await stage.stop(number)
            self.numbers.discard(number)
            await stage.start(number)
            await stage.until(lambda: stage.controller != 0)


CONTROLLERS = 1, 2, 3


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Older:
    return Older(monkeypatch)


def test_what_was_cut_off_under_a_controller_that_knows_no_account_is_told_once_that_is_upgraded(
    older: Older, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody opened an entry. What 4 noted outlives its end before the upgrade."""
    monkeypatch.setattr(cluster_recorder, "without_entry", lambda *_: [])  # that is the older release's doing

    async def story(stage: Stage) -> None:
        older.stage, older.numbers = stage, {*CONTROLLERS}
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        await stage.start(4, 6)
        await stage.until_settled()
        stage.kill(4)
        await stage.start(4)
        await stage.until_settled()
        assert losses(stage) == []
        await older.upgrade(stage, *CONTROLLERS)
        await stage.until(lambda: bool(losses(stage)) and len(losses(stage)[0].replicas) == 2)
        await until_told(stage)
        (loss,) = losses(stage)
        assert loss.cause is LossCause.FOUND
        assert rows(loss) == {4: "cut 2..3", 6: "cut 2..2"}

    play(story)


def test_an_entry_that_is_open_while_an_older_controller_is_active_is_told_of_after_the_upgrade(older: Older) -> None:
    async def story(stage: Stage) -> None:
        older.stage = stage
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        await stage.until(lambda: losses(stage)[0].awaited == (4, 6))
        older.numbers = {number for number in CONTROLLERS if number != stage.controller}
        upgraded = stage.controller
        stage.kill(upgraded)
        await stage.until(lambda: stage.controller in older.numbers)
        await stage.start(upgraded, 4, 6)
        await stage.until_settled()
        assert losses(stage)[0].awaited == (4, 6)
        await older.upgrade(stage, *sorted(older.numbers))
        await until_told(stage)
        (loss,) = losses(stage)
        assert rows(loss) == {4: "cut 2..3", 5: "led", 6: "cut 2..2"}

    play(story)


def test_of_what_a_replica_of_an_older_release_cut_off_nobody_knows(older: Older) -> None:
    """The entry awaits it until it is upgraded. Then it has nothing to tell of: the docs say so."""

    async def story(stage: Stage) -> None:
        older.stage, older.numbers = stage, {4}
        await three_in_steps(stage)
        await lead_uncleanly(stage, 5)
        await stage.start(4, 6)
        await stage.until_settled()
        await stage.until(lambda: losses(stage)[0].awaited == (4,))
        await asyncio.sleep(30)
        assert losses(stage)[0].awaited == (4,)
        await older.upgrade(stage, 4)
        await stage.until(lambda: not losses(stage)[0].awaited)
        assert rows(losses(stage)[0]) == {4: "whole", 5: "led", 6: "cut 2..2"}
        await until_told(stage)

    with pytest.raises(AssertionError, match="broker 4 cut it off, and no entry says so"):
        play(story)
