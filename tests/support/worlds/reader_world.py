"""One partition, and a consumer and a producer of it: the machines of our clients, and logs as lists.

Brokers are letters. All of them hear of an election at once, and fence whoever has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from support.old_rules.reader_rules import ReaderRules
from tidelog.base.errors import Code, KafkaError, LogTruncatedError, OffsetOutOfRangeError, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, Position, TopicId, TopicPartition
from tidelog.client.core.accumulator import Accumulator, PendingBatch
from tidelog.client.core.encoding import encode_batch
from tidelog.client.core.fetched import read_fetched
from tidelog.client.core.metadata_cache import CachedBroker, CachedPartition, MetadataCache, TopicView
from tidelog.client.core.needs import EARLIEST, LATEST, FetchFrom, LookUp, NeedsMetadata, Validate
from tidelog.client.core.sender import BatchAnswer, Sender, SenderSettings
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import ConsumerRecord, PositionReset, ResetPolicy
from tidelog.log.producer_state import ProducerStates
from tidelog.records.batch import BatchBuilder
from tidelog.records.header import BatchHeader, read_header
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.sim.checkers.readers import NoSilentLoss
from tidelog.sim.checkers.views import Record, text_of

P0 = TopicPartition("t", PartitionIndex(0))
READER = "the reader"
BEGINS_AT = 2
"""ms since 1970, by a policy of a duration: records are as old as their offsets."""
ROUNDS_MAX = 100
ROUND_MS = 1_000
FETCH_RECORDS_MAX = 2


@dataclass
class Replica:
    """What one broker has of the topic's log.

    Attributes:
        headers: for each record the batch that it came in; None if its producer does not count.
    """

    records: list[Record] = field(default_factory=list)
    headers: list[BatchHeader | None] = field(default_factory=list)
    lineage: LeaderEpochLineage = field(default_factory=LeaderEpochLineage)

    @property
    def end_offset(self) -> Offset:
        return Offset(len(self.records))

    def append(self, record: Record, header: BatchHeader | None = None) -> None:
        self.records.append(record)
        self.headers.append(header)

    def copy_of(self, other: Replica, *, lag: int = 0) -> None:
        """Have what the other has, but for the last `lag` records."""
        end_offset = max(0, len(other.records) - lag)
        self.records, self.headers = other.records[:end_offset], other.headers[:end_offset]
        self.lineage = other.lineage.clone()
        if lag:
            self.lineage.truncate_from_end(Offset(end_offset))

    def producers(self) -> ProducerStates:
        """As they follow from the log."""
        states = ProducerStates()
        for offset, header in enumerate(self.headers):
            if header is not None:
                states.remember(header, offset, offset, 0, 0)
        return states


class PartitionWorld:
    """The partition: who leads it, and all that its logs ever held."""

    def __init__(self, brokers: list[str]) -> None:
        self.replicas = {broker: Replica() for broker in brokers}
        self.leader = brokers[0]
        self.leader_epoch = LeaderEpoch(0)
        self.incarnation = 1
        self.events: list[str] = []
        self.before: dict[tuple[LeaderEpoch, int], Record] = {}
        self.led.lineage.assign(self.leader_epoch, Offset(0))

    @property
    def led(self) -> Replica:
        return self.replicas[self.leader]

    def append(self, value: str, header: BatchHeader | None = None) -> Offset:
        log = self.led
        record = (self.leader_epoch, value)
        self.before.pop((self.leader_epoch, log.end_offset), None)  # of a topic of the same name before this one
        if log.records:
            self.before[self.leader_epoch, log.end_offset] = log.records[-1]
        log.append(record, header)
        return Offset(log.end_offset - 1)

    def elect(self, broker: str) -> None:
        self.leader, self.leader_epoch = broker, LeaderEpoch(self.leader_epoch + 1)
        self.led.lineage.assign(self.leader_epoch, self.led.end_offset)

    def recreate(self) -> None:
        self.incarnation += 1
        self.replicas = {broker: Replica() for broker in self.replicas}
        self.leader, self.leader_epoch = next(iter(self.replicas)), LeaderEpoch(0)
        self.led.lineage.assign(self.leader_epoch, Offset(0))

    @property
    def topic_id(self) -> TopicId:
        return TopicId(UUID(int=self.incarnation))

    def view(self) -> CachedPartition:
        """As the metadata has it."""
        return CachedPartition(PartitionIndex(0), BrokerId(ord(self.leader)), self.leader_epoch)


class ReadingClient:
    """A consumer, what it was given, and what it was told. A new session of it goes on with what the old one had.

    Attributes:
        broken: invariants, as they showed.
    """

    def __init__(self, world: PartitionWorld, policy: ResetPolicy, rules: ReaderRules, events: list[str]) -> None:
        self.world = world
        self._policy = policy
        self._rules = rules
        self._events = events
        self.now_ms = 0
        self.broken: list[str] = []
        self.checker = NoSilentLoss(lambda leader_epoch, offset: world.before.get((leader_epoch, offset)))
        self.checker.on_sought(READER, 0)
        self.start()

    def start(self) -> None:
        """A new session, without a position."""
        self.resets: list[PositionReset] = []
        self.reader = self._rules.reader(
            P0, self._policy, 1 << 20, lambda failures: 1, self.resets.append,
            begins_at=lambda: BEGINS_AT, rule=self._rules.validation,
        )  # fmt: skip
        self.subscription = Subscription(self._policy, 1 << 20, lambda failures: 1)
        self.subscription.readers[P0] = self.reader

    def seek(self, position: Position) -> None:
        """Go on there: because of what it was told, or of its own accord."""
        self.reader.seek(*position)
        book = self.checker.books[READER]
        if book.next_offset is None and book.records:
            self.checker.on_told(READER, position.offset, position.offset)
        else:
            self.checker.on_sought(READER, position.offset)
            if position.offset - 1 in book.records:
                self.checker.books[READER].records = {
                    offset: record for offset, record in book.records.items() if offset < position.offset
                }

    def resume(self, position: Position) -> None:
        """A new session goes on with what the last one had."""
        self.start()
        self.reader.seek(*position)

    def learn(self) -> None:
        """The metadata comes, and what it means is found out."""
        topic_id = self.world.topic_id if self._rules.knows_topic_ids else None
        self.reader.on_metadata(topic_id, self.world.view(), self.now_ms)
        self._hear()
        while isinstance(need := self.reader.need(self.now_ms), Validate):
            self._ask(need)

    def fetch(self) -> bool:
        """Ask once for what comes next, and deliver nothing. Returns whether there was anything to ask for."""
        if self.reader.leader_id is None:
            self.learn()
        need = self.reader.need(self.now_ms)
        if isinstance(need, FetchFrom):
            self._ask(need)
        return isinstance(need, FetchFrom)

    def read(self, count: int) -> None:
        """Whatever it takes to be given so many records, or all that there are."""
        self.learn()
        for _ in range(ROUNDS_MAX):
            given = self.subscription.take_records(count)
            for record in given:
                self.give(record)
            count -= len(given)
            self.now_ms += ROUND_MS
            need = self.reader.need(self.now_ms)
            at_end = isinstance(need, FetchFrom) and need.offset == self.world.led.end_offset
            if not count or (at_end and not self.reader.held) or self.reader.error is not None:
                break
            if isinstance(need, NeedsMetadata):
                self.learn()
            elif need is not None and not at_end:
                self._ask(need)
        book = self.checker.books[READER]
        if book.next_offset == self.world.led.end_offset:
            self.broken += map(str, self.checker.check_settled(0, self.world.led.records))

    def give(self, record: ConsumerRecord) -> None:
        assert record.leader_epoch is not None
        given = (LeaderEpoch(record.leader_epoch), (record.value or b"").decode())
        self.broken += map(str, self.checker.on_given(READER, record.offset, given))

    def _ask(self, need: LookUp | Validate | FetchFrom) -> None:
        world, reader, generation = self.world, self.reader, self.reader.generation
        reader.in_flight = generation
        log = world.led
        if reader.leader_epoch != world.leader_epoch:
            self._events.append(f"{world.leader} refuses the reader: FENCED_LEADER_EPOCH")
            reader.on_refused(generation, refusal(Code.FENCED_LEADER_EPOCH), self.now_ms)
        elif isinstance(need, FetchFrom) and reader.topic_id not in (None, world.topic_id):
            reader.on_refused(generation, refusal(Code.UNKNOWN_TOPIC_ID), self.now_ms)
        elif isinstance(need, Validate):
            answer = log.lineage.end_offset_for(need.leader_epoch, log.end_offset)
            says = "it cannot tell" if answer is None else str(answer[1])
            if answer is not None and answer[0] != need.leader_epoch:
                says = f"it knows {answer[0]} before that, and its end: {says}"
            self._events.append(f"{READER} asks {world.leader} where epoch {need.leader_epoch} ends: {says}")
            reader.on_epoch_end(generation, need.leader_epoch, answer, self.now_ms)
        elif isinstance(need, LookUp):
            # Records are as old as their offsets.
            offset = {EARLIEST: Offset(0), LATEST: log.end_offset}.get(need.timestamp, Offset(need.timestamp))
            found = offset if need.timestamp < log.end_offset else None
            reader.on_looked_up(generation, found, world.leader_epoch, self.now_ms)
            if reader.offset is not None:
                self._events.append(f"{READER} begins at {reader.offset}")
                book = self.checker.books[READER]
                if book.next_offset is None:
                    self.checker.on_told(READER, None, offset)
        elif need.offset > log.end_offset:
            self._events.append(f"{world.leader} refuses the reader: OFFSET_OUT_OF_RANGE")
            reader.on_out_of_range(generation)
        else:
            data = b""
            for at, (epoch, value) in list(enumerate(log.records))[need.offset :][:FETCH_RECORDS_MAX]:
                builder = BatchBuilder()
                builder.append(at, None, str(value).encode())
                data += builder.build(at, epoch)
            end, start = log.end_offset, Offset(0)
            fetched = read_fetched(
                data, need.offset, aborted=None, check_crcs=True,
                high_watermark=end, last_stable_offset=end, log_start_offset=start,
            )  # fmt: skip
            reader.on_fetched(generation, fetched)
        self._hear()

    def _hear(self) -> None:
        """What it is told, it undoes."""
        error, position = self.reader.error, self.reader.position
        told: list[tuple[Position, int | None, int | None, str]] = []
        if isinstance(error, LogTruncatedError | OffsetOutOfRangeError) and position is not None:
            divergent_offset = error.divergent_offset if isinstance(error, LogTruncatedError) else None
            told = [(position, divergent_offset, None, type(error).__name__)]
        told += [(one.position, one.divergent_offset, one.new_offset, one.reason.name) for one in self.resets]
        self.resets.clear()
        for position, divergent_offset, new_offset, why in told:
            book = self.checker.books[READER]
            if new_offset is None and book.next_offset is None:
                continue  # told already
            where = "somewhere" if divergent_offset is None else f"from {divergent_offset} on"
            self._events.append(f"{READER} is told: what it had {where} is gone; it stood at {position.offset} ({why})")
            if book.records and self.is_intact(book.records):
                what = f"{READER} was told of a loss, and {self.world.leader} has all of it"
                self.broken.append(f"OnlyLossIsTold: {what}")
            self.undo(divergent_offset, new_offset, is_recreated="recreated" in why.lower())

    def is_intact(self, records: Mapping[int, Record]) -> bool:
        """Whether the leader has all of these where they were."""
        log = self.world.led.records
        return all(log[offset : offset + 1] == [record] for offset, record in records.items())

    def undo(self, divergent_offset: int | None, new_offset: int | None, *, is_recreated: bool) -> None:
        """What it does about a loss that it is told of."""
        self.checker.on_told(READER, divergent_offset, new_offset)

    def line(self) -> str:
        has = [text_of(record) for _, record in sorted(self.checker.books[READER].records.items())]
        position = self.reader.position
        at = "stopped" if self.reader.error is not None else f"at={'?' if position is None else position.offset}"
        return f"reader {at}  has [{' '.join(has)}]"


class WritingClient:
    """A producer with acks=1, and what it was told."""

    def __init__(self, world: PartitionWorld, rules: ReaderRules, events: list[str]) -> None:
        self._world = world
        self._events = events
        self.acknowledged: dict[int, Record] = {}
        self.is_told = False
        self._cache = MetadataCache()
        settings = SenderSettings(
            idempotent=rules.is_idempotent, acks=1, in_flight_requests_max=1,
            request_size_bytes_max=1 << 20, delivery_timeout_ms=1_000,
        )  # fmt: skip
        self._accumulator = Accumulator(batch_size_bytes=1 << 20, buffer_size_bytes=1 << 20, linger_ms=0)
        self._sender = Sender(self._accumulator, self._cache, settings, lambda failures: 1)

    def produce(self, value: str) -> None:
        view = self._world.view()
        assert view.leader_id is not None
        self._cache.brokers[view.leader_id] = CachedBroker(view.leader_id, "h", 1)
        self._cache.topics["t"] = TopicView("t", self._world.topic_id, False, {PartitionIndex(0): view})
        batch = self._accumulator.open_batch(self._sender.queue(P0), 0, None)
        batch.timestamps, batch.keys, batch.values, batch.headers = [0], [None], [value.encode()], [()]
        self._accumulator.close_batch(self._sender.queue(P0))
        sends = self._sends()
        if self._sender.needs_producer_id:
            self._sender.on_producer_id(100, 0)
            sends = self._sends()
        assert sends == [batch]
        try:
            offset = self._append(value, encode_batch(batch, "none"))
        except KafkaError as error:
            self._events.append(f"{self._world.leader} refuses the producer: {error.code.name}")
            answered = BatchAnswer(error.code, str(error))
        else:
            self.acknowledged[offset] = (self._world.leader_epoch, value)
            answered = BatchAnswer(Code.NONE, base_offset=offset)
        self._sender.on_request_ended(view.leader_id)
        self._sender.on_answer(batch, answered, 0)
        for loss in self._sender.take_losses():
            self.is_told = True
            self._events.append(f"the producer is told that records up to {loss.last_offset} may be lost")

    def _sends(self) -> list[PendingBatch]:
        sends = self._sender.take_sends(0, flushing=True, ready=lambda broker_id: True)
        return [batch for send in sends for batch in send.batches]

    def _append(self, value: str, data: bytes) -> Offset:
        header = read_header(data)
        if header.producer_id < 0:
            return self._world.append(value)
        self._world.led.producers().check(header)
        return self._world.append(value, header)

    @property
    def broken(self) -> list[str]:
        """What is gone, though the leader has taken a later record of it."""
        log = self._world.led.records
        lost = [offset for offset, record in self.acknowledged.items() if log[offset : offset + 1] != [record]]
        if self.is_told or max(self.acknowledged, default=-1) in lost:
            return []
        return [
            f"NoSilentLoss: {text_of(self.acknowledged[offset])} offset={offset} was acknowledged, and is lost; the "
            "producer has written on, and was told of nothing"
            for offset in lost
        ]
