"""Asks share coordinators, wherever they are, on the behalf of leaders of partitions and of the coordinators of groups.

```
 leader ──► SharePersister ──┬── coordinator here ───────────────────────────► ShareCoordinators
                             └── coordinator elsewhere: one request at a time
                                 for each broker, kind and group; what comes
                                 meanwhile goes together in the next
```

A change waits for the one before it of the same state, and changes that wait become one: what is newer wins, so none
may overtake another. Each has a number, the same at each attempt, so that an attempt that comes late does nothing.

Kafka: `DefaultStatePersister`, `PersisterStateManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from tidelog.base.errors import Code, InvariantBrokenError, KafkaError, NetworkError, TidelogError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.ports import Rng
from tidelog.net.backoff import Backoff
from tidelog.server.broker.broker import Broker
from tidelog.server.share_state.share_coordinators import ShareCoordinators, portions_of
from tidelog.share.key import ShareKey
from tidelog.share.state import ShareState, StateChange, raised_to
from tidelog.share.summary import ShareSummary

logger = logging.getLogger("tidelog.server.share_state")

REQUEST_CLASS = "share states"
TIMEOUT_MS = 15_000
"""A coordinator answers within `share.coordinator.write.timeout.ms`."""
ATTEMPTS_MAX = 5
BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 30_000
"""As Kafka: an attempt outlasts the election of another coordinator."""
ROWS_MAX = 256
"""Of one request; the others follow in the next."""
JOINED_BATCHES_MAX = 2_000
"""Of changes that wait and become one."""

RETRIED = frozenset(
    (
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.THROTTLING_QUOTA_EXCEEDED,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNSUPPORTED_VERSION,
    )
)
"""What may be otherwise soon. The metadata of the coordinator's broker may lag behind that of who asks."""


NOT_TOLD = refusal(Code.UNKNOWN_SERVER_ERROR, "the coordinator has said nothing of it")


class StartedState(NamedTuple):
    """A state to begin.

    Attributes:
        start: None: the leader of the partition finds out.
    """

    topic_id: TopicId
    partition: PartitionIndex
    state_epoch: int
    start: Offset | None


class StateRequestKind(Enum):
    """The requests."""

    INITIALIZE = "InitializeShareGroupState"
    READ = "ReadShareGroupState"
    WRITE = "WriteShareGroupState"
    DELETE = "DeleteShareGroupState"
    SUMMARIZE = "ReadShareGroupStateSummary"


class _Asked(NamedTuple):
    key: ShareKey
    what: Any
    future: asyncio.Future[object]


@dataclass(eq=False)
class _WaitingWrite:
    """A change that no coordinator was asked for yet.

    Attributes:
        done: by whom it is sent.
    """

    change: StateChange
    done: asyncio.Task[object] | None = None

    def takes(self, change: StateChange) -> bool:
        """Whether another may become part of it."""
        return (change.state_epoch, change.leader_epoch) == (self.change.state_epoch, self.change.leader_epoch) and len(
            self.change.batches
        ) + len(change.batches) <= JOINED_BATCHES_MAX

    def take(self, change: StateChange) -> None:
        """The other is newer: it wins."""
        from tidelog.coordinator.share.batches import combine

        batches = list(self.change.batches)
        combine(batches, change.batches, None)
        joined = replace(change, batches=tuple(batches))
        if change.start is None:
            joined = replace(joined, start=self.change.start, start_leader_epoch=self.change.start_leader_epoch)
        self.change = joined


