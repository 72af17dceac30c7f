"""What clients do all along while things go wrong: producers, consumers, one that commits, one that administers.

All of them are production code. Each tells the witness what it was told, at the step in which it was told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, product, zip_longest

from tidelog.base.errors import RecordsLostError, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.async_producer import AsyncProducer
from tidelog.client.cluster import World
from tidelog.client.core.values import CommittedOffset, RecordMetadata
from tidelog.client.factory import AsyncFactory
from tidelog.client.futures import Future
from tidelog.client.options import Acks, CompressionType
from tidelog.sim.runs.administration import Administration, refused
from tidelog.sim.runs.client_recorder import ClientRecorder
from tidelog.sim.runs.client_tasks import ClientTasks
from tidelog.sim.world.network import LATE_SECONDS_MAX
from tidelog.sim.world.rng import SeededRng

TOPIC = "flights"
GROUP = "followers"
POLL_MS = 500
INTERVALS_MS = (10, 20, 50, 100, 200)
PAUSES_MS = (0, 0, 20, 200, 2_000)
CODECS: tuple[CompressionType, ...] = ("none", "none", "none", "lz4", "zstd")
SENT_ONCE_SECONDS_MAX = 0.05
"""A commit that took longer may have been sent more than once: its connection was reset meanwhile."""
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """How much of what a run does.

    Attributes:
        partitions: of the topic that is written to.
        interval_ms: between two records of one producer.
        pause_ms: that a consumer takes over what it was given, while more waits for it.
        syncs_each: whether the node syncs each record before it acknowledges it.
        replication_factor: of every topic.
        min_insync_replicas: of every topic.
        acks: of each producer; those that are left out have acks=all.
    """

    partitions: int = 1
    producers: int = 1
    interval_ms: int = 10
    is_idempotent: bool = True
    codec: CompressionType = "none"
    consumers: int = 2
    pause_ms: int = 0
    commits: bool = False
    administers: bool = False
    syncs_each: bool = True
    replication_factor: int = 1
    min_insync_replicas: int = 1
    acks: tuple[Acks, ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        """Of the node."""
        return {
            "log.flush.interval.messages": "1" if self.syncs_each else "1000000",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(self.replication_factor),
            "min.insync.replicas": str(self.min_insync_replicas),
        }

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """That are written to."""
        return [TopicPartition(TOPIC, PartitionIndex(number)) for number in range(self.partitions)]


def draw_plan(rng: SeededRng) -> WorkloadPlan:
    """How much of what one run does."""
    return WorkloadPlan(
        partitions=rng.randrange(1, 4),
        producers=rng.randrange(1, 3),
        interval_ms=INTERVALS_MS[rng.randrange(0, len(INTERVALS_MS))],
        is_idempotent=rng.random() < 0.8,
        codec=CODECS[rng.randrange(0, len(CODECS))],
        consumers=rng.randrange(1, 3),
        pause_ms=PAUSES_MS[rng.randrange(0, len(PAUSES_MS))],
        commits=rng.random() < 0.5,
        administers=rng.random() < 0.5,
        syncs_each=rng.random() < 0.7,
    )


class Workload:
    """See the module.

    Args:
        factory: of the clients.
        bootstrap: of each node, HOST:PORT.
        world: for clients that ask one node.
        plan: how much of what.
        rng: for what clients do at random.
        recorder: is told of all that they are told.
    """

    def __init__(
        self,
        factory: AsyncFactory,
        bootstrap: Sequence[str],
        world: World,
        plan: WorkloadPlan,
        *,
        rng: SeededRng,
        recorder: ClientRecorder,
    ) -> None:
        self._factory = factory
        self._bootstrap = bootstrap
        self._world = world
        self._plan = plan
        self._rng = rng
        self._recorder = recorder
        self._clients = ClientTasks(recorder)
        self._is_stopping = asyncio.Event()
        self._has_read_all = asyncio.Event()
        self._unanswered = 0
        names = [f"p{number}" for number in range(1, plan.producers + 1)]
        self._acks: dict[str, Acks] = dict(zip_longest(names, plan.acks[: plan.producers], fillvalue="all"))
        self._writing: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []

    async def prepare(self) -> None:
        """Make the topic, and let the witness look at it."""
        async with self._factory.admin() as admin:
            await admin.create_topics([NewTopic(TOPIC, self._plan.partitions, self._plan.replication_factor)])
        for partition in self._plan.topic_partitions:
            self._recorder.watch(partition)

    def start(self) -> None:
        """Begin, and go on until `finish`."""
        plan = self._plan
        self._writing = [self._clients.begin(self._produce(name)) for name in self._acks]
        if plan.administers:
            self._writing.append(self._clients.begin(self._administer()))
        readers = [f"consumer {number}" for number in range(1, plan.consumers + 1)]
        self._reading = [self._clients.begin(self._consume(name)) for name in readers]
        if plan.commits:
            self._reading.append(self._clients.begin(self._commit()))

    async def finish(self) -> None:
        """Write no more; return when all that was begun has its answer, and all that is there is read."""
        self._is_stopping.set()
        await asyncio.gather(*self._writing)
        while self._unanswered:
            await asyncio.sleep(0.1)
        await asyncio.sleep(LATE_SECONDS_MAX)  # a request that was given up on may arrive until then
        while self._behind():
            await asyncio.sleep(0.1)
        self._has_read_all.set()
        await asyncio.gather(*self._reading)

    def waits_for(self) -> str:
        """What `finish` waits for, to be read by people."""
        writing = sum(not task.done() for task in self._writing)
        return f"{writing} who write, {self._unanswered} records without an answer; {'; '.join(self._behind())}"

    # Writing.

    async def _produce(self, name: str) -> None:
        partitions = self._plan.topic_partitions
        acks = self._acks[name]
        producer = self._new_producer(acks)
        for number in count():
            if self._is_stopping.is_set():
                break
            partition, value = partitions[number % len(partitions)], b"%s-%d" % (name.encode(), number)
            try:
                future = await producer.send(TOPIC, value, partition=partition.partition)
            except RecordsLostError:  # it is of no use any more; its successor begins anew
                await _close(producer)
                producer = self._new_producer(acks)
                continue
            except TidelogError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._unanswered += 1
            future.add_done_callback(partial(self._on_outcome, partition, value, acks))
            await asyncio.sleep(self._plan.interval_ms / 1000)
        await _close(producer)

    def _new_producer(self, acks: Acks) -> AsyncProducer:
        plan = self._plan
        is_idempotent = plan.is_idempotent and acks == "all"
        return self._factory.producer(acks=acks, enable_idempotence=is_idempotent, compression_type=plan.codec)

    def _on_outcome(self, partition: TopicPartition, value: bytes, acks: Acks, future: Future[RecordMetadata]) -> None:
        self._unanswered -= 1
        if acks == "all" and future.exception() is None:
            offset = future.result().offset
            if offset is not None:
                self._recorder.on_acknowledged(partition, offset, value)

    # Reading.

    def _behind(self) -> list[str]:
        readers = [f"consumer {number}" for number in range(1, self._plan.consumers + 1)]
        told = (self._recorder.behind(*each) for each in product(readers, self._plan.topic_partitions))
        return [text for text in told if text is not None]

    async def _consume(self, name: str) -> None:
        async with self._new_consumer(name) as consumer:
            consumer.assign(self._plan.topic_partitions)
            while not self._has_read_all.is_set():
                await self._poll(name, consumer)
                if self._plan.pause_ms and not self._is_stopping.is_set():
                    await asyncio.sleep(self._plan.pause_ms / 1000)

    def _new_consumer(self, name: str) -> AsyncConsumer:
        return self._factory.consumer(auto_offset_reset="earliest", on_reset=partial(self._recorder.on_reset, name))

    async def _poll(self, name: str, consumer: AsyncConsumer) -> int:
        try:
            records = await consumer.poll(timeout_ms=POLL_MS)
        except TidelogError:
            assigned = consumer.assignment()
            readable = [partition for partition in assigned if not self._recorder.is_rotten(partition)]
            if readable != assigned:
                consumer.assign(readable)
            await asyncio.sleep(RETRY_SECONDS)
            return 0
        for record in records:
            partition = TopicPartition(record.topic, PartitionIndex(record.partition))
            self._recorder.on_delivered(name, partition, record)
        return len(records)

    async def _commit(self) -> None:
        """Read a little, commit how far, leave; come back and go on from there.

        A commit of nobody in particular is not fenced. One that was sent again may be carried out once more when the
        first copy arrives, late, on a connection that was given up: the group is set back by it, as it may be.
        """
        loop = asyncio.get_running_loop()
        partition = self._plan.topic_partitions[0]
        committed, possible = CommittedOffset(0), {0}
        sent_again: set[int] = set()
        async with self._factory.admin() as admin:
            for session in count(1):
                if self._has_read_all.is_set():
                    break
                name = f"member {session}"
                async with self._new_consumer(name) as consumer:
                    consumer.assign([partition])
                    consumer.seek(partition, committed.offset, committed.leader_epoch)
                    self._recorder.on_sought(name, partition, committed.offset)
                    for _ in range(self._rng.randrange(1, 6)):
                        await self._poll(name, consumer)
                    begun, wanted = loop.time(), committed
                    with refused() as refusals:
                        position = await consumer.position(partition)
                        wanted = CommittedOffset(position.offset, position.leader_epoch)
                        possible.add(wanted.offset)
                        begun = loop.time()
                        await admin.alter_group_offsets(GROUP, {partition: wanted})
                        possible = {wanted.offset}
                        committed = wanted
                    if refusals or loop.time() - begun > SENT_ONCE_SECONDS_MAX:
                        sent_again.add(wanted.offset)
                self._recorder.on_left(name)
                with refused() as refusals:
                    found = (await admin.list_group_offsets(GROUP)).get(partition)
                if refusals or not self._recorder.keeps_all:
                    possible.add(committed.offset)
                    continue
                self._recorder.expect(
                    (found.offset if found is not None else 0) in possible | sent_again,
                    "AckedRecordsSurvive",
                    f"{GROUP} committed one of {sorted(possible)} of {partition}, the broker knows {found}",
                )
                if found is not None:
                    committed, possible = found, {found.offset}

    async def _administer(self) -> None:
        factor = self._plan.replication_factor
        administration = Administration(self._bootstrap, self._world, self._rng, self._recorder, factor)
        await administration.run(self._is_stopping.is_set)


async def _close(producer: AsyncProducer) -> None:
    with refused():
        await producer.close()
