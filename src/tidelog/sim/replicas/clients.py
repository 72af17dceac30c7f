"""Producers and consumers of a run: real batches, production's reader, requests through the fabric.

Every record has a value that no other has. A producer with sequence numbers sends a batch that was not answered once
more, to whoever leads then; one without gives it up, for it could not tell whether it is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tidelog.base.errors import Code, KafkaError, MalformedBatchError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.client.core.fetched import read_fetched
from tidelog.client.core.metadata_cache import PartitionView
from tidelog.client.core.needs import FetchFrom, LookUp, Need, NeedsMetadata, Validate
from tidelog.client.core.reader import PartitionReader, Phase
from tidelog.client.core.values import PositionReset, ResetPolicy, ResetReason
from tidelog.metadata.image import PartitionImage
from tidelog.records import BatchBuilder, read_records
from tidelog.replica import ReplicaId
from tidelog.sim.replicas.controller import machine_of
from tidelog.sim.replicas.fabric import OnAnswer, Station
from tidelog.sim.replicas.messages import (
    PARTITION,
    AskEpochEndOf,
    EpochEndTold,
    FetchRecords,
    Leaders,
    ListOffsets,
    OffsetListed,
    Produce,
    Produced,
    RecordsFetched,
    WhoLeads,
)
from tidelog.sim.replicas.plan import Plan
from tidelog.sim.world.clock import SimulatedClock
from tidelog.sim.world.rng import SeededRng

TIMEOUT_MS = 4_000
METADATA_MS = 1_000
RETRIES_MAX = 20
FETCH_SIZE_BYTES = 2_000


class Book(Protocol):
    """Keeps what clients were told."""

    def on_acknowledged(self, name: ReplicaId, values: tuple[str, ...], offset: Offset, acks: int) -> None: ...
    def on_given(self, reader: str, name: ReplicaId, offset: int, leader_epoch: LeaderEpoch, value: str) -> None: ...
    def on_told(self, reader: str, name: ReplicaId, reset: PositionReset) -> None: ...
    def on_stuck(self, reader: str, error: Exception) -> None: ...
    def on_fact(self, kind: str) -> None: ...


class Place(NamedTuple):
    """Where clients are, and who writes down what they are told."""

    station: Station
    clock: SimulatedClock
    plan: Plan
    book: Book


class Client:
    """Knows, of one topic, who leads it, as some broker has heard."""

    def __init__(self, name: str, topic: str, place: Place, rng: SeededRng) -> None:
        self.name = name
        self.topic = topic
        self.rng = rng
        self.station, self.clock, self.plan, self.book = place
        self.topic_id: TopicId | None = None
        self.previous_topic_id: TopicId | None = None  # a broker that is behind may bring it back
        self.state: PartitionImage | None = None
        self.is_stopping = False

    def refresh(self, then: Callable[[], None] = lambda: None) -> None:
        """Ask any broker."""
        broker = BrokerId(1 + self.rng.randrange(0, self.plan.nodes))
        go_on = first_only(lambda _: then())

        def answered(body: object | None) -> None:
            if isinstance(body, Leaders) and body.topic_id is not None:
                self._on_leaders(body.topic_id, body.partitions[PARTITION])
            go_on(body)

        self.station.ask(machine_of(broker), WhoLeads(self.topic), 500, answered)

    def _on_leaders(self, topic_id: TopicId, state: PartitionImage) -> None:
        """What is older than what is known is passed over; of another topic of the same name nobody can tell."""
        if topic_id != self.topic_id:
            self.previous_topic_id = self.topic_id
        elif self.state is not None and state.partition_epoch < self.state.partition_epoch:
            return
        self.topic_id, self.state = topic_id, state
        self.on_metadata()

    def on_metadata(self) -> None:
        """Something newer is known."""


class Producer(Client):
    """Sends batches, one at a time.

    Attributes:
        acknowledged: batches, so far.
    """

    def __init__(self, name: str, topic: str, place: Place, rng: SeededRng, *, acks: int, is_idempotent: bool) -> None:
        super().__init__(name, topic, place, rng)
        self.acks = acks
        self.acknowledged = 0
        self._is_idempotent = is_idempotent
        self._producer_id = -1
        self._sequence = 0
        self._count = 0
        self.refresh(self.send)

    def send(self) -> None:
        """The next batch, and then the next."""
        if self.is_stopping:
            return
        values = tuple(f"{self.name}.{self._count + each}" for each in range(1 + self.rng.randrange(0, 3)))
        self._count += len(values)
        if self._is_idempotent and self._producer_id < 0:
            self._producer_id = self.rng.randrange(1, 1 << 40)
            self._sequence = 0
        builder = BatchBuilder(
            producer_id=self._producer_id,
            producer_epoch=0 if self._is_idempotent else -1,
            base_sequence=self._sequence if self._is_idempotent else -1,
        )
        for value in values:
            builder.append(self.clock.wall_ms(), None, value.encode())
        self._attempt(values, builder.build(), RETRIES_MAX)

    def _attempt(self, values: tuple[str, ...], batch: bytes, retries: int) -> None:
        state, topic_id = self.state, self.topic_id
        if state is None or topic_id is None or state.leader is None:
            self._later(lambda: self.refresh(lambda: self._attempt(values, batch, retries)))
            return
        name = ReplicaId(topic_id, PARTITION)
        body = Produce(name, self.acks, batch, may_repeat=self._is_idempotent)

        def answered(answer: object | None) -> None:
            if isinstance(answer, Produced) and answer.code is Code.NONE:
                assert answer.base_offset is not None
                self.acknowledged += 1
                self.book.on_acknowledged(name, values, answer.base_offset, self.acks)
                self._go_on(len(values))
            elif self._is_idempotent and retries and self._may_help(answer):
                self._later(lambda: self.refresh(lambda: self._attempt(values, batch, retries - 1)))
            else:
                self.book.on_fact("batch given up by its producer")
                self._producer_id = -1
                self._later(lambda: self.refresh(self.send))

        if not self.acks:
            self.station.tell(machine_of(state.leader), body)
            self._go_on(len(values))
            if self.rng.random() < 0.1:
                self.refresh()
            return
        self.station.ask(machine_of(state.leader), body, TIMEOUT_MS, first_only(answered))

    @staticmethod
    def _may_help(answer: object | None) -> bool:
        return not isinstance(answer, Produced) or answer.code.retriable

    def _go_on(self, count: int) -> None:
        self._sequence += count
        self.station.later(self.rng.random() * self.plan.produce_ms, self.send)

    def _later(self, step: Callable[[], None]) -> None:
        self.station.later(20 + 80 * self.rng.random(), step)


class Consumer(Client):
    """Reads all of one partition, from its leader or from its followers, as production's reader says."""

    def __init__(self, name: str, topic: str, place: Place, rng: SeededRng) -> None:
        super().__init__(name, topic, place, rng)
        self.reader = PartitionReader(
            TopicPartition(topic, PARTITION),
            ResetPolicy.EARLIEST,
            FETCH_SIZE_BYTES,
            lambda failures: min(20 * failures, 500),
            self._on_reset,
        )
        self._step()
        self._refresh_now_and_then()

    @property
    def replica_name(self) -> ReplicaId | None:
        return None if self.topic_id is None else ReplicaId(self.topic_id, PARTITION)

    def on_metadata(self) -> None:
        state = self.state
        assert state is not None
        view = PartitionView(PARTITION, state.leader, state.leader_epoch, state.replicas, state.isr)
        self.reader.on_metadata(self.topic_id, view, self.clock.now_ms())

    def _refresh_now_and_then(self) -> None:
        self.refresh()
        self.station.later(METADATA_MS, self._refresh_now_and_then)

    def _step(self) -> None:
        """Deliver what is there; ask for what is needed; look again a little later."""
        self._deliver()
        reader = self.reader
        need = reader.need(self.clock.now_ms())
        if isinstance(need, NeedsMetadata):
            self.refresh()
        elif need is not None:
            self._ask(need)
        if reader.phase is Phase.STOPPED:
            self.book.on_stuck(self.name, reader.error or KafkaError("it stopped"))
        self.station.later(10 + 20 * self.rng.random(), self._step)

    def _ask(self, need: Need) -> None:
        reader, state, name = self.reader, self.state, self.replica_name
        if state is None or state.leader is None or name is None:
            return
        target, generation, body = state.leader, reader.generation, self._body(need, name)
        if isinstance(need, FetchFrom) and self.plan.reads_followers:
            target = state.replicas[self.rng.randrange(0, len(state.replicas))]
        reader.in_flight = generation
        answered = partial(self._on_answer, need, generation)
        self.station.ask(machine_of(target), body, TIMEOUT_MS, first_only(answered))

    def _body(self, need: Need, name: ReplicaId) -> object:
        epoch = self.reader.leader_epoch
        match need:
            case FetchFrom():
                return FetchRecords(name, epoch, need.offset, need.size_bytes_max)
            case LookUp():
                return ListOffsets(name, epoch, need.timestamp)
            case Validate():
                return AskEpochEndOf(name, epoch, need.leader_epoch)
            case NeedsMetadata():
                raise AssertionError("nobody is asked")

    def _on_answer(self, need: Need, generation: int, answer: object | None) -> None:
        reader, now_ms = self.reader, self.clock.now_ms()
        code = getattr(answer, "code", None)
        if answer is None:
            reader.on_failure(generation, now_ms)
            self.refresh()
        elif isinstance(answer, RecordsFetched) and code is Code.OFFSET_OUT_OF_RANGE:
            reader.on_out_of_range(generation)
        elif code is not Code.NONE:
            assert isinstance(code, Code)
            reader.on_refused(generation, KafkaError(code.meaning, code=code), now_ms)
            self.refresh()
        elif isinstance(answer, RecordsFetched):
            assert isinstance(need, FetchFrom)
            self._on_fetched(need, generation, answer)
        elif isinstance(answer, OffsetListed):
            reader.on_looked_up(generation, answer.offset, answer.leader_epoch, now_ms)
        elif isinstance(answer, EpochEndTold):
            assert isinstance(need, Validate)
            reader.on_epoch_end(generation, need.leader_epoch, answer.end, now_ms)

    def _on_fetched(self, need: FetchFrom, generation: int, answer: RecordsFetched) -> None:
        try:
            fetched = read_fetched(
                answer.records,
                need.offset,
                aborted=None,
                check_crcs=True,
                high_watermark=answer.high_watermark,
                last_stable_offset=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
            )
        except MalformedBatchError:
            self.book.on_fact("damaged records refused by a consumer")
            self.reader.on_failure(generation, self.clock.now_ms())
            return
        self.reader.on_fetched(generation, fetched)

    def _deliver(self) -> None:
        reader, name = self.reader, self.replica_name
        while reader.held and name is not None:
            fetched = reader.held[0]
            for position, header in fetched.batches:
                for record in read_records(fetched.buffer, position, header):
                    if record.offset >= fetched.fetch_offset:
                        epoch, value = LeaderEpoch(header.leader_epoch), bytes(record.value or b"").decode()
                        self.book.on_given(self.name, name, record.offset, epoch, value)
            reader.on_all_delivered()

    def _on_reset(self, reset: PositionReset) -> None:
        lost = [self.topic_id]
        if reset.reason is ResetReason.RECREATED:
            lost.append(self.previous_topic_id)
        for topic_id in filter(None, lost):
            self.book.on_told(self.name, ReplicaId(topic_id, PARTITION), reset)


def first_only(on_answer: OnAnswer) -> OnAnswer:
    """Pass over answers that come late, or twice."""
    is_over = False

    def answered(answer: object | None) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            on_answer(answer)

    return answered
