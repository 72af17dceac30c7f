"""A consumer's group, as the consumer uses it: readers start where the group has committed, and commit to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.base.errors import NetworkError, TidelogError, TimedOutError
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.cluster import Cluster, World, is_retriable
from tidelog.client.core.deliveries import Deliveries
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.needs import LookUp
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import CommittedOffset, Rebalance, RebalanceKind
from tidelog.client.fetching import Fetching
from tidelog.client.group_member import GroupMember, TopicSubscription
from tidelog.client.options import ConsumerConfig

logger = logging.getLogger("tidelog.client")

Listener = Callable[[list[TopicPartition]], object]

CLOSE_SECONDS = 10.0
"""How long a last commit may take where the consumer closes, or gives partitions up."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of partitions that come and go."""

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None

    def of(self, kind: RebalanceKind) -> Listener | None:
        """Who is told of this. What is lost is revoked, for who makes no difference."""
        if kind is RebalanceKind.ASSIGNED:
            return self.on_assigned
        return self.on_lost or self.on_revoked if kind is RebalanceKind.LOST else self.on_revoked


class ConsumerGroup:
    """See the module. Belongs to the event loop that it runs on.

    Args:
        config: the consumer's, with a group id.
        fetching: where the caller waits; it is woken when it has something to be told, or may go on.
        deliveries: where the caller stands, behind what it was given and came back from.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        world: World,
        subscription: Subscription,
        fetching: Fetching,
        *,
        deliveries: Deliveries[Any, Any],
    ) -> None:
        self.member = GroupMember(
            config,
            cluster,
            world.clock,
            world.rng,
            on_news=self._on_news,
            progress=lambda: deliveries.left_count,
        )
        self.listeners = Listeners()
        self._config = config
        self._cluster = cluster
        self._clock = world.clock
        self._subscription = subscription
        self._deliveries = deliveries
        self._fetching = fetching
        self._start: LookUp | None = None
        self._starts: dict[TopicPartition, LookUp | None] = {}  # of those that are assigned by hand
        self._committed: dict[TopicPartition, Position] = {}
        self._committing = asyncio.Lock()  # an older commit, tried again, is not to come behind a newer
        self._tasks: set[asyncio.Task[None]] = set()
        self._commits: set[asyncio.Task[None]] = set()  # that nobody waits for
        self._finder: asyncio.Task[None] | None = None
        self._committer: asyncio.Task[None] | None = None

    # Where to read.
    def subscribe(self, subscription: TopicSubscription, listeners: Listeners, start: LookUp | None) -> None:
        """Read what the group gives of this."""
        self.listeners, self._start = listeners, start
        self.member.subscribe(subscription)
        self._commit_by_itself()

    def on_assigned_by_hand(self, start: LookUp | None) -> None:
        """New partitions wait to be told where to start."""
        for partition in self._subscription.awaiting:
            self._starts.setdefault(partition, start)
        self._find_starts()
        self._commit_by_itself()

    async def prepare(self) -> Rebalance | None:
        """What the caller has to be told next; by then it can seek in, or commit for, these partitions."""
        rebalance = self.member.take_rebalance()
        if rebalance is None:
            return None
        self._fetching.settle()
        if rebalance.kind is RebalanceKind.ASSIGNED:
            self._assign(self._subscription.readers.keys() | rebalance.partitions)
            self._find_starts()
        elif rebalance.kind is RebalanceKind.REVOKED:
            await self._commit_done(rebalance.partitions)
        return rebalance

    def on_told(self, rebalance: Rebalance) -> None:
        """The caller was told."""
        if rebalance.kind is not RebalanceKind.ASSIGNED:
            self._assign(self._subscription.readers.keys() - rebalance.partitions)
            for partition in rebalance.partitions:
                self._committed.pop(partition, None)
        self.member.on_told(rebalance)
        self._fetching.pump_soon()

    async def last_rebalance(self) -> Rebalance | None:
        """What the caller has to be told before it leaves; what it came back from is committed."""
        await self._commit_done(self._subscription.readers)
        if self._commits:
            await asyncio.wait(self._commits, timeout=CLOSE_SECONDS)
        owned = self.member.membership.owned
        if not owned:
            return None
        is_member = not self.member.is_lost
        return Rebalance(RebalanceKind.REVOKED if is_member else RebalanceKind.LOST, owned)

    async def leave(self) -> None:
        """Be no member any more, and read nothing."""
        for task in (self._finder, self._committer):
            if task is not None:
                task.cancel()
        self._finder = self._committer = None
        for one in list(self._tasks):
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.member.unsubscribe()
        self._assign(())

    # What is committed.
    def metadata(self) -> GroupMetadata:
        """See `Consumer.group_metadata`."""
        return self.member.metadata()

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit, behind what is being committed. Raises as `GroupOffsets.commit` does."""
        async with self._committing:
            await self.member.offsets.commit(offsets)
            self._committed |= {key: Position(one.offset, one.leader_epoch) for key, one in offsets.items()}

    def commit_soon(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit, and tell `on_commit` what became of it."""
        task = self._spawn(self._commit_and_tell(offsets))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """See `Consumer.committed`."""
        return await self.member.offsets.committed(partitions)

    # How.
    def _on_news(self) -> None:
        """A loop over records ends its turn where the caller has to be told something: others wait for that."""
        if self.member.has_news:
            self._fetching.interrupt()
        else:
            self._fetching.wake()

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        now_ms = self._clock.now_ms()
        wanted = sorted(partitions)
        self._cluster.want({partition.topic for partition in wanted})
        self._subscription.assign(wanted, self._cluster.metadata, now_ms, is_awaiting=True)
        self._fetching.pump_soon()

    def _find_starts(self) -> None:
        if self._finder is None or self._finder.done():
            self._finder = self._spawn(self._start_readers())

    async def _start_readers(self) -> None:
        """Have all that wait start where the group has committed."""
        failures = 0
        while awaiting := self._subscription.awaiting:
            found: dict[TopicPartition, CommittedOffset | TidelogError | None] = {}
            try:
                found |= await self.member.offsets.starts(awaiting)
            except (TimedOutError, NetworkError) as error:
                self._cluster.last_error = error  # it has been tried again and again
            except TidelogError as error:
                found = dict.fromkeys(awaiting, error)
            for key, committed in found.items():
                self._start_reader(key, committed)
            self._fetching.pump_soon()
            failures = 0 if any(not isinstance(one, TidelogError) for one in found.values()) else failures + 1
            if self._subscription.awaiting:
                await asyncio.sleep(self._cluster.backoff.delay_ms(max(failures, 1)) / 1000)

    def _start_reader(self, partition: TopicPartition, committed: CommittedOffset | TidelogError | None) -> None:
        reader = self._subscription.readers.get(partition)
        if reader is None:
            return
        if isinstance(committed, CommittedOffset):
            self._committed[partition] = position = Position(committed.offset, committed.leader_epoch)
            reader.start(position)
        elif committed is None:
            reader.start(self._starts.pop(partition, self._start))
        elif is_retriable(committed):
            self._cluster.last_error = committed
        else:
            reader.stop(reader.generation, committed)

    def _commit_by_itself(self) -> None:
        if self._config.enable_auto_commit and (self._committer is None or self._committer.done()):
            self._committer = self._spawn(self._commit_from_time_to_time())

    async def _commit_from_time_to_time(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            offsets = self._undone(self._subscription.readers)
            if offsets and not self.member.has_news:
                await self._commit_and_tell(offsets)

    async def _commit_done(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit what the caller came back from, for the last time in these partitions."""
        offsets = self._undone(partitions) if self._config.enable_auto_commit else {}
        if offsets:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._commit_and_tell(offsets)
            except TimeoutError:
                logger.warning(
                    "%s: group %s: what was read last was not committed within %s s: it is read again",
                    self._config.client_id,
                    self._config.group_id,
                    CLOSE_SECONDS,
                )

    def _undone(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """What is done in these partitions, and not committed yet."""
        wanted = set(partitions)
        return {
            key: CommittedOffset(*position)
            for key, position in self._deliveries.done().items()
            if key in wanted and self._committed.get(key) != position
        }

    async def _commit_and_tell(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        error: TidelogError | None = None
        try:
            await self.commit(offsets)
        except TidelogError as failed:
            error = failed
            logger.warning("%s: a commit failed: %s", self._config.client_id, error)
        if self._config.on_commit is not None:
            try:
                self._config.on_commit(offsets, error)
            except Exception:
                logger.exception("on_commit failed")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: a task of its group failed", self._config.client_id, exc_info=task.exception())
