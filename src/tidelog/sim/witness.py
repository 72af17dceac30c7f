"""Who sees one node and its clients from outside, and says what must hold and does not.

What was written is read from the disk, what was acknowledged and delivered is what clients were told; after every step
in which any of it changed, what changed is checked. The invariants bear the names that they have everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.client.core.values import ConsumerRecord, PositionReset
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.sim.checkers.findings import Findings
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.in_sync import LeaderInIsr
from tidelog.sim.checkers.logs import EpochOffsetUnique, LineageTellsTheLog, LogsArePrefixes
from tidelog.sim.checkers.readers import NoSilentLoss, ReaderBook
from tidelog.sim.checkers.views import Broken, PartitionView, ReplicaView, text_of
from tidelog.sim.stored import StoredRecords

if TYPE_CHECKING:
    from tidelog.sim.node import SimulatedNode

DELETED_SUFFIX = "-delete"
NODE = BrokerId(1)
ALONE = PartitionImage((NODE,), (NODE,), NODE, LeaderEpoch(0), PartitionEpoch(0))
"""What checkers of a log are told of its partition, whatever its epochs: they do not look."""


class PartitionWitness:
    """What is known of one partition."""

    def __init__(self, stored: StoredRecords) -> None:
        self.stored = stored
        self.acknowledged: dict[int, bytes] = {}
        self.unchecked: list[int] = []  # acknowledged while nobody could look at the log
        self.excused: set[object] = set()
        self.unique = EpochOffsetUnique()
        self.prefixes = LogsArePrefixes()
        self.lineage = LineageTellsTheLog()
        self.readers = NoSilentLoss(self.prefixes.before)
        self.is_rotten = False
        self.is_touched = True


class Witness(Findings):
    """See the module.

    Args:
        node: the one there is.
        syncs_each: whether the node syncs each record before it acknowledges it: then a loss of power takes none.

    Attributes:
        losses_reported: to readers.
        may_be_deleted: topics that somebody asked to be gone.
        keeps_all: whether nothing was lost yet that nobody promised to keep.
    """

    def __init__(self, node: SimulatedNode, *, syncs_each: bool) -> None:
        super().__init__()
        self.losses_reported = 0
        self.may_be_deleted: set[str] = set()
        self.keeps_all = True
        self._node = node
        self._syncs_each = syncs_each
        self._partitions: dict[TopicPartition, PartitionWitness] = {}
        self._is_serving = False
        self._is_touched = False
        self._image: MetadataImage | None = None
        self._tell_others = node.machine.disk.on_change
        node.machine.disk.on_change = self._on_change

    def watch(self, partition: TopicPartition) -> PartitionWitness:
        """Look at a partition from now on; its records are never deleted by anybody who may."""
        if partition not in self._partitions:
            stored = StoredRecords(self._node.machine.disk, f"logs/{partition}")
            self._partitions[partition] = PartitionWitness(stored)
        return self._partitions[partition]

    # What happens to the node.

    def on_serving(self) -> None:
        """It was started, and has recovered what it could: what is still there has to stay from now on."""
        self._is_serving = True
        self._touch_all()
        for topic_partition, known in self._partitions.items():
            if known.excused:
                self._check_records(topic_partition, known)
                records = known.stored.records
                known.excused -= {
                    value
                    for offset, value in known.acknowledged.items()
                    if offset < len(records) and records[offset][1] == value
                }

    def before_end(self, *, without_power: bool) -> None:
        """Its process is about to be gone: until it serves again nothing is expected of its files."""
        self._is_serving = False
        if without_power and not self._syncs_each:
            self.keeps_all = False
            for topic_partition, known in self._partitions.items():
                self._check_records(topic_partition, known)
                known.excused.update(record[1] for record in known.stored.records)

    def on_rotten(self, partition: TopicPartition) -> None:
        """A bit of its records was flipped: nobody can promise them any more, only that no wrong ones are delivered."""
        self._partitions[partition].is_rotten = True

    def is_rotten(self, partition: TopicPartition) -> bool:
        """Whether `on_rotten` was told of it."""
        known = self._partitions.get(partition)
        return known is not None and known.is_rotten

    # What clients are told.

    def on_acknowledged(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A producer was told that a record is there."""
        known = self._partitions[partition]
        known.acknowledged[offset] = value
        if self._is_serving and not known.is_touched:
            self._check_acknowledged(partition, known, offset)
        else:
            known.unchecked.append(offset)

    def on_delivered(self, reader: str, partition: TopicPartition, record: ConsumerRecord) -> None:
        """A consumer was given a record."""
        known, offset = self._partitions[partition], record.offset
        given = (LeaderEpoch(-1 if record.leader_epoch is None else record.leader_epoch), bytes(record.value or b""))
        written = known.unique.written(given[0], offset)
        if written is None and known.is_touched:
            self._check_records(partition, known)
            written = known.unique.written(given[0], offset)
        self.expect(
            written == given[1],
            "DeliveredStaysDeliverable",
            lambda: (
                f"{reader} was given {text_of(given)} at offset={offset} of {partition}, where {written!r} was written"
            ),
        )
        self._note(partition, NoSilentLoss.name, known.readers.on_given(reader, offset, given))

    def on_reset(self, reader: str, reset: PositionReset) -> None:
        """A consumer was told that records are gone: those that it undoes are none of its any more."""
        self.losses_reported += 1
        readers = self._partitions[reset.topic_partition].readers
        readers.on_told(reader, reset.divergent_offset, reset.new_offset)

    def on_sought(self, reader: str, partition: TopicPartition, offset: int) -> None:
        """A consumer goes on somewhere of its own accord."""
        self._partitions[partition].readers.on_sought(reader, offset)

    def on_left(self, reader: str) -> None:
        """A consumer reads no more: nothing more is expected of it."""
        for known in self._partitions.values():
            known.readers.on_left(reader)

    # What is checked.

    def after_step(self) -> None:
        if self._is_serving:
            if self._is_touched:
                self._is_touched = False
                for partition, known in self._partitions.items():
                    if known.is_touched:
                        self._check_records(partition, known)
            node = self._node.node
            if node is not None and node.broker.image is not self._image:
                self._image = node.broker.image
                self._check_leaders(self._image)

    def check_books(self) -> None:
        """All is healed and read to its end: what each consumer has is what the log has."""
        for partition, known in self._partitions.items():
            if not known.is_rotten:
                self._check_records(partition, known)
                self._note(partition, NoSilentLoss.name, known.readers.check_settled(0, known.stored.records))

    def behind(self, reader: str, partition: TopicPartition) -> str | None:
        """What a reader has still to learn of a partition; None once it has the log's last record, and stands there."""
        known = self._partitions[partition]
        book, records = known.readers.books.get(reader, ReaderBook()), known.stored.records
        end_offset = len(records)
        if known.is_rotten or (
            book.next_offset == end_offset
            and (end_offset <= book.begins_at or book.records.get(end_offset - 1) == records[-1])
        ):
            return None
        last = f", and has {text_of(book.records.get(end_offset - 1))} as the last" if end_offset else ""
        return f"{reader} expects {book.next_offset} of {end_offset} in {partition}{last}"

    def _on_change(self, operation: str, path: str, data: Buffer) -> None:
        for known in self._partitions.values():
            if known.stored.on_change(operation, path):
                known.is_touched = self._is_touched = True
        if operation.startswith("rename") and operation.endswith(DELETED_SUFFIX):
            topic = path.rpartition("/")[2].rpartition("-")[0]
            self.expect(topic in self.may_be_deleted, "StoppedMeansStopped", f"{path} goes, which nobody asked for")
        self._tell_others(operation, path, data)

    def _touch_all(self) -> None:
        self._is_touched = True
        for partition in self._partitions.values():
            partition.is_touched = True
            partition.stored.forget()

    def _check_records(self, partition: TopicPartition, known: PartitionWitness) -> None:
        """What is new continues the log; what is gone was promised to nobody."""
        known.is_touched = False
        changed_from, gone = known.stored.read()
        view = PartitionView(ALONE, {NODE: self._replica(partition, known)})
        for checker in (known.unique, known.prefixes, known.lineage):
            self._note(partition, checker.name, checker.check(view, PartitionHistory(), {NODE: changed_from}))
        unchecked, known.unchecked = known.unchecked, []
        if gone:
            unchecked = [offset for offset in known.acknowledged if offset >= changed_from]
        for offset in unchecked:
            self._check_acknowledged(partition, known, offset)

    def _replica(self, partition: TopicPartition, known: PartitionWitness) -> ReplicaView:
        """The records of the disk, and the leader epochs that the node would answer from, if it runs."""
        node = self._node.node
        held = next((one for one in node.broker.partitions if one.topic_partition == partition), None) if node else None
        return ReplicaView(
            NODE,
            is_up=held is not None and not known.is_rotten,
            leads=False,
            leader_epoch=None,
            log_start_offset=Offset(0),
            records=known.stored.records,
            lineage=() if held is None else held.log.lineage.entries,
            high_watermark=Offset(0),
            name="it",
        )

    def _check_acknowledged(self, partition: TopicPartition, known: PartitionWitness, offset: int) -> None:
        value, records = known.acknowledged[offset], known.stored.records
        if known.is_rotten or value in known.excused:
            return
        there = records[offset] if offset < len(records) else None
        self.expect(
            there is not None and there[1] == value,
            "AckedRecordsSurvive",
            lambda: f"{value.decode()} is not at offset={offset} of {partition}, where {text_of(there)} is",
        )

    def _check_leaders(self, image: MetadataImage) -> None:
        for topic in image.topics_by_name.values():
            for number, state in enumerate(topic.partitions):
                found = LeaderInIsr().check(PartitionView(state, {}), PartitionHistory(), {})
                self._note(TopicPartition(topic.name, PartitionIndex(number)), LeaderInIsr.name, found)

    def _note(self, partition: TopicPartition, invariant: str, found: Iterable[Broken]) -> None:
        self.note([invariant], (broken._replace(what=f"{partition}: {broken.what}") for broken in found))
