"""A recorder sees one node and its clients from outside, and says what must hold and does not.

What was written is read from the disk, what was acknowledged and delivered is what clients were told; after every step
in which any of it changed, what changed is checked. The invariants bear the names that they have everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicPartition
from tidelog.base.ports import Buffer
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.in_sync import LeaderInIsr
from tidelog.sim.checkers.logs import EpochOffsetUnique, LineageTellsTheLog, LogsArePrefixes
from tidelog.sim.checkers.readers import NoSilentLoss
from tidelog.sim.checkers.views import PartitionView, Record, ReplicaView, text_of
from tidelog.sim.runs.client_recorder import ClientRecorder, WatchedPartition
from tidelog.sim.runs.stored import StoredRecords

if TYPE_CHECKING:
    from tidelog.sim.node import SimulatedNode

DELETED_SUFFIX = "-delete"
NODE = BrokerId(1)
ALONE = PartitionImage((NODE,), (NODE,), NODE, LeaderEpoch(0), PartitionEpoch(0))
"""What checkers of a log are told of its partition, whatever its epochs: they do not look."""


class PartitionRecorder(WatchedPartition):
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

    def to_be_read(self) -> list[Record]:
        return self.stored.records


class Recorder(ClientRecorder):
    """See the module.

    Args:
        node: the one there is.
        syncs_each: whether the node syncs each record before it acknowledges it: then a loss of power takes none.
    """

    def __init__(self, node: SimulatedNode, *, syncs_each: bool) -> None:
        super().__init__()
        self._node = node
        self._syncs_each = syncs_each
        self._partitions: dict[TopicPartition, PartitionRecorder] = {}
        self._is_serving = False
        self._is_touched = False
        self._image: MetadataImage | None = None
        self._tell_others = node.machine.disk.on_change
        node.machine.disk.on_change = self._on_change

    @property
    def watched(self) -> Mapping[TopicPartition, PartitionRecorder]:
        return self._partitions

    def watch(self, partition: TopicPartition) -> None:
        if partition not in self._partitions:
            stored = StoredRecords(self._node.machine.disk, f"logs/{partition}")
            self._partitions[partition] = PartitionRecorder(stored)

    def look(self, partition: TopicPartition) -> None:
        known = self._partitions[partition]
        if known.is_touched:
            self._check_records(partition, known)

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

    def after_end(self) -> None:
        """It is gone; what its disk has now is looked at when it serves again."""

    def on_rotten(self, partition: TopicPartition) -> None:
        """A bit of its records was flipped: nobody can promise them any more, only that no wrong ones are delivered."""
        self._partitions[partition].is_rotten = True

    # What clients are told.

    def on_acknowledged(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        known = self._partitions[partition]
        known.acknowledged[offset] = value
        if self._is_serving and not known.is_touched:
            self._check_acknowledged(partition, known, offset)
        else:
            known.unchecked.append(offset)

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

    def _check_records(self, partition: TopicPartition, known: PartitionRecorder) -> None:
        """What is new continues the log; what is gone was promised to nobody."""
        known.is_touched = False
        changed_from, gone = known.stored.read()
        view = PartitionView(ALONE, {NODE: self._replica(partition, known)})
        for checker in (known.unique, known.prefixes, known.lineage):
            self.note_of(partition, checker.name, checker.check(view, PartitionHistory(), {NODE: changed_from}))
        unchecked, known.unchecked = known.unchecked, []
        if gone:
            unchecked = [offset for offset in known.acknowledged if offset >= changed_from]
        for offset in unchecked:
            self._check_acknowledged(partition, known, offset)

    def _replica(self, partition: TopicPartition, known: PartitionRecorder) -> ReplicaView:
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

    def _check_acknowledged(self, partition: TopicPartition, known: PartitionRecorder, offset: int) -> None:
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
                self.note_of(TopicPartition(topic.name, PartitionIndex(number)), LeaderInIsr.name, found)
