"""Partitions move between whole nodes, on a virtual clock: past deaths, losses of power, and orders that contradict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.nodes.cluster_stage import PARTITION, PLAN, Stage, tell
from tidelog.base.ids import BrokerId
from tidelog.client.admin.reassignment import ReassignmentOutcome
from tidelog.controller import isr_changes, replica_moves
from tidelog.controller.partition_changes import IsActive, with_replicas
from tidelog.metadata.image import PartitionImage

FIVE = replace(PLAN, nodes=5)


async def reassign(stage: Stage, *replicas: int) -> ReassignmentOutcome:
    return await _alter(stage, replicas)


async def cancel(stage: Stage) -> ReassignmentOutcome:
    return await _alter(stage, None)


async def _alter(stage: Stage, replicas: Sequence[int] | None) -> ReassignmentOutcome:
    async with stage.factory.admin() as admin:
        return (await admin.alter_partition_reassignments({PARTITION: replicas}))[PARTITION]


async def until_held_by(stage: Stage, *replicas: int) -> None:
    def is_so() -> bool:
        state = stage.state
        is_still = not state.adding_replicas and not state.removing_replicas
        return is_still and state.replicas == replicas and set(state.isr) == set(replicas)

    await stage.until(is_so)


def values(stage: Stage, number: int) -> list[str]:
    return [value.partition("@")[0] for value in stage.values(number)]


def has_log(stage: Stage, number: int) -> bool:
    disk = stage.nodes[BrokerId(number)].machine.disk
    return any(path.startswith(f"logs/{PARTITION}/") for path in disk.files)


def test_a_partition_moves_past_the_deaths_of_who_leads_it_who_comes_and_who_decides() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.produce("m1", "m2")
        stage.kill(4)
        await reassign(stage, 3, 4, 5)
        await stage.until(lambda: set(stage.state.isr) == {1, 2, 3, 5})
        stage.kill(stage.controller)
        await stage.until(lambda: stage.controller != 0)
        await stage.start()
        await stage.until(lambda: stage.leader != 0)
        await stage.produce("m3")
        await until_held_by(stage, 3, 4, 5)
        await stage.until_settled()
        assert values(stage, 3) == values(stage, 4) == values(stage, 5) == ["m1", "m2", "m3"]
        await stage.until(lambda: not has_log(stage, 1) and not has_log(stage, 2))

    tell(story, plan=FIVE)


def test_a_partition_that_goes_and_comes_back_again_and_again_keeps_what_it_has() -> None:
    """Each time in a new leader epoch (rule 8): what was meant for the replica before does nothing to this one."""

    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2)
        sent = []
        for number, replicas in enumerate([(3, 4), (1, 2), (3, 4), (1, 5), (5, 3)]):
            sent.append(f"m{number}")
            await stage.produce(sent[-1])
            before = stage.state.leader_epoch
            await reassign(stage, *replicas)
            await until_held_by(stage, *replicas)
            assert stage.state.leader_epoch >= before + 2
        await stage.until_settled()
        assert values(stage, 5) == values(stage, 3) == sent

    tell(story, plan=FIVE)


def test_the_second_turns_the_first_and_a_cancel_brings_back_what_was_before_both() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2)
        await stage.produce("m1")
        stage.kill(4, 5)
        await reassign(stage, 3, 4)
        await stage.until(lambda: 3 in stage.state.isr)
        await reassign(stage, 2, 5)
        assert set(stage.state.replicas) == {1, 2, 5}
        await stage.produce("m2")
        await cancel(stage)
        assert set(stage.state.replicas) == {1, 2}
        await stage.start()
        await stage.until_settled()
        assert values(stage, 1) == values(stage, 2) == ["m1", "m2"]
        await stage.until(lambda: not any(has_log(stage, number) for number in (3, 4, 5)))

    tell(story, plan=FIVE)


async def one_is_dead_and_another_loses_power(stage: Stage) -> None:
    """What 1 and 3 acknowledged, two of those that are to hold it have to have before 1 and 3 may go."""
    await stage.make_topic(1, 2, 3)
    stage.kill(2)
    await stage.until(lambda: set(stage.state.isr) == {1, 3})
    await stage.produce("m1")
    await reassign(stage, 2, 4)
    await stage.until(lambda: 4 in stage.state.isr)
    stage.lose_power(4)
    await stage.start()
    await until_held_by(stage, 2, 4)
    await stage.until_settled()
    assert values(stage, 2) == values(stage, 4) == ["m1"]


def test_what_was_acknowledged_outlives_the_loss_of_one_that_it_moved_to() -> None:
    tell(one_is_dead_and_another_loses_power, plan=FIVE)


def test_to_be_done_when_those_that_come_are_in_sync_is_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """That was Kafka's rule once: what stays need not be in sync then, and one replica alone holds all."""

    def completed(
        partition: PartitionImage, *, min_insync_replicas: int | None, is_active: IsActive
    ) -> PartitionImage | None:
        target = replica_moves.target_of(partition)
        if not replica_moves.is_moving(partition) or not set(partition.adding_replicas) <= set(partition.isr):
            return None
        return with_replicas(partition, target, min_insync_replicas=min_insync_replicas, is_active=is_active)

    monkeypatch.setattr(isr_changes, "completed", completed)
    with pytest.raises(AssertionError):
        tell(one_is_dead_and_another_loses_power, plan=FIVE)


def test_leaderships_go_back_by_themselves() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.until_settled()
        stage.kill(1)
        await stage.until(lambda: stage.leader in (2, 3))
        await stage.produce("m1")
        await stage.start(1)
        await stage.until(lambda: stage.leader == 1)
        await stage.produce("m2")
        await stage.until_settled()

    tell(story, properties={"leader.imbalance.check.interval.seconds": "5"})


def test_leaderships_stay_where_nobody_is_to_give_them_back() -> None:
    async def story(stage: Stage) -> None:
        await stage.make_topic(1, 2, 3)
        await stage.until_settled()
        stage.kill(1)
        await stage.until(lambda: stage.leader in (2, 3))
        await stage.start(1)
        await stage.until_settled()
        with pytest.raises(AssertionError):
            await stage.until(lambda: stage.leader == 1, seconds_max=20)

    tell(
        story,
        properties={"leader.imbalance.check.interval.seconds": "5", "auto.leader.rebalance.enable": "false"},
    )
