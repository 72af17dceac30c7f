"""A recorder keeps what clients were told, and holds it against the logs of one node or of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from tidelog.base.ids import LeaderEpoch, TopicPartition
from tidelog.client.core.values import ConsumerRecord, PositionReset
from tidelog.sim.checkers.findings import Findings
from tidelog.sim.checkers.logs import EpochOffsetUnique
from tidelog.sim.checkers.readers import NoSilentLoss, ReaderBook
from tidelog.sim.checkers.views import Broken, Record, text_of


class WatchedPartition(ABC):
    """One partition that clients write to and read.

    Attributes:
        unique: knows what was written by which leader epoch at which offset.
        readers: what each consumer was given, and told to be gone.
        is_rotten: a bit of its records was flipped, and nobody can promise them any more.
    """

    unique: EpochOffsetUnique
    readers: NoSilentLoss
    is_rotten: bool

    @abstractmethod
    def to_be_read(self) -> Sequence[Record] | None:
        """What a consumer that starts at offset 0 has to be given in the end; None while nobody can say."""


class ClientRecorder(Findings, ABC):
    """See the module.

    Attributes:
        losses_reported: to readers.
        may_be_deleted: topics that somebody asked to be gone.
        keeps_all: whether nothing was lost yet that nobody promised to keep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.losses_reported = 0
        self.may_be_deleted: set[str] = set()
        self.keeps_all = True

    @property
    @abstractmethod
    def watched(self) -> Mapping[TopicPartition, WatchedPartition]:
        """All of them."""

    @abstractmethod
    def watch(self, partition: TopicPartition) -> None:
        """Look at a partition from now on; its records are never deleted by anybody who may."""

    @abstractmethod
    def on_acknowledged(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A producer was told that a record is there for good."""

    @abstractmethod
    def look(self, partition: TopicPartition) -> None:
        """Take in what the logs of a partition have by now."""

    def is_rotten(self, partition: TopicPartition) -> bool:
        """Whether a bit of it was flipped."""
        known = self.watched.get(partition)
        return known is not None and known.is_rotten

    # What administrators are told.

    def on_asked(self, operation: str, name: str) -> object:
        """One asks for a topic to be made, or deleted. Returns what `on_done` wants to know."""
        return None

    def on_done(self, operation: str, name: str, begun: object) -> None:
        """It was told that this is done."""

    # What readers are told.

    def on_delivered(self, reader: str, partition: TopicPartition, record: ConsumerRecord) -> None:
        """A consumer was given a record."""
        known, offset = self.watched[partition], record.offset
        given = (LeaderEpoch(-1 if record.leader_epoch is None else record.leader_epoch), bytes(record.value or b""))
        written = known.unique.written(given[0], offset)
        if written is None:
            self.look(partition)
            written = known.unique.written(given[0], offset)
        self.expect(
            written == given[1],
            "DeliveredStaysDeliverable",
            lambda: (
                f"{reader} was given {text_of(given)} at offset={offset} of {partition}, where {written!r} was written"
            ),
        )
        self.note_of(partition, NoSilentLoss.name, known.readers.on_given(reader, offset, given))

    def on_reset(self, reader: str, reset: PositionReset) -> None:
        """A consumer was told that records are gone: those that it undoes are none of its any more."""
        self.losses_reported += 1
        readers = self.watched[reset.topic_partition].readers
        readers.on_told(reader, reset.divergent_offset, reset.new_offset)

    def on_sought(self, reader: str, partition: TopicPartition, offset: int) -> None:
        """A consumer goes on somewhere of its own accord."""
        self.watched[partition].readers.on_sought(reader, offset)

    def on_left(self, reader: str) -> None:
        """A consumer reads no more: nothing more is expected of it."""
        for known in self.watched.values():
            known.readers.on_left(reader)

    # What is checked at the end.

    def check_books(self) -> None:
        """All is healed and read to its end: what each consumer has is what the log has."""
        for partition, known in self.watched.items():
            if not known.is_rotten:
                self.look(partition)
                records = known.to_be_read()
                if records is not None:
                    self.note_of(partition, NoSilentLoss.name, known.readers.check_settled(0, records))

    def behind(self, reader: str, partition: TopicPartition) -> str | None:
        """What a reader has still to learn of a partition; None once it has the log's last record, and stands there."""
        known = self.watched[partition]
        if known.is_rotten:
            return None
        book, records = known.readers.books.get(reader, ReaderBook()), known.to_be_read()
        if records is None:
            return f"{reader} reads {partition}, which nobody leads"
        end_offset = len(records)
        if book.next_offset == end_offset and (
            end_offset <= book.begins_at or book.records.get(end_offset - 1) == records[-1]
        ):
            return None
        last = f", and has {text_of(book.records.get(end_offset - 1))} as the last" if end_offset else ""
        return f"{reader} expects {book.next_offset} of {end_offset} in {partition}{last}"

    def note_of(self, partition: TopicPartition, invariant: str, found: Iterable[Broken]) -> None:
        """As `note`, of one invariant of one partition."""
        self.note([invariant], (broken._replace(what=f"{partition}: {broken.what}") for broken in found))
