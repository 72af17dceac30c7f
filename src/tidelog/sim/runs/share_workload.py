"""A share group while things go wrong: members come, acquire, acknowledge, leave, end without a word, and stand still.

```
 flights-0 ──► worker-1, worker-2     accept, release, reject, ask for more time, say nothing
 flights-1 ──► worker-3, worker-1
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tidelog.base.errors import TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.client.admin.descriptions import ConfigResource
from tidelog.client.cluster import World
from tidelog.client.factory import AsyncFactory
from tidelog.share import AcknowledgeType
from tidelog.sim.checkers.share_groups import Acquisition
from tidelog.sim.runs.client_tasks import ClientTasks
from tidelog.sim.runs.coordinator_requests import CoordinatorRequests
from tidelog.sim.runs.group_members import GroupReads
from tidelog.sim.runs.share_members import ShareMember, ShareReader
from tidelog.sim.runs.share_plan import SharePlan
from tidelog.sim.runs.share_recorder import SHARE_GROUP_MAKES_PROGRESS, ShareRecorder
from tidelog.sim.world.rng import SeededRng

SHARE_GROUP = "workers"
FETCH_WAIT_MS = 100
LAST_WAIT_MS = 500
"""Once nobody writes any more."""
RETRY_SECONDS = 0.2
HELD_MAX = 200
"""So many records a member has at most before it goes on to acquire."""
APART_SHARE = 0.3
"""Of acknowledgements: they come alone, and not with a fetch."""
MIDWAY_SHARE = 0.5
"""Of members that end: they do while they wait for an answer."""
POLL_SECONDS = 0.2
PROGRESS_SECONDS_MAX = 120.0
"""Of virtual time, in which a group is done with one more record at least, once nothing is in the way and nobody
writes. A state that is not kept any more is missed within a minute. A member may take records one by one, each after it
has waited at the other brokers.
"""
POLLS_WITHOUT_PROGRESS_MAX = round(PROGRESS_SECONDS_MAX / POLL_SECONDS)


@dataclass(slots=True, eq=False)
class _Session:
    """One member, from its coming to its end.

    Attributes:
        due: when the member is done with what it has, by the clock of the loop.
    """

    member: ShareMember
    rng: SeededRng
    due: dict[Acquisition, float] = field(default_factory=dict)
    beats_at: float = 0.0
    trouble: str = ""


class ShareWorkload:
    """See the module.

    Args:
        factory: of an administrator.
        bootstrap: of each node, HOST:PORT.
        world: of the members.
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
        plan: SharePlan,
        *,
        partitions: Sequence[TopicPartition],
        rng: SeededRng,
        recorder: ShareRecorder,
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
        self._is_done = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sessions: dict[int, _Session] = {}
        self._starts: dict[TopicPartition, int] = {}

    async def prepare(self) -> None:
        """Have the group begin with the earliest record, whoever leads."""
        async with self._factory.admin() as admin:
            await admin.alter_configs({ConfigResource("group", SHARE_GROUP): {"share.auto.offset.reset": "earliest"}})
        while not self._recorder.is_known_everywhere(SHARE_GROUP):
            await asyncio.sleep(POLL_SECONDS)

    def start(self) -> None:
        """Begin, and go on until `finish`."""
        self._tasks = [self._clients.begin(self._fill_place(number)) for number in range(1, self._plan.members + 1)]

    async def finish(self) -> None:
        """Nobody writes any more, and nothing is in the way: return when the group is done with all."""
        self._is_stopping.set()
        async with self._factory.admin() as admin:
            furthest: dict[TopicPartition, int] = {}
            polls_left = POLLS_WITHOUT_PROGRESS_MAX
            while self._behind() and polls_left:
                polls_left -= 1
                with suppress(TidelogError):
                    found = await admin.list_share_group_offsets(SHARE_GROUP)
                    self._starts = {each: one.start_offset for each, one in found.items()}
                    if any(start > furthest.get(each, 0) for each, start in self._starts.items()):
                        polls_left = POLLS_WITHOUT_PROGRESS_MAX
                        furthest |= {each: max(start, furthest.get(each, 0)) for each, start in self._starts.items()}
                await asyncio.sleep(POLL_SECONDS)
        is_behind = bool(self._behind())
        what = f"{PROGRESS_SECONDS_MAX:.0f} s after it was done with a record, {self.waits_for()}"
        self._recorder.expect(not is_behind, SHARE_GROUP_MAKES_PROGRESS, what)
        self._is_done.set()
        await asyncio.gather(*self._tasks)
        if not is_behind:
            self._recorder.check_books(self._partitions)

    def waits_for(self) -> str:
        """What `finish` waits for, to be read by people."""
        troubles = [f"worker-{number}: {one.trouble}" for number, one in self._sessions.items() if one.trouble]
        return "; ".join([*self._behind(), *troubles])

    def _behind(self) -> list[str]:
        """The partitions that are not done to their ends."""
        found = []
        for partition in self._partitions:
            end_offset, start = self._recorder.end_offset(partition), self._starts.get(partition)
            if end_offset is None or start != end_offset:
                found.append(f"{SHARE_GROUP} is done with {partition} up to {start} of {end_offset}")
        return found

    # Members that come and go.

    async def _fill_place(self, number: int) -> None:
        """One member after the other."""
        rng = self._rng.stream(f"worker-{number}")
        while not self._is_done.is_set():
            if not self._is_stopping.is_set():
                await asyncio.sleep(rng.random() * self._plan.away_ms_max / 1000)
            await self._run_member(number, rng)

    async def _run_member(self, number: int, rng: SeededRng) -> None:
        requests = CoordinatorRequests(self._bootstrap, self._world)
        reads = GroupReads(SHARE_GROUP, self._partitions[0].topic, self._partitions)
        member = ShareMember(reads, self._plan, requests, self._recorder, member_id=rng.uuid())
        session = self._sessions[number] = _Session(member, rng)
        try:
            while await self._step(session):
                pass
        finally:
            del self._sessions[number]
            member.end()
            await requests.close()

    # What a member does.

    async def _step(self, session: _Session) -> bool:
        """Returns whether it goes on."""
        plan = self._plan
        if self._is_done.is_set():
            await self._leave(session)
            return False
        if not self._is_stopping.is_set():
            chance = session.rng.random() * 100 * 1000 / FETCH_WAIT_MS
            if chance < plan.leaves:
                await self._leave(session)
                return False
            if chance < plan.leaves + plan.crashes:
                if session.rng.random() < MIDWAY_SHARE:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(session.rng.random() * FETCH_WAIT_MS / 1000):
                            await self._work(session)
                return False
            if chance < plan.leaves + plan.crashes + plan.stalls:
                await asyncio.sleep(plan.lock_ms / 1000 * (0.5 + session.rng.random()))
        await self._work(session)
        return True

    async def _work(self, session: _Session) -> None:
        """Say that it lives, if it is time to, and read from all leaders."""
        member, loop = session.member, asyncio.get_running_loop()
        try:
            by_leader = await member.by_leader()
        except TidelogError as error:
            by_leader = {}
            session.trouble = f"is not told who leads: {error}"
        works = [self._read(session, reader, partitions) for reader, partitions in by_leader.items()]
        if loop.time() >= session.beats_at or member.epoch is None:
            session.beats_at = loop.time() + self._plan.heartbeat_ms / 1000
            works.append(self._beat(session))
        if not works:
            await asyncio.sleep(FETCH_WAIT_MS / 1000)
        await asyncio.gather(*works)

    async def _beat(self, session: _Session) -> None:
        try:
            await session.member.beat()
            session.trouble = ""
        except TidelogError as error:
            session.trouble = f"cannot say that it lives: {error}"
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, session: _Session, reader: ShareReader, partitions: Collection[TopicPartition]) -> None:
        """One request."""
        loop, rng = asyncio.get_running_loop(), session.rng
        said = [(one, self._outcome(rng)) for one in list(reader.held) if session.due.get(one, 0.0) <= loop.time()]
        for one, type_ in said:
            if type_ is AcknowledgeType.GAP:  # nothing is said of it: its time will be over
                session.due[one] = loop.time() + 3 * self._plan.lock_ms / 1000
            elif type_ is AcknowledgeType.RENEW:
                session.due[one] = loop.time() + rng.random() * self._plan.lock_ms / 1000
        said = [(one, type_) for one, type_ in said if type_ is not AcknowledgeType.GAP]
        is_full = len(reader.held) > HELD_MAX
        if is_full and not said:
            await asyncio.sleep(FETCH_WAIT_MS / 1000)
            return
        try:
            if said and (is_full or rng.random() < APART_SHARE):
                await reader.acknowledge(said)
                return
            if not partitions and not reader.held:
                await self._part(session, reader)
                return
            for one in await reader.fetch(partitions, said, self._wait_ms):
                session.due[one] = loop.time() + rng.random() * self._plan.works_ms_max / 1000
        except TidelogError as error:
            session.trouble = f"cannot read: {error}"
            session.member.on_failure()
            await asyncio.sleep(RETRY_SECONDS)

    @property
    def _wait_ms(self) -> int:
        return LAST_WAIT_MS if self._is_stopping.is_set() else FETCH_WAIT_MS

    def _outcome(self, rng: SeededRng) -> AcknowledgeType:
        """What becomes of a record. GAP: the member says nothing of it."""
        plan = self._plan
        if self._is_stopping.is_set():
            return AcknowledgeType.ACCEPT
        chance = rng.random() * 100
        for share, type_ in (
            (plan.releases, AcknowledgeType.RELEASE),
            (plan.rejects, AcknowledgeType.REJECT),
            (plan.renews, AcknowledgeType.RENEW),
            (plan.forgets, AcknowledgeType.GAP),
        ):
            if chance < share:
                return type_
            chance -= share
        return AcknowledgeType.ACCEPT

    async def _part(self, session: _Session, reader: ShareReader) -> None:
        """It reads nothing from that broker any more."""
        session.member.readers = {each: one for each, one in session.member.readers.items() if one is not reader}
        await reader.acknowledge([], is_last=True)

    async def _leave(self, session: _Session) -> None:
        """Some of what it has is accepted on the way."""
        for reader in list(session.member.readers.values()):
            said = [(one, AcknowledgeType.ACCEPT) for one in reader.held if session.rng.random() < MIDWAY_SHARE]
            with suppress(TidelogError):
                await reader.acknowledge(said, is_last=True)
        with suppress(TidelogError):  # else its session will end
            if session.member.epoch is not None:
                await session.member.leave()
