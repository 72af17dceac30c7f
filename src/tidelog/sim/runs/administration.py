"""Clients that make topics, let them grow, delete them, and look at them: what they were told is done, they see.

Each asks another node, whichever it likes, and they share what they have seen (KIP-1243): of all nodes together, no
answer is older than the one before. Some are made for one call, and know nothing but their node; an admin client and a
consumer stay, with what they have cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from tidelog.base.errors import TidelogError
from tidelog.base.ids import LeaderEpoch, Offset, TopicId, parse_uuid
from tidelog.client.admin.admin_messages import described
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.descriptions import NewTopic, TopicDescription
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.cluster import World
from tidelog.client.consistency import ConsistencyContext, ConsistencyContextStore
from tidelog.client.factory import AsyncFactory
from tidelog.sim.checkers.metadata_reads import BegunRead, MetadataReads, TopicRead
from tidelog.sim.runs.client_recorder import ClientRecorder
from tidelog.sim.world.rng import SeededRng
from tidelog.wire import ConsistencyState

TOPICS_MAX = 10
PARTITIONS_MAX = 4
CONTEXT = "the administrator"
LOOKS = 2
"""After each change, at any node each."""


class RecordedStore(ConsistencyContextStore):
    """Keeps the token of the latest answer beside the latest token."""

    def __init__(self) -> None:
        super().__init__()
        self.stamp: int | None = None

    def on_state(self, state: ConsistencyState) -> None:
        self.stamp = state.token
        super().on_state(state)


class SharedStore(ConsistencyContextStore):
    """Of clients that ask at any time: what they see the others see, and it is not taken for the others' answers."""

    def __init__(self, shared: ConsistencyContextStore) -> None:
        super().__init__()
        self._shared = shared

    def read(self) -> ConsistencyContext:
        return self._shared.read()

    def store_latest(self, context: ConsistencyContext) -> bool:
        return self._shared.store_latest(context)


class Administration:
    """See the module.

    Args:
        bootstrap: of each node, HOST:PORT.
        world: for the clients.
        rng: for what it does next.
        recorder: is told of all that it is told.
        replication_factor: of the topics that it makes.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        world: World,
        rng: SeededRng,
        recorder: ClientRecorder,
        replication_factor: int = 1,
    ) -> None:
        self._store = RecordedStore()
        self._nodes = [AsyncFactory(one, self._store, world=world) for one in bootstrap]
        self._everywhere = AsyncFactory(bootstrap, SharedStore(self._store), world=world)
        self._rng = rng
        self._recorder = recorder
        self._replication_factor = replication_factor
        self._reads = MetadataReads()
        self._there: dict[str, tuple[TopicId, int]] = {}  # with the number of its partitions
        self._names: list[str] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Go on until it is over."""
        async with self._everywhere.admin() as admin, self._everywhere.consumer() as consumer:
            for number in count(1):
                await asyncio.sleep(self._rng.random())
                if is_over():
                    break
                with refused():
                    await self._change(number)
                for _ in range(LOOKS):
                    with refused():
                        await self._look()
                with refused():
                    await self._look_again(admin)
                with refused():
                    await self._look_for_partitions(consumer)

    async def _change(self, number: int) -> None:
        drawn = self._rng.random()
        async with self._anywhere() as admin:
            if drawn < 0.5 and len(self._there) < TOPICS_MAX:
                await self._make(admin, f"made-{number}", self._rng.randrange(1, 3))
            elif drawn < 0.7 and self._there:
                await self._let_grow(admin, min(self._there))
            elif self._there:
                await self._delete(admin, min(self._there))

    def _anywhere(self) -> AsyncAdmin:
        """A client that begins at one node. It knows no other, unless that one tells it."""
        return self._nodes[self._rng.randrange(0, len(self._nodes))].admin()

    async def _make(self, admin: AsyncAdmin, name: str, partition_count: int) -> None:
        self._names.append(name)
        begun = self._recorder.on_asked("create", name)
        (made,) = await admin.create_topics([NewTopic(name, partition_count, self._replication_factor)])
        self._recorder.on_done("create", name, begun)
        assert made.topic_id is not None
        topic_id = TopicId(parse_uuid(made.topic_id))
        self._reads.on_created(CONTEXT, name, topic_id, partition_count)
        self._there[name] = topic_id, partition_count

    async def _let_grow(self, admin: AsyncAdmin, name: str) -> None:
        topic_id, partition_count = self._there[name]
        if partition_count < PARTITIONS_MAX:
            await admin.create_partitions({name: partition_count + 1})
            self._reads.on_created(CONTEXT, name, topic_id, partition_count + 1)
            self._there[name] = topic_id, partition_count + 1

    async def _delete(self, admin: AsyncAdmin, name: str) -> None:
        topic_id, _ = self._there.pop(name)
        self._recorder.may_be_deleted.add(name)
        self._reads.on_deletion_begun(name)
        begun = self._recorder.on_asked("delete", name)
        await admin.delete_topics([name])
        self._recorder.on_done("delete", name, begun)
        self._reads.on_deleted(CONTEXT, name, topic_id)

    async def _look(self) -> None:
        """What is not listed is not there, as far as this client is told."""
        async with self._anywhere() as admin:
            begun = self._reads.begin(CONTEXT)
            found = await admin.describe_topics()
            stamp = None if self._store.stamp is None else Offset(self._store.stamp)
            self._note(begun, found, stamp)

    async def _look_again(self, admin: AsyncAdmin) -> None:
        """As one that has looked before, by either of the requests that describe topics."""
        begun = self._reads.begin(CONTEXT)
        self._note(begun, await admin.describe_topics(include_eligible_leaders=self._rng.random() < 0.5))

    async def _look_for_partitions(self, consumer: AsyncConsumer) -> None:
        """A consumer is told of a topic that is there, or was."""
        if not self._names:
            return
        name = self._names[self._rng.randrange(0, len(self._names))]
        begun = self._reads.begin(CONTEXT)
        partitions = await consumer.partitions_for(name)
        view = consumer._cluster.metadata.topics.get(name)
        assert len(partitions) == (0 if view is None else view.partition_count)
        self._note(begun, {} if view is None else {name: described(view)}, names=[name])

    def _note(
        self,
        begun: BegunRead,
        found: Mapping[str, TopicDescription],
        stamp: Offset | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        """A read of these topics, or of all, was answered."""
        read: dict[str, TopicRead | None] = dict.fromkeys(self._names if names is None else names)
        read |= {name: _read(topic) for name, topic in found.items()}
        invariants = (MetadataReads.never_goes_back, MetadataReads.own_writes_seen)
        self._recorder.note(invariants, self._reads.on_answered(begun, read, stamp))


def _read(topic: TopicDescription) -> TopicRead:
    assert topic.topic_id is not None
    leader_epochs = (partition.leader_epoch for partition in topic.partitions)
    return TopicRead(
        TopicId(parse_uuid(topic.topic_id)),
        tuple(None if leader_epoch is None else LeaderEpoch(leader_epoch) for leader_epoch in leader_epochs),
    )


@contextmanager
def refused() -> Iterator[list[TidelogError]]:
    """What goes wrong with clients is told to the caller, who may try again."""
    refusals: list[TidelogError] = []
    try:
        yield refusals
    except TidelogError as error:
        refusals.append(error)
