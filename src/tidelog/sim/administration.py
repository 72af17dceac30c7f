"""A client that makes topics, lets them grow, deletes them, and looks at them: what it was told is done, it sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import NamedTuple

from tidelog.base.errors import TidelogError
from tidelog.base.ids import LeaderEpoch, TopicId, parse_uuid
from tidelog.client.async_admin import AsyncAdmin
from tidelog.client.descriptions import NewTopic, TopicDescription
from tidelog.client.factory import AsyncFactory
from tidelog.sim.checkers.metadata_reads import MetadataReads, TopicRead
from tidelog.sim.client_witness import ClientWitness
from tidelog.sim.rng import SeededRng

TOPICS_MAX = 10
PARTITIONS_MAX = 4
CONTEXT = "the administrator"


class Administration:
    """See the module.

    Args:
        nodes: makers of clients that begin at one node each, by its HOST:PORT.
        rng: for what it does next.
        witness: is told of all that it is told.
        replication_factor: of the topics that it makes.
    """

    def __init__(
        self,
        nodes: Mapping[str, AsyncFactory],
        rng: SeededRng,
        witness: ClientWitness,
        replication_factor: int = 1,
    ) -> None:
        self._nodes = nodes
        self._rng = rng
        self._witness = witness
        self._replication_factor = replication_factor
        self._reads = MetadataReads()
        self._there: dict[str, tuple[TopicId, int]] = {}  # with the number of its partitions
        self._names: list[str] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Go on until it is over."""
        for number in count(1):
            await asyncio.sleep(self._rng.random())
            if is_over():
                break
            with refused():
                await self._change(number)
            with refused():
                await self._look()

    async def _change(self, number: int) -> None:
        drawn = self._rng.random()
        async with self._anywhere() as one:
            if drawn < 0.5 and len(self._there) < TOPICS_MAX:
                await self._make(one, f"made-{number}", self._rng.randrange(1, 3))
            elif drawn < 0.7 and self._there:
                await self._let_grow(one, min(self._there))
            elif self._there:
                await self._delete(one, min(self._there))

    @asynccontextmanager
    async def _anywhere(self) -> AsyncIterator[_AtNode]:
        """A client that begins at one node. What each node answers is one context: none waits for what others know."""
        bootstrap = sorted(self._nodes)[self._rng.randrange(0, len(self._nodes))]
        async with self._nodes[bootstrap].admin() as admin:
            yield _AtNode(admin, bootstrap)

    async def _make(self, one: _AtNode, name: str, partition_count: int) -> None:
        self._names.append(name)
        begun = self._witness.on_asked("create", name)
        (made,) = await one.admin.create_topics([NewTopic(name, partition_count, self._replication_factor)])
        self._witness.on_done("create", name, begun)
        assert made.topic_id is not None
        topic_id = TopicId(parse_uuid(made.topic_id))
        if one.has_answered:
            self._reads.on_created(one.context, name, topic_id, partition_count)
        self._there[name] = topic_id, partition_count

    async def _let_grow(self, one: _AtNode, name: str) -> None:
        topic_id, partition_count = self._there[name]
        if partition_count < PARTITIONS_MAX:
            await one.admin.create_partitions({name: partition_count + 1})
            if one.has_answered:
                self._reads.on_created(one.context, name, topic_id, partition_count + 1)
            self._there[name] = topic_id, partition_count + 1

    async def _delete(self, one: _AtNode, name: str) -> None:
        topic_id, _ = self._there.pop(name)
        self._witness.may_be_deleted.add(name)
        self._reads.on_deletion_begun(name)
        begun = self._witness.on_asked("delete", name)
        await one.admin.delete_topics([name])
        self._witness.on_done("delete", name, begun)
        if one.has_answered:
            self._reads.on_deleted(one.context, name, topic_id)

    async def _look(self) -> None:
        """What is not listed is not there, as far as this client is told."""
        async with self._anywhere() as one:
            begun = self._reads.begin(one.context)
            found = await one.admin.describe_topics()
            if one.has_answered:
                read = dict.fromkeys(self._names) | {name: _read(topic) for name, topic in found.items()}
                invariants = (MetadataReads.never_goes_back, MetadataReads.own_writes_seen)
                self._witness.note(invariants, self._reads.on_answered(begun, read))


def _read(topic: TopicDescription) -> TopicRead:
    assert topic.topic_id is not None
    leader_epochs = (partition.leader_epoch for partition in topic.partitions)
    return TopicRead(
        TopicId(parse_uuid(topic.topic_id)),
        tuple(None if leader_epoch is None else LeaderEpoch(leader_epoch) for leader_epoch in leader_epochs),
    )


class _AtNode(NamedTuple):
    admin: AsyncAdmin
    bootstrap: str

    @property
    def context(self) -> str:
        return f"{CONTEXT} at {self.bootstrap}"

    @property
    def has_answered(self) -> bool:
        """Whether whatever was answered, this node has: a client whose node is gone asks the others."""
        slots = self.admin._cluster.pool._slots.values()
        asked = {str(slot.connection.address) for slot in slots if slot.connection is not None}
        return asked == {self.bootstrap}


@contextmanager
def refused() -> Iterator[list[TidelogError]]:
    """What goes wrong with clients is told to the caller, who may try again."""
    refusals: list[TidelogError] = []
    try:
        yield refusals
    except TidelogError as error:
        refusals.append(error)
