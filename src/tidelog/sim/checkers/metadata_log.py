"""CommittedMetadataStays, ImagesAreEqual, MetadataIsLinear: the metadata is one history, and everybody sees that one.

What is committed is taken from the logs of the nodes themselves, as far as any of them says that it is; what it comes
to is replayed here once more. So no node is believed about what the metadata says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import NamedTuple

from tidelog.base.ids import BrokerId, Offset, TopicId
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
)
from tidelog.sim.checkers.quorum import QuorumView
from tidelog.sim.checkers.views import Broken, Record, text_of


class BegunWrite(NamedTuple):
    """A topic is to be made or deleted.

    Attributes:
        operation: `create` or `delete`.
        since: what was committed when it was asked for, exclusive: it comes after that.
        topic_id: of the topic that is to go; None where one is to be made.
    """

    operation: str
    name: str
    since: int
    topic_id: TopicId | None


class CheckedMetadataLog:
    """See the module.

    Attributes:
        committed: all that any node ever said is committed, from offset 0 on.
    """

    stays = "CommittedMetadataStays"
    images_equal = "ImagesAreEqual"
    is_linear = "MetadataIsLinear"

    def __init__(self) -> None:
        self.committed: list[Record] = []
        self._compared: dict[BrokerId, int] = {}  # up to which offset a node's log is known to be as committed
        self._image_offsets: list[int] = [-1]
        self._images: list[MetadataImage] = [MetadataImage.empty()]
        self._counting: list[tuple[int, object]] = []  # records, by the offset from which on each counts
        self._in_transaction: list[object] | None = None

    # What is committed.

    @property
    def end_offset(self) -> Offset:
        """Of what is committed, exclusive."""
        return Offset(len(self.committed))

    @property
    def latest(self) -> MetadataImage:
        """What all of it comes to."""
        return self.image_at(len(self.committed) - 1)

    def image_at(self, last_offset: int) -> MetadataImage:
        """What it comes to up to an offset, inclusive."""
        index = bisect_right(self._image_offsets, last_offset) - 1
        known = self._image_offsets[index]
        if known == last_offset:
            return self._images[index]
        delta = MetadataDelta(self._images[index])
        first = bisect_right(self._counting, known, key=itemgetter(0))
        for offset, record in self._counting[first:]:
            if offset > last_offset:
                break
            delta.replay(record)
        image = delta.apply(Offset(last_offset))
        self._image_offsets.insert(index + 1, last_offset)
        self._images.insert(index + 1, image)
        return image

    # What nodes say.

    def on_changed(self, node: BrokerId, from_offset: int) -> None:
        """The log of a node is another one from there on, or its process is: look at it again."""
        self._compared[node] = min(from_offset, self._compared.get(node, 0))

    def check_log(self, view: QuorumView) -> Iterator[Broken]:
        """Below its high watermark a node has what is committed. Whoever is the first to say so commits."""
        if view.high_watermark is None:
            return
        offset = max(self._compared.get(view.node_id, 0), view.log_start_offset)
        if offset > len(self.committed):
            yield Broken(self.stays, f"{view.called} forgot offset={len(self.committed)} before anybody committed it")
            return
        while offset < view.high_watermark:
            record = view.at(offset)
            if record is None:
                yield Broken(self.stays, f"{view.called} committed offset={offset}, and has no record there")
                break
            if offset == len(self.committed):
                self.committed.append(record)
                self._count(offset, record)
            elif self.committed[offset] != record:
                has = f"{text_of(record)} at offset={offset}, where {text_of(self.committed[offset])} was committed"
                yield Broken(self.stays, f"{view.called} committed {has}")
                break
            offset += 1
        self._compared[view.node_id] = offset

    def _count(self, offset: int, record: Record) -> None:
        """One more record is committed: it counts at once, or with the end of the transaction that it is in."""
        if not isinstance(record[1], bytes):  # a control record
            return
        decoded = decode_record(record[1])
        match decoded:
            case BeginTransactionRecord():
                self._in_transaction = []
            case EndTransactionRecord():
                self._counting += ((offset, each) for each in self._in_transaction or ())
                self._in_transaction = None
            case AbortTransactionRecord():
                self._in_transaction = None
            case _ if self._in_transaction is not None:
                self._in_transaction.append(decoded)
            case _:
                self._counting.append((offset, decoded))

    def check_image(self, node: BrokerId, image: MetadataImage) -> Iterator[Broken]:
        """What a broker answers from is what was committed up to where it says that it has come."""
        last_offset = image.last_offset
        if last_offset is None:
            return
        if last_offset >= len(self.committed):
            yield Broken(self.images_equal, f"broker {node} publishes offset {last_offset}, which nobody committed")
        elif image != self.image_at(last_offset):
            what = ", ".join(_differences(image, self.image_at(last_offset)))
            yield Broken(self.images_equal, f"broker {node} at offset {last_offset} has other {what}")

    # What administrators are told.

    def begin(self, operation: str, name: str) -> BegunWrite:
        """Somebody asks for it."""
        topic = self.latest.topic(name) if operation == "delete" else None
        return BegunWrite(operation, name, len(self.committed), None if topic is None else topic.topic_id)

    def check_done(self, begun: BegunWrite) -> Iterator[Broken]:
        """It was told that this is done: so it is committed, and after all that was done before it was asked for."""
        for offset, record in self._counting:
            if offset < begun.since:
                continue
            if begun.operation == "create":
                is_it = isinstance(record, TopicRecord) and record.name == begun.name
            else:
                is_it = isinstance(record, RemoveTopicRecord) and record.topic_id == begun.topic_id
            if is_it:
                return
        committed = f"from offset {begun.since} to {len(self.committed)} nothing of it was committed"
        yield Broken(self.is_linear, f"to {begun.operation} {begun.name} was told to be done: {committed}")


def _differences(one: MetadataImage, other: MetadataImage) -> Sequence[str]:
    names = (each.name for each in fields(MetadataImage))
    return [name for name in names if getattr(one, name) != getattr(other, name)]