class SharePersister:
    """One for each broker.

    Args:
        coordinators: of this broker; they know where the others are.
        backoff: between attempts; None for Kafka's.
    """

    def __init__(
        self, broker: Broker, coordinators: ShareCoordinators, rng: Rng, *, backoff: Backoff | None = None
    ) -> None:
        self._broker = broker
        self._coordinators = coordinators
        self._backoff = Backoff(BACKOFF_MS, BACKOFF_MS_MAX, rng) if backoff is None else backoff
        self._tasks = broker.tasks.branch("share states")
        self._waiting: dict[ShareKey, _WaitingWrite] = {}
        self._writing: WeakValueDictionary[ShareKey, asyncio.Lock] = WeakValueDictionary()
        self._last_number = 0
        self._pending: dict[tuple[BrokerId, StateRequestKind, str], list[_Asked]] = {}

    # What the leaders of partitions ask.

    async def read(
        self, group_id: str, topic_id: TopicId, partition: PartitionIndex, leader_epoch: LeaderEpoch
    ) -> ShareState:
        """The state of a group, of which leaders of older epochs write nothing any more.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH: another leads; INVALID_REQUEST: the state was not initialized; or what the
                last of several attempts came to.
        """
        answer = await self._ask(StateRequestKind.READ, ShareKey(group_id, topic_id, partition), leader_epoch)
        assert isinstance(answer, ShareState)
        return answer

    async def write(self, group_id: str, topic_id: TopicId, partition: PartitionIndex, change: StateChange) -> None:
        """Return once a change is committed. Those of one state are written in the order in which they came here.

        Who waits no longer takes nothing back.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH: somebody else writes by now; INVALID_REQUEST; or what
                the last of several attempts came to: the change may be written, or some of it.
        """
        key = ShareKey(group_id, topic_id, partition)
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.done is not None and waiting.takes(change):
            waiting.take(change)
        else:
            waiting = self._waiting[key] = _WaitingWrite(change)
            waiting.done = self._tasks.share(self._write(key, waiting))
        assert waiting.done is not None
        await asyncio.shield(waiting.done)

    async def _write(self, key: ShareKey, waiting: _WaitingWrite) -> object:
        lock = self._writing.get(key)
        if lock is None:
            lock = self._writing[key] = asyncio.Lock()
        async with lock:
            if self._waiting.get(key) is waiting:
                del self._waiting[key]
            self._last_number += 1
            return await self._ask(StateRequestKind.WRITE, key, replace(waiting.change, number=self._last_number))

    # What the coordinators of groups ask.

    async def initialize(self, group_id: str, states: Sequence[StartedState]) -> list[KafkaError | None]:
        """Begin states, or begin them anew.

        Returns:
            For each, why it was not begun, or None.
        """
        asked = [(ShareKey(group_id, one.topic_id, one.partition), one) for one in states]
        return [
            one if isinstance(one, KafkaError) else None
            for one in await self._ask_all(StateRequestKind.INITIALIZE, asked)
        ]

    async def raise_epochs(
        self, group_id: str, state_epoch: int, partitions: Sequence[tuple[TopicId, PartitionIndex]]
    ) -> list[KafkaError | None]:
        """Fence who knows states by older epochs. Returns for each why that was not done, or None."""
        asked = [(ShareKey(group_id, *one), raised_to(state_epoch)) for one in partitions]
        return [
            one if isinstance(one, KafkaError) else None for one in await self._ask_all(StateRequestKind.WRITE, asked)
        ]

    async def delete(
        self, group_id: str, partitions: Sequence[tuple[TopicId, PartitionIndex]], *, state_epoch: int = -1
    ) -> list[KafkaError | None]:
        """Delete states. Returns for each why that was not done, or None.

        Args:
            state_epoch: those with a higher one stay; -1: none does.
        """
        asked = [(ShareKey(group_id, *one), state_epoch) for one in partitions]
        return [
            one if isinstance(one, KafkaError) else None for one in await self._ask_all(StateRequestKind.DELETE, asked)
        ]

    async def summarize(
        self, group_id: str, partitions: Sequence[tuple[TopicId, PartitionIndex]]
    ) -> list[ShareSummary | KafkaError]:
        """Where a group stands. Returns for each its summary, or why that was not told."""
        asked = [(ShareKey(group_id, *one), None) for one in partitions]
        answers = await self._ask_all(StateRequestKind.SUMMARIZE, asked)
        return [one for one in answers if isinstance(one, (ShareSummary, KafkaError))]

    async def _ask_all(self, kind: StateRequestKind, asked: Iterable[tuple[ShareKey, Any]]) -> list[object]:
        return list(await asyncio.gather(*(self._answer(kind, key, what) for key, what in asked)))

    async def _answer(self, kind: StateRequestKind, key: ShareKey, what: Any) -> object:
        try:
            return await self._ask(kind, key, what)
        except KafkaError as error:
            return error

    # How.

    async def _ask(self, kind: StateRequestKind, key: ShareKey, what: Any) -> object:
        """The answer of the coordinator of a key, whoever that is at each attempt. Raises KafkaError."""
        failures = 0
        while True:
            try:
                return await self._ask_once(kind, key, what)
            except InvariantBrokenError:
                raise
            except TidelogError as error:
                failures += 1
                if isinstance(error, KafkaError) and error.code not in RETRIED:
                    raise
                if failures >= ATTEMPTS_MAX:
                    if isinstance(error, KafkaError):
                        raise
                    raise refusal(Code.COORDINATOR_NOT_AVAILABLE, f"{key}: {error}") from error
                logger.debug("%s of %s is asked for again: %s", kind.value, key, error)
            await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)

    async def _ask_once(self, kind: StateRequestKind, key: ShareKey, what: Any) -> object:
        place = self._coordinators.partition_for(str(key))
        if place is None:
            await self._coordinators.create_topic()
            place = self._coordinators.partition_for(str(key))
        state = None if place is None else self._broker.image.partition(place.topic, place.partition)
        if state is None or state.leader is None:
            raise refusal(Code.COORDINATOR_NOT_AVAILABLE, f"{key}: nobody leads {place}")
        if state.leader == self._broker.broker_id:
            answer = await self._ask_here(kind, key, what)
        else:
            answer = await self._send(state.leader, kind, key, what)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def _ask_here(self, kind: StateRequestKind, key: ShareKey, what: Any) -> Awaitable[object]:
        coordinators = self._coordinators
        match kind:
            case StateRequestKind.INITIALIZE:
                return coordinators.initialize(key, state_epoch=what.state_epoch, start=what.start)
            case StateRequestKind.READ:
                return coordinators.read(key, leader_epoch=what)
            case StateRequestKind.WRITE:
                return coordinators.write(key, portions_of(what), batch_count=len(what.batches))
            case StateRequestKind.DELETE:
                return coordinators.delete(key, state_epoch=what)
            case StateRequestKind.SUMMARIZE:
                return coordinators.summarize(key)

    async def _send(self, leader: BrokerId, kind: StateRequestKind, key: ShareKey, what: Any) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        lane = leader, kind, key.group_id
        pending = self._pending.get(lane)
        if pending is None:
            pending = self._pending[lane] = []
            self._tasks.start(self._send_all(*lane, pending))
        pending.append(_Asked(key, what, future))
        return await future

    async def _send_all(self, leader: BrokerId, kind: StateRequestKind, group_id: str, pending: list[_Asked]) -> None:
        """One request after another, until nobody waits. What comes in one turn of the loop goes together."""
        await asyncio.sleep(0)
        error: BaseException = NetworkError(f"broker {leader} was not asked")
        try:
            while pending:
                now: dict[ShareKey, _Asked] = {}
                later: list[_Asked] = []
                for one in pending:
                    if one.key in now or len(now) == ROWS_MAX:
                        later.append(one)
                    else:
                        now[one.key] = one
                pending[:] = later
                await self._send_some(leader, kind, group_id, now)
        except asyncio.CancelledError as cancelled:
            error = cancelled
            raise
        finally:
            del self._pending[leader, kind, group_id]
            _give_up(pending, error)

    async def _send_some(
        self, leader: BrokerId, kind: StateRequestKind, group_id: str, asked: Mapping[ShareKey, _Asked]
    ) -> None:
        from tidelog.server.share_state.state_requests import REQUESTS

        sent = REQUESTS[kind.value]
        request = sent.request(group_id, [(key, one.what) for key, one in asked.items()])
        try:
            connection = await self._broker.replication.peers.connection(leader, REQUEST_CLASS)
            response = await connection.request(request, sent.response, timeout_ms=TIMEOUT_MS)
            answers = sent.answers(group_id, response)
        except TidelogError as error:
            _give_up(asked.values(), NetworkError(f"broker {leader} has not answered: {error}"))
            return
        except BaseException as error:
            _give_up(asked.values(), error)
            raise
        for key, one in asked.items():
            if not one.future.done():
                one.future.set_result(answers.get(key, NOT_TOLD))


def _give_up(asked: Iterable[_Asked], error: BaseException) -> None:
    """Whoever waits is told; after a bug of ours it is asked for again."""
    for one in asked:
        if one.future.done():
            continue
        if not isinstance(error, Exception):  # the node is stopping, or has died
            one.future.cancel()
        else:
            one.future.set_exception(NetworkError(f"{one.key}: {error}"))
