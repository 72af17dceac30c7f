"""A consumer group while things go wrong: members come, read, commit, leave, end without a word, and stand still.

Each place in the group has one member at a time, which speaks the protocol of the day. In some runs that changes, and
the group goes over from one protocol to the other while it reads.

```
 flights-0 ──► reader-1     classic, then consumer
 flights-1 ──► reader-2        "         "
               reader-3     waits for a partition
               observer     asks how far the group is
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tidelog.base.errors import TidelogError
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.cluster import World
from tidelog.client.core.classic_membership import ClassicMembership
from tidelog.client.core.consumer_membership import ConsumerMembership
from tidelog.client.core.membership import Membership, MembershipConfig
from tidelog.client.factory import AsyncFactory
from tidelog.sim.runs.client_tasks import ClientTasks
from tidelog.sim.runs.coordinator_requests import CoordinatorRequests
from tidelog.sim.runs.group_members import GroupReads, SimulatedMember
from tidelog.sim.runs.group_plan import CLASSIC, GroupPlan
from tidelog.sim.runs.group_recorder import GROUP_MAKES_PROGRESS, GroupRecorder
from tidelog.sim.world.rng import SeededRng

GROUP = "readers"
POLL_MS = 50
POSITION_SECONDS_MAX = 0.2
RETRY_SECONDS = 0.2
CHANGE_SECONDS_MAX = 5.0
"""Within which all members go over to the other protocol."""
SLOW_SHARE = 0.3
OBSERVES_SECONDS_MAX = 2.0
PROGRESS_SECONDS_MAX = 60.0
"""Of virtual time, in which a group has read and committed all once nothing is in the way and nobody writes."""


@dataclass(slots=True, eq=False)
class _Session:
    """One member, from its coming to its end.

    Attributes:
        committed: how far the group has read, of what it owns, as far as it knows.
        give_up_at: when it gives up what it has to, by the clock of the loop.
    """

    member: SimulatedMember
    protocol: str
    rng: SeededRng
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    give_up_at: float | None = None
    beats_at: float = 0.0
    commits_at: float = 0.0
    trouble: str = ""


class GroupWorkload:
    """See the module.

    Args:
        factory: of the consumers by which members read.
        bootstrap: of each node, HOST:PORT.
        world: of the members themselves.
        plan: how much of what.
        partitions: that the group reads: all of one topic, which is there.
        rng: for what members do at random.
        recorder: is told of all that they are told.
    """

    def __init__(
        self,
        factory: AsyncFactory,
        bootstrap: Sequence[str],
        world: World,
        plan: GroupPlan,
        *,
        partitions: Sequence[TopicPartition],
        rng: SeededRng,
        recorder: GroupRecorder,
    ) -> None:
        self._factory = factory
        self._bootstrap = bootstrap
        self._world = world
        self._plan = plan
        self._partitions = list(partitions)
        self._rng = rng
        self._recorder = recorder
        self._clients = ClientTasks(recorder, "a member")
        self._is_stopping = asyncio.Event()
        self._has_committed_all = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sessions: dict[int, _Session] = {}
        self._started_at = 0.0

    def start(self) -> None:
        """Begin, and go on until `finish`."""
        loop = asyncio.get_running_loop()
        self._started_at = loop.time()
        places = (self._fill_place(number) for number in range(1, self._plan.members + 1))
        self._tasks = [self._clients.begin(work) for work in (*places, self._observe())]

    async def finish(self) -> None:
        """Nobody writes any more, and nothing is in the way: return when the group has read and committed all."""
        self._is_stopping.set()
        for _ in range(round(PROGRESS_SECONDS_MAX * 10)):
            if not self._behind():
                break
            await asyncio.sleep(0.1)
        behind = self._behind()
        what = f"{PROGRESS_SECONDS_MAX:.0f} s after the last record {self.waits_for()}"
        self._recorder.expect(not behind, GROUP_MAKES_PROGRESS, what)
        self._has_committed_all.set()
        await asyncio.gather(*self._tasks)

    def waits_for(self) -> str:
        """What `finish` waits for, to be read by people."""
        troubles = [f"reader-{number}: {one.trouble}" for number, one in self._sessions.items() if one.trouble]
        return "; ".join([*self._behind(), *troubles])

    def _behind(self) -> list[str]:
        """The partitions that nobody owns, or that are not committed to their end by their owner."""
        found = []
        for partition in self._partitions:
            end_offset = self._recorder.end_offset(partition)
            committed = [
                one.committed.get(partition)
                for one in self._sessions.values()
                if partition in one.member.owned and one.member.epoch is not None
            ]
            if end_offset is None or committed != [end_offset]:
                found.append(f"of {partition} its owners committed {committed} of {end_offset}")
        return found

    # Members that come and go.

    async def _fill_place(self, number: int) -> None:
        """One member after the other."""
        rng = self._rng.stream(f"reader-{number}")
        while not self._has_committed_all.is_set():
            if not self._is_stopping.is_set():
                await asyncio.sleep(rng.random() * self._plan.away_ms_max / 1000)
            await self._run_member(number, rng)

    async def _run_member(self, number: int, rng: SeededRng) -> None:
        requests = CoordinatorRequests(self._bootstrap, self._world)
        protocol = self._protocol(number)
        session = self._sessions[number] = _Session(self._new_member(protocol, requests, rng), protocol, rng)
        try:
            async with self._factory.consumer(auto_offset_reset="earliest") as consumer:
                while await self._step(number, session, consumer):
                    pass
        finally:
            del self._sessions[number]
            session.member.on_out()
            await requests.close()

    def _new_member(self, protocol: str, requests: CoordinatorRequests, rng: SeededRng) -> SimulatedMember:
        plan, delay_ms = self._plan, requests.cluster.backoff.delay_ms
        config = MembershipConfig(
            group_id=GROUP,
            session_timeout_ms=plan.session_ms,
            heartbeat_interval_ms=plan.heartbeat_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            strategies=(plan.strategy,),
            remote_assignor=plan.assignor,
        )
        membership: Membership = (
            ClassicMembership(config, delay_ms)
            if protocol == CLASSIC
            else ConsumerMembership(config, delay_ms, member_id=rng.uuid())
        )
        return self._asking(membership, requests)

    def _asking(self, membership: Membership | None, requests: CoordinatorRequests) -> SimulatedMember:
        reads = GroupReads(GROUP, self._partitions[0].topic, self._partitions)
        return SimulatedMember(reads, membership, requests, self._recorder, self._world.clock.now_ms)

    def _protocol(self, number: int) -> str:
        """That a place speaks by now."""
        spread = CHANGE_SECONDS_MAX * number / self._plan.members
        elapsed = asyncio.get_running_loop().time() - self._started_at
        is_later = elapsed >= self._plan.changes_at_ms / 1000 + spread
        return self._plan.later_protocols if is_later else self._plan.protocols

    # What a member does.

    async def _step(self, number: int, session: _Session, consumer: AsyncConsumer) -> bool:
        """Returns whether it goes on."""
        member, loop = session.member, asyncio.get_running_loop()
        if self._has_committed_all.is_set() or self._protocol(number) != session.protocol:
            await self._leave(session)
            return False
        if not self._is_stopping.is_set():
            chance = session.rng.random() * 100 * 1000 / POLL_MS
            if chance < self._plan.leaves:
                await self._leave(session)
                return False
            if chance < self._plan.leaves + self._plan.crashes:
                return False
            if chance < self._plan.leaves + self._plan.crashes + self._plan.stalls:
                await asyncio.sleep(self._plan.session_ms / 1000 * (0.5 + session.rng.random()))
                await self._commit(session, consumer)  # as if no time had passed
        if loop.time() >= session.beats_at or member.epoch is None:
            await self._beat(session, consumer)
        await self._give_up(session, consumer)
        await self._take(session, consumer)
        try:
            await consumer.poll(timeout_ms=POLL_MS)
        except TidelogError as error:
            session.trouble = f"cannot read: {error}"
            await asyncio.sleep(RETRY_SECONDS)
        if loop.time() >= session.commits_at:
            await self._commit(session, consumer)
        return True

    async def _beat(self, session: _Session, consumer: AsyncConsumer) -> None:
        """Now and then while a commit is under way."""
        member, loop = session.member, asyncio.get_running_loop()
        if member.owned and session.rng.random() < 0.2:
            await asyncio.gather(self._send_beat(session), self._commit(session, consumer))
        else:
            await self._send_beat(session)
        session.beats_at = loop.time() + self._plan.heartbeat_ms / 1000
        if member.to_give_up and session.give_up_at is None:
            is_slow = self._plan.is_slow and not self._is_stopping.is_set() and session.rng.random() < SLOW_SHARE
            slow_ms = self._plan.rebalance_ms * session.rng.random() if is_slow else 0
            session.give_up_at = loop.time() + slow_ms / 1000

    async def _send_beat(self, session: _Session) -> None:
        try:
            await session.member.beat()
            session.trouble = ""
        except TidelogError as error:
            session.trouble = f"cannot say that it lives: {error}"
            await asyncio.sleep(RETRY_SECONDS)

    async def _give_up(self, session: _Session, consumer: AsyncConsumer) -> None:
        """What another is to read: commit how far it came, and say so."""
        member = session.member
        if not member.to_give_up:
            session.give_up_at = None
        elif session.give_up_at is not None and asyncio.get_running_loop().time() >= session.give_up_at:
            session.give_up_at = None
            await self._commit(session, consumer)
            member.give_up(member.to_give_up)
            await self._beat(session, consumer)

    async def _take(self, session: _Session, consumer: AsyncConsumer) -> None:
        """Go on where the group is, in what is new; read no more of what is not its own."""
        owned = session.member.owned
        session.committed = {each: offset for each, offset in session.committed.items() if each in owned}
        found = {}
        for partition in sorted(owned - session.committed.keys()):
            try:
                found[partition] = await session.member.committed(partition)
            except TidelogError as error:
                session.trouble = f"is not told an offset: {error}"
                await asyncio.sleep(RETRY_SECONDS)
                break
        known = sorted([*session.committed, *found])
        if known != consumer.assignment():
            consumer.assign(known)
        for partition, committed in found.items():
            if committed is None:
                consumer.seek(partition, 0)
            else:
                consumer.seek(partition, committed.offset, committed.leader_epoch)
            session.committed[partition] = -1 if committed is None else committed.offset

    async def _commit(self, session: _Session, consumer: AsyncConsumer) -> None:
        """How far it came, where that is another offset than before."""
        session.commits_at = asyncio.get_running_loop().time() + self._plan.commit_ms / 1000
        for partition in sorted(session.committed):
            position = await self._position(consumer, partition)
            if position is None or position.offset == session.committed.get(partition):
                continue
            if session.member.epoch is None or partition not in session.member.owned:
                continue
            try:
                if await session.member.commit(partition, position.offset, position.leader_epoch):
                    session.committed[partition] = position.offset
            except TidelogError as error:
                session.trouble = f"knows of no commit: {error}"
                return

    async def _position(self, consumer: AsyncConsumer, partition: TopicPartition) -> Position | None:
        """Where it stands; None while that is being looked up."""
        try:
            async with asyncio.timeout(POSITION_SECONDS_MAX):
                return await consumer.position(partition)
        except (TidelogError, TimeoutError):
            return None

    async def _leave(self, session: _Session) -> None:
        with suppress(TidelogError):  # else its session will end
            if session.member.epoch is not None:
                await session.member.leave()

    # Somebody who asks.

    async def _observe(self) -> None:
        """How far the group has read, every now and then, as somebody who monitors it; at the end once more."""
        requests = CoordinatorRequests(self._bootstrap, self._world)
        rng = self._rng.stream("observer")
        observer = self._asking(None, requests)
        try:
            while not self._has_committed_all.is_set():
                with suppress(TidelogError):
                    for partition in self._partitions:
                        await observer.committed(partition)
                await asyncio.sleep(rng.random() * OBSERVES_SECONDS_MAX)
            for partition in self._partitions:
                await requests.cluster.retrying("the last look", partial(observer.committed, partition))
        finally:
            await requests.close()
