"""A client that makes topics, lets them grow, deletes them, and looks at them: what it was told is done, it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

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
        factory: of the clients that look: each time another one, at whichever node it finds first.
        rng: for what it does next.
        witness: is told of all that it is told.
        replication_factor: of the topics that it makes.
    """

    def __init__(
        self,
        factory: AsyncFactory,
        admin: AsyncAdmin,
        rng: SeededRng,
        witness: ClientWitness,
        replication_factor: int = 1,
    ) -> None:
        self._factory = factory
        self._admin = admin
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
        if drawn < 0.5 and len(self._there) < TOPICS_MAX:
            await self._make(f"made-{number}", self._rng.randrange(1, 3))
        elif drawn < 0.7 and self._there:
            await self._let_grow(min(self._there))
        elif self._there:
            await self._delete(min(self._there))

    async def _make(self, name: str, partition_count: int) -> None:
        self._names.append(name)
        begun = self._witness.on_asked("create", name)
        (made,) = await self._admin.create_topics([NewTopic(name, partition_count, self._replication_factor)])
        self._witness.on_done("create", name, begun)
        assert made.topic_id is not None
        topic_id = TopicId(parse_uuid(made.topic_id))
        self._reads.on_created(CONTEXT, name, topic_id, partition_count)
        self._there[name] = topic_id, partition_count

    async def _let_grow(self, name: str) -> None:
        topic_id, partition_count = self._there[name]
        if partition_count < PARTITIONS_MAX:
            await self._admin.create_partitions({name: partition_count + 1})
            self._reads.on_created(CONTEXT, name, topic_id, partition_count + 1)
            self._there[name] = topic_id, partition_count + 1

    async def _delete(self, name: str) -> None:
        topic_id, _ = self._there.pop(name)
        self._witness.may_be_deleted.add(name)
        self._reads.on_deletion_begun(name)
        begun = self._witness.on_asked("delete", name)
        await self._admin.delete_topics([name])
        self._witness.on_done("delete", name, begun)
        self._reads.on_deleted(CONTEXT, name, topic_id)

    async def _look(self) -> None:
        """What is not listed is not there, as far as this client is told."""
        begun = self._reads.begin(CONTEXT)
        async with self._factory.admin() as reader:
            found = await reader.describe_topics()
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


@contextmanager
def refused() -> Iterator[list[TidelogError]]:
    """What goes wrong with clients is told to the caller, who may try again."""
    refusals: list[TidelogError] = []
    try:
        yield refusals
    except TidelogError as error:
        refusals.append(error)
