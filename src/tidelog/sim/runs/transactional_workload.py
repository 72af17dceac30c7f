"""Loops that consume, transform and produce in transactions while things go wrong; and readers of what they write.

Each loop copies one partition. It dies at any point and comes back, sometimes beside its predecessor, which is a zombie
from then on; it aborts now and then, and pauses for longer than its transactions may last.

```
 flights-0 ──► copier-1 ──► copies-0, copies-1, latest-0    and the offset of its group, in one transaction
 flights-1 ──► copier-2 ──►    "         "         "
               dreamer  ──► copies-0                        never ends its transactions
```
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.cluster import World
from tidelog.client.core.values import ConsumerRecord
from tidelog.client.factory import AsyncFactory
from tidelog.client.options import Isolation
from tidelog.log.config import INT64_MAX
from tidelog.sim.checkers.copies import CopyTransaction, Fate, copy_of, latest_key
from tidelog.sim.runs.client_tasks import ClientTasks
from tidelog.sim.runs.transaction_plan import COPIES, LATEST, TransactionPlan
from tidelog.sim.runs.transaction_recorder import NOTHING_STAYS_OPEN, TransactionRecorder
from tidelog.sim.runs.transactional_client import Record, TransactionalClient
from tidelog.sim.world.rng import SeededRng

GROUP = "copiers"
DREAMER = "dreamer"
POLL_MS = 500
RECORDS_MAX = 20
"""Of one transaction; once nobody writes any more, `CATCH_UP_RECORDS_MAX`."""
CATCH_UP_RECORDS_MAX = 500
BATCH_BYTES_MAX = 600
RECORD_OVERHEAD_BYTES = 20
PATIENCE_MS = 20_000
RETRY_SECONDS = 0.5
GIVES_UP_SECONDS_MAX = 0.1
SESSION_MS = (1_000, 6_000)
"""That a reader takes before it begins again."""
FENCED = frozenset((Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING))
DECIDED_SECONDS_MAX = 60.0
"""Of virtual time, in which every transaction ends once nothing is in the way and nobody writes."""
DREAM_MS = 1_000
"""The time-out of a transaction that nobody ends."""


class _DiedError(TidelogError):
    """An instance is no more, in the middle of something."""


class _GivesUpError(TidelogError):
    """It aborts its transaction while a request of it is under way."""


class TransactionalWorkload:
    """See the module.

    Args:
        factory: of the clients that are production code.
        bootstrap: of each node, HOST:PORT.
        world: of the clients that are not.
        plan: how much of what.
        sources: partitions, the first of which are copied; of a topic that is there.
        replication_factor: of every topic.
        rng: for what clients do at random.
        recorder: is told of all that they are told.
    """

    def __init__(
        self,
        factory: AsyncFactory,
        bootstrap: Sequence[str],
        world: World,
        plan: TransactionPlan,
        *,
        sources: Sequence[TopicPartition],
        replication_factor: int,
        rng: SeededRng,
        recorder: TransactionRecorder,
    ) -> None:
        self._factory = factory
        self._bootstrap = bootstrap
        self._world = world
        self._plan = plan
        self._sources = list(sources)[: len(plan.versions)]
        self._replication_factor = replication_factor
        self._rng = rng
        self.recorder = recorder
        self._clients = ClientTasks(recorder)
        self._is_stopping = asyncio.Event()
        self._has_read_all = asyncio.Event()
        self._numbers = count(1)
        self._copying: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._waiting: dict[str, str] = {}

    async def prepare(self) -> None:
        """Make the topics, and let the witness look at them."""
        any_time = {"message.timestamp.after.max.ms": str(INT64_MAX)}  # clocks jump, and the copiers' does not
        compacted = any_time | {"cleanup.policy": "compact"}
        if self._plan.is_compacted:
            compacted["segment.bytes"] = str(self._plan.segment_bytes)
        async with self._factory.admin() as admin:
            topics = [
                NewTopic(COPIES, self._plan.partitions, self._replication_factor, configs=any_time),
                NewTopic(LATEST.topic, 1, self._replication_factor, configs=compacted),
            ]
            await admin.create_topics(topics)
        self.recorder.watch(self._plan.outputs)

    def start(self) -> None:
        """Begin, and go on until `finish`."""
        for number, (version, source) in enumerate(zip(self._plan.versions, self._sources, strict=True), start=1):
            rng = self._rng.stream(f"copier {number}")
            copier = Copier(f"copier-{number}", source, version, rng)
            self._copying.append(self._clients.begin(self._keep_copying(copier)))
        if self._plan.dreams:
            self._copying.append(self._clients.begin(self._dream()))
        self._reading = [
            self._clients.begin(self._read("reader of what is committed", "read_committed")),
            self._clients.begin(self._read("reader of all", "read_uncommitted")),
        ]

    async def finish(self) -> None:
        """Nobody writes to the sources any more, and nothing is in the way: return when all is copied and decided."""
        self._is_stopping.set()
        await asyncio.gather(*self._copying)
        await self._wait_until_all_is_decided()
        while self.recorder.behind():
            await asyncio.sleep(0.1)
        self._has_read_all.set()
        await asyncio.gather(*self._reading)
        for source in self._sources:
            await self._check_offset(source)
        self.recorder.check_latest(await self._read_latest())

    async def _wait_until_all_is_decided(self) -> None:
        for _ in range(round(DECIDED_SECONDS_MAX * 10)):
            if self.recorder.unstable() is None:
                break
            await asyncio.sleep(0.1)
        left = self.recorder.unstable()
        what = f"{DECIDED_SECONDS_MAX:.0f} s after the last transaction {left}"
        self.recorder.expect(left is None, NOTHING_STAYS_OPEN, what)

    def waits_for(self) -> str:
        """What `finish` waits for, to be read by people."""
        copying = sum(not task.done() for task in self._copying)
        texts = [f"{copying} who copy", *self._waiting.values()]
        return "; ".join(filter(None, [*texts, self.recorder.unstable(), *self.recorder.behind()]))

    # Copying.

    async def _keep_copying(self, copier: Copier) -> None:
        """One instance after the other, or beside the one before, until one has copied all."""
        instances: list[asyncio.Task[None]] = []
        while not copier.is_done:
            task = self._clients.begin(self._run_instance(copier))
            instances.append(task)
            patience = 0.5 + 3 * copier.rng.random() if copier.rng.random() < 0.3 else None
            await asyncio.wait([task], timeout=None if self._is_stopping.is_set() else patience)
            await asyncio.sleep(copier.rng.random() / 2)
        await asyncio.gather(*instances)

    async def _run_instance(self, copier: Copier) -> None:
        client = self._new_client(copier.transactional_id, copier.version, self._plan.timeout_ms)
        try:
            await client.init()
            known = self.recorder.last_committed(copier.source)
            is_stable = self.recorder.keeps_offsets()
            committed = await client.committed(GROUP, copier.source, is_stable=is_stable)
            self.recorder.on_offset(copier.source, None if committed is None else committed.offset, known)
            async with self._factory.consumer(
                auto_offset_reset="earliest", isolation_level="read_committed"
            ) as consumer:
                consumer.assign([copier.source])
                if committed is None:
                    consumer.seek(copier.source, 0)
                else:
                    consumer.seek(copier.source, committed.offset, committed.leader_epoch)
                while await self._copy_some(copier, client, consumer):
                    await asyncio.sleep(0 if self._is_stopping.is_set() else self._plan.interval_ms / 1000)
        except TidelogError as error:
            self._waiting[copier.transactional_id] = f"{copier.transactional_id} failed of {error}"
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            await client.close()

    async def _copy_some(self, copier: Copier, client: TransactionalClient, consumer: AsyncConsumer) -> bool:
        """In one transaction. Returns whether there may be more to copy."""
        limit = CATCH_UP_RECORDS_MAX if self._is_stopping.is_set() else RECORDS_MAX
        before = await consumer.position(copier.source)
        records = await consumer.poll(timeout_ms=POLL_MS, max_records=limit)
        if not records:
            if not self._is_stopping.is_set():
                return True
            position = (await consumer.position(copier.source)).offset
            copier.is_done = self.recorder.is_end(copier.source, position)
            return not copier.is_done
        one = self._begun(copier, records)
        doubts = client.doubts
        try:
            await self._write(copier, client, one, records[-1].leader_epoch)
            await self._pause(copier)
            is_over = await self._end(copier, client, one)
        except (KafkaError, _GivesUpError) as error:
            if one.fate is Fate.ASKED or (isinstance(error, KafkaError) and error.code in FENCED):
                raise
            self._waiting[copier.transactional_id] = f"{copier.transactional_id} aborted for {error}"
            await client.end(commits=False)
            one.fate = Fate.ABORTED
            is_over = False
            await asyncio.sleep(RETRY_SECONDS if isinstance(error, KafkaError) else 0)
        if not is_over:
            consumer.seek(copier.source, before.offset, before.leader_epoch)
        if client.version == 1 and client.doubts > doubts:
            await client.init()  # nothing but the epoch keeps a late request of this one out of the next transaction
        return True

    def _begun(self, copier: Copier, records: Sequence[ConsumerRecord]) -> CopyTransaction:
        number = next(self._numbers)
        outputs = self._plan.outputs
        copies: dict[TopicPartition, list[bytes]] = defaultdict(list)
        for record in records:
            copy = copy_of(number, copier.source, record.offset, bytes(record.value or b""))
            copies[outputs[record.offset % len(outputs)]].append(copy)
        copies[LATEST] = [copy_of(number, copier.source, records[0].offset, b"")]
        begin, end = records[0].offset, records[-1].offset + 1
        one = CopyTransaction(number, copier.transactional_id, copier.source, begin, end, dict(copies))
        self.recorder.on_begun(one)
        return one

    async def _write(
        self, copier: Copier, client: TransactionalClient, one: CopyTransaction, leader_epoch: int | None
    ) -> None:
        if client.version == 1:
            await client.add_partitions(list(one.copies))
        commits_first = copier.rng.random() < 0.2
        if commits_first:
            await client.commit_offset(GROUP, copier.source, one.next_offset, leader_epoch)
        for partition, copies in one.copies.items():
            key = latest_key(one) if partition == LATEST else None
            half = len(copies) // 2 if copier.rng.random() < 0.3 else 0
            for part in (*_batches(copies[:half]), *_batches(copies[half:])):
                self._may_die(copier)
                rows: list[Record] = [(key, copy) for copy in part]
                await self._produce(copier, client, partition, rows)
        if not commits_first:
            self._may_die(copier)
            await client.commit_offset(GROUP, copier.source, one.next_offset, leader_epoch)

    async def _produce(
        self, copier: Copier, client: TransactionalClient, partition: TopicPartition, rows: Sequence[Record]
    ) -> None:
        gives_up = not self._is_stopping.is_set() and copier.rng.random() < self._plan.gives_up
        try:
            async with asyncio.timeout(GIVES_UP_SECONDS_MAX * copier.rng.random() ** 2 if gives_up else None):
                await client.produce(partition, rows)
        except TimeoutError as error:
            raise _GivesUpError("the records may come behind the abort") from error

    async def _end(self, copier: Copier, client: TransactionalClient, one: CopyTransaction) -> bool:
        """Returns whether it was committed."""
        self._may_die(copier)
        if not self._is_stopping.is_set() and copier.rng.random() < 0.15:
            await client.end(commits=False)
            one.fate = Fate.ABORTED
            return False
        doubts = client.doubts
        self.recorder.on_commit_asked(one)
        dies = self._dies(copier)
        try:
            async with asyncio.timeout(0.002 if dies else None):  # without waiting for the answer
                await client.end(commits=True)
        except KafkaError:
            if client.doubts == doubts:
                one.fate = Fate.ABORTED if one.fate is Fate.ASKED else one.fate
            raise
        except TimeoutError as error:
            raise _DiedError("died while it waited for its commit") from error
        one.fate = Fate.COMMITTED
        return True

    async def _pause(self, copier: Copier) -> None:
        """Now and then for longer than the transaction may last."""
        if not self._is_stopping.is_set() and copier.rng.random() < 0.05:
            await asyncio.sleep(self._plan.timeout_ms / 1000 * (0.5 + copier.rng.random()))

    def _may_die(self, copier: Copier) -> None:
        if self._dies(copier):
            raise _DiedError("died in the middle of a transaction")

    def _dies(self, copier: Copier) -> bool:
        return not self._is_stopping.is_set() and copier.rng.random() < self._plan.dies

    def _new_client(self, transactional_id: str, version: int, timeout_ms: int) -> TransactionalClient:
        return TransactionalClient(
            self._bootstrap,
            self._world,
            transactional_id,
            version=version,
            timeout_ms=timeout_ms,
            patience_ms=PATIENCE_MS,
        )

    async def _dream(self) -> None:
        """Begin transactions and never end them: a time-out has to."""
        rng = self._rng.stream(DREAMER)
        outputs = self._plan.outputs
        while not self._is_stopping.is_set():
            client = self._new_client(DREAMER, 1 + rng.randrange(0, 2), DREAM_MS)
            number = next(self._numbers)
            partition = outputs[number % len(outputs)]
            copy = copy_of(number, partition, 0, b"a dream")
            self.recorder.on_begun(CopyTransaction(number, DREAMER, partition, 0, 0, {partition: [copy]}))
            try:
                await client.init()
                if client.version == 1:
                    await client.add_partitions([partition])
                await client.produce(partition, [(None, copy)])
            except TidelogError:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                await client.close()
            await asyncio.sleep(DREAM_MS / 1000 * 2 * rng.random())

    # Reading.

    async def _read(self, name: str, isolation: Isolation) -> None:
        """Now and then from the start again, as somebody who comes late."""
        rng = self._rng.stream(name)
        while not self._has_read_all.is_set():
            sessions_ms = rng.randrange(*SESSION_MS) if not self._is_stopping.is_set() else None
            with suppress(TimeoutError):
                async with asyncio.timeout(None if sessions_ms is None else sessions_ms / 1000):
                    await self._read_from_the_start(name, isolation)

    async def _read_from_the_start(self, name: str, isolation: Isolation) -> None:
        self.recorder.on_reader(name, isolation)
        async with self._factory.consumer(
            auto_offset_reset="earliest", isolation_level=isolation, on_reset=partial(self.recorder.on_reset, name)
        ) as consumer:
            consumer.assign(self._plan.outputs)
            while not self._has_read_all.is_set():
                try:
                    records = await consumer.poll(timeout_ms=POLL_MS)
                except TidelogError:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                for record in records:
                    self.recorder.on_read(name, record)
                if self._is_stopping.is_set():
                    for partition in self._plan.outputs:
                        self.recorder.on_position(name, partition, (await consumer.position(partition)).offset)

    async def _read_latest(self) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        async with self._factory.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.assign([LATEST])
            consumer.seek_to_end([LATEST])
            end_offset = (await consumer.position(LATEST)).offset
            consumer.seek_to_beginning([LATEST])
            while (await consumer.position(LATEST)).offset < end_offset:
                found += await consumer.poll(timeout_ms=POLL_MS)
        return found

    async def _check_offset(self, source: TopicPartition) -> None:
        """As whoever comes next would be told."""
        client = self._new_client("auditor", 2, self._plan.timeout_ms)
        try:
            committed = await client.committed(GROUP, source, is_stable=self.recorder.keeps_offsets())
            self.recorder.on_final_offset(source, None if committed is None else committed.offset)
        finally:
            await client.close()


def _batches(copies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As many in each as fit into the smallest segment that a run draws: a batch that does not is refused."""
    begin = size_bytes = 0
    for end, copy in enumerate(copies):
        size_bytes += len(copy) + RECORD_OVERHEAD_BYTES
        if size_bytes > BATCH_BYTES_MAX and end > begin:
            yield copies[begin:end]
            begin, size_bytes = end, len(copy) + RECORD_OVERHEAD_BYTES
    if begin < len(copies):
        yield copies[begin:]


@dataclass(slots=True, eq=False)
class Copier:
    """What all instances of one transactional id have in common."""

    transactional_id: str
    source: TopicPartition
    version: int
    rng: SeededRng
    is_done: bool = False
