"""The runtime of coordinators with machines that are not about groups, on three whole nodes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from support.fixtures.registers import (
    COPY,
    LEASE_MS,
    REGISTERS,
    TOPIC,
    OtherBroker,
    RegisterCoordinators,
    RegisterMachine,
)
from support.nodes.cluster_stage import Stage, tell
from tidelog.base.errors import Code, KafkaError, NetworkError, refusal
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.metadata.image import PartitionImage
from tidelog.server.coordinators.coordinator_partition import Command
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode
from tidelog.server.node import Node
from tidelog.sim.runs.cluster_views import hosted

PROPERTIES = {"offsets.topic.num.partitions": "1"}
NOT_YET = {Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS}


def setting(name: str, value: str) -> Command[RegisterMachine]:
    return lambda machine, request_id, now_ms, wall_ms: machine.on_set(request_id, name, value, now_ms=now_ms)


def getting(name: str) -> Command[RegisterMachine]:
    return lambda machine, request_id, now_ms, wall_ms: machine.on_get(request_id, name)


def copying(name: str, to: str) -> Command[RegisterMachine]:
    return lambda machine, request_id, now_ms, wall_ms: machine.on_copy(request_id, name, to)


class Registers:
    """Registers beside the groups of every node, in each of its lives."""

    def __init__(self, stage: Stage) -> None:
        self.other = OtherBroker()
        self._stage = stage
        self._at: dict[int, RegisterCoordinators] = {}
        for number, simulated in stage.nodes.items():
            assert simulated.node is not None
            self._join(number, simulated.node)
            simulated.on_made = lambda node, number=number: self._join(number, node)  # type: ignore[misc]

    def _join(self, number: int, node: Node) -> None:
        machine = self._stage.nodes[BrokerId(number)].machine
        self._at[number] = RegisterCoordinators(
            REGISTERS,
            CoordinatorNode(
                node.broker, PROPERTIES, machine.clock, machine.executor, machine.new_rng(), node.create_topics
            ),
            send_to_leader=partial(self.other.ask, number),
        )

    async def begin(self, *numbers: int) -> None:
        for number in numbers:
            await self._stage.nodes[BrokerId(number)].machine.do(self._at[number].begin)

    async def create_topic(self) -> None:
        await self.begin(1, 2, 3)
        await self._stage.nodes[BrokerId(1)].machine.do(self._at[1].create_topic)
        await self.until_settled()

    @property
    def state(self) -> PartitionImage | None:
        return self._stage.recorder.latest.partition(TOPIC, PartitionIndex(0))

    @property
    def leader(self) -> int:
        return (self.state and self.state.leader) or 0

    def records(self, number: int) -> bytes:
        """All that the log of a node holds."""
        found = hosted(self._stage.nodes[BrokerId(number)], TopicPartition(TOPIC, PartitionIndex(0)))
        assert found is not None
        log = found.log
        return bytes(log.read(log.log_start_offset, size_bytes_max=1_000, end_offset=log.log_end_offset).read_all())

    async def until_settled(self) -> None:
        """Somebody leads, and all replicas are in sync."""
        await self._stage.until(lambda: self.state is not None and len(self.state.isr) == 3 and self.leader != 0)

    async def ask(self, number: int, command: Command[RegisterMachine]) -> Any:
        """One node, once. Returns its answer, or the code of its refusal."""

        async def run() -> object:
            answer = self._at[number].submit("any", command)
            return await answer if isinstance(answer, asyncio.Future) else answer

        answer = await self._stage.nodes[BrokerId(number)].machine.do(run)
        return answer.code if isinstance(answer, KafkaError) else answer

    async def lead(self, command: Command[RegisterMachine]) -> Any:
        """Whoever leads, until it serves."""
        while (answer := await self.ask(self.leader, command) if self.leader else Code.NOT_COORDINATOR) in NOT_YET:
            await asyncio.sleep(0.1)
        return answer

    async def kill_leader(self) -> int:
        """Return when another leads."""
        before = self.leader
        self._stage.kill(before)
        await self._stage.until(lambda: self.leader not in (0, before))
        return before

    async def start(self, number: int) -> None:
        await self._stage.start(number)
        await self.begin(number)
        await self.until_settled()


def test_the_next_leader_loads_what_was_committed_and_the_others_refuse() -> None:
    async def story(stage: Stage) -> None:
        registers = Registers(stage)
        assert await registers.ask(1, getting("a")) is Code.NOT_COORDINATOR
        await registers.create_topic()
        assert await registers.lead(getting("a")) == "nothing"
        assert await registers.lead(setting("a", "1")) == "set"
        killed = await registers.kill_leader()
        assert await registers.lead(getting("a")) == "1"
        assert await registers.lead(setting("a", "2")) == "set"
        await registers.start(killed)
        answers = [await registers.ask(number, getting("a")) for number in (1, 2, 3)]
        assert sorted(map(str, answers)) == sorted(["2", *[str(Code.NOT_COORDINATOR)] * 2])

    tell(story, properties=PROPERTIES)


def test_what_was_not_committed_is_truncated_and_nobody_is_told_that_it_was_done() -> None:
    async def story(stage: Stage) -> None:
        registers = Registers(stage)
        await registers.create_topic()
        assert await registers.lead(setting("a", "1")) == "set"
        old = registers.leader
        rest = [number for number in (1, 2, 3) if number != old]
        stage.part([old], rest)
        lost = asyncio.create_task(registers.ask(old, setting("a", "lost")))
        await stage.until(lambda: registers.leader in rest)
        assert await registers.lead(getting("a")) == "1"
        assert await registers.lead(setting("b", "2")) == "set"
        assert await lost is Code.NOT_COORDINATOR  # refused by a leader that is cut off
        assert b"lost" in registers.records(old)
        stage.heal()
        await registers.until_settled()
        assert b"lost" not in registers.records(old)
        while registers.leader != old:
            await registers.start(await registers.kill_leader())
        assert [await registers.lead(getting(name)) for name in ("a", "b")] == ["1", "2"]

    tell(story, properties=PROPERTIES)


def test_a_send_is_tried_until_it_is_done_and_then_no_more() -> None:
    async def story(stage: Stage) -> None:
        registers = Registers(stage)
        await registers.create_topic()
        assert await registers.lead(copying("a", "b")) is Code.RESOURCE_NOT_FOUND
        assert await registers.lead(setting("a", "1")) == "set"
        leader = registers.leader
        registers.other.failures = [NetworkError("it hung up"), refusal(Code.NOT_LEADER_OR_FOLLOWER)]
        assert await registers.lead(copying("a", "b")) == "will be copied"
        while await registers.lead(getting(f"{COPY.decode()}b")) != "nothing":
            await asyncio.sleep(0.1)
        assert registers.other.copied == {"b": "1"}
        assert registers.other.attempts == {leader: 3}
        await registers.kill_leader()
        assert await registers.lead(getting("a")) == "1"
        await asyncio.sleep(5)
        assert registers.other.attempts == {leader: 3}

    tell(story, properties=PROPERTIES)


def test_the_next_leader_sends_what_was_not_done_and_the_one_before_no_more() -> None:
    async def story(stage: Stage) -> None:
        registers = Registers(stage)
        await registers.create_topic()
        assert await registers.lead(setting("a", "1")) == "set"
        registers.other.failures = [NetworkError("out of reach")] * 1_000
        assert await registers.lead(copying("a", "b")) == "will be copied"
        old = registers.leader
        rest = [number for number in (1, 2, 3) if number != old]
        attempts = registers.other.attempts
        await stage.until(lambda: attempts[old] >= 2)
        stage.part([old], rest)
        await stage.until(lambda: any(attempts[number] >= 2 for number in rest))
        stage.heal()
        await registers.until_settled()
        assert await registers.ask(old, getting("a")) is Code.NOT_COORDINATOR
        before = attempts.copy()
        await asyncio.sleep(10)
        assert attempts[old] == before[old]
        assert attempts.total() > before.total()
        registers.other.failures.clear()
        await stage.until(lambda: registers.other.copied == {"b": "1"})

    tell(story, properties=PROPERTIES)


def test_a_send_waits_until_its_reason_is_committed() -> None:
    async def story(stage: Stage) -> None:
        registers = Registers(stage)
        await registers.create_topic()
        assert await registers.lead(setting("a", "1")) == "set"
        old = registers.leader
        rest = [number for number in (1, 2, 3) if number != old]
        stage.part([old], rest)
        lost = asyncio.create_task(registers.ask(old, copying("a", "b")))
        await stage.until(lambda: registers.leader in rest)
        stage.heal()
        assert await lost is Code.NOT_COORDINATOR
        await asyncio.sleep(5)
        assert not registers.other.attempts

    tell(story, properties=PROPERTIES)


def test_what_is_due_is_done_by_whoever_leads_by_then() -> None:
    async def story(stage: Stage) -> None:
        registers = Registers(stage)
        await registers.create_topic()
        assert await registers.lead(setting("a", "1")) == "set"
        await asyncio.sleep(LEASE_MS / 2_000)
        await registers.kill_leader()
        await asyncio.sleep(LEASE_MS / 2_000)
        assert await registers.lead(getting("a")) == "1"  # it has a whole lease at the new leader
        await asyncio.sleep(LEASE_MS / 1_000)
        assert await registers.lead(getting("a")) == "nothing"

    tell(story, properties=PROPERTIES)
