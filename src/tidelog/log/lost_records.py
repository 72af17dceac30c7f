"""What is cut off a log after an unclean election: its bytes are kept in a file, and a note says what it was.

```
 orders-3/00000000000000000030-17.lost    the batches that were cut off at offset 30, for the loss of leader epoch 17
 orders-3/00000000000000000030-17.loss    what they were: until the account of losses has it
```

Both are synced before the log is cut, so what was cut off is known after a crash. A file with batches is removed with
its partition, and when the broker keeps more than it may. They move with the log to another log directory.

Kafka: none; there they are gone.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.base.errors import CorruptLogError, DiskError, MalformedBatchError, MalformedMessageError, TidelogError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId
from tidelog.base.losses import PRODUCERS_MAX, LossId, ReplicaFate, ReplicaLoss
from tidelog.base.ports import Disk, File
from tidelog.log.log import Log
from tidelog.records import BATCH_OVERHEAD, read_header, split_whole_batches
from tidelog.wire import decode, encode
from tidelog.wire.messages.api_10002_tell_losses import LossToTell, TellLossesRequest
from tidelog.wire.messages.losses import replica_entry_of, replica_loss_of

logger = logging.getLogger("tidelog.log.lost_records")

LOST_SUFFIX = ".lost"
NOTE_SUFFIX = ".loss"
COPYING_SUFFIX = ".tmp"
COPY_SIZE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LostTail:
    """What is about to be cut off a log.

    Attributes:
        loss_id: the entry of the account that it belongs to.
        replica: what is known of it before its batches are looked at.
        kept_size_bytes_max: so much of it may be kept.
    """

    loss_id: LossId
    replica: ReplicaLoss
    kept_size_bytes_max: int


def keep_lost_tail(disk: Disk, log: Log, tail: LostTail) -> ReplicaLoss:
    """Keep the batches, and a note of them. To be called before the log is cut, on the thread that has it for itself.

    The note is small: where there is no room for the batches there may be for the note alone. Where there is none for
    that either, the log is cut all the same, and the note lives in memory.

    Returns:
        What is known of them now.
    """
    if tail.replica.cut_from is None:
        return tail.replica  # nothing of it was compared
    if tail.replica.end_offset is not None and tail.replica.end_offset > log.log_end_offset:
        return _kept_before(disk, log, tail)
    for kept in (_copied, _uncopied):
        try:
            replica = kept(disk, log, tail)
            _write_note(disk, log.directory, tail.loss_id, replica)
        except DiskError as error:
            refused = error
            continue
        return replica
    logger.warning("%s: what is cut off is not noted, and is not known after a crash: %s", log.topic_partition, refused)
    return tail.replica


def _kept_before(disk: Disk, log: Log, tail: LostTail) -> ReplicaLoss:
    """Of a truncation that is tried again: the log was cut, and the disk refused what comes after that."""
    loss_id, replica = tail.loss_id, tail.replica
    try:
        notes = read_notes(
            disk, log.directory, topic_id=loss_id.topic_id, partition=loss_id.partition, broker_id=replica.broker_id
        )
    except DiskError:
        return replica
    return next((row for noted, row in notes if noted == loss_id and row.end_offset == replica.end_offset), replica)


def _uncopied(disk: Disk, log: Log, tail: LostTail) -> ReplicaLoss:
    assert tail.replica.cut_from is not None
    path = _path(log.directory, tail.replica.cut_from, tail.loss_id.leader_epoch, LOST_SUFFIX)
    if disk.exists(path):
        disk.remove(path)
    return tail.replica


def _copied(disk: Disk, log: Log, tail: LostTail) -> ReplicaLoss:
    start, end = tail.replica.cut_from, tail.replica.end_offset
    assert start is not None
    assert end is not None
    producers: dict[int, None] = {}
    epochs: list[int] = []
    timestamps: list[int] = []
    path = _path(log.directory, start, tail.loss_id.leader_epoch, LOST_SUFFIX)
    file = disk.open(path, create=True)
    kept, cut_from = 0, int(start)
    is_full = False
    try:
        file.truncate(0)
        offset: int = start
        while offset < end:
            piece = log.segments.read(offset, size_bytes_max=COPY_SIZE_BYTES, end_offset=end, at_least_one=True)
            data = piece.read(0, len(piece))
            before = offset
            for _, header in split_whole_batches(data):
                cut_from = min(cut_from, header.base_offset)  # a batch goes as a whole
                offset = header.next_offset
                epochs.append(header.leader_epoch)
                timestamps += (header.base_timestamp, header.max_timestamp)
                if header.producer_id >= 0:
                    producers[header.producer_id] = None
            if offset == before:
                break  # no whole batch: what cannot be read cannot be kept
            is_full = is_full or kept + len(data) > tail.kept_size_bytes_max
            if not is_full:
                file.append(data)
                kept += len(data)
        file.sync()
    except DiskError:
        file.close()
        disk.remove(path)
        raise
    except TidelogError:
        file.sync()  # what cannot be read cannot be kept
    finally:
        file.close()
    if not kept:
        disk.remove(path)
    known = tail.replica
    times = [each for each in timestamps if each >= 0]
    return replace(
        known,
        cut_from=Offset(cut_from),
        first_epoch=LeaderEpoch(epochs[0]) if epochs else known.first_epoch,
        last_epoch=LeaderEpoch(epochs[-1]) if epochs else known.last_epoch,
        first_timestamp_ms=min(times, default=None),
        last_timestamp_ms=max(times, default=None),
        producer_ids=tuple(ProducerId(each) for each in list(producers)[:PRODUCERS_MAX]),
        producer_count=len(producers),
        kept_size_bytes=kept,
    )


def _write_note(disk: Disk, directory: str, loss_id: LossId, replica: ReplicaLoss) -> None:
    assert replica.cut_from is not None
    row = LossToTell(loss_id.topic_id, loss_id.partition, loss_id.leader_epoch, replica_entry_of(replica))
    data = encode(TellLossesRequest(broker_id=replica.broker_id, losses=[row]), 0)
    disk.write_atomically(_path(directory, replica.cut_from, loss_id.leader_epoch, NOTE_SUFFIX), data)


def read_notes(
    disk: Disk, directory: str, *, topic_id: TopicId, partition: PartitionIndex, broker_id: BrokerId
) -> list[tuple[LossId, ReplicaLoss]]:
    """What was noted in a log's directory and not removed since. Of a note that is damaged its name tells the offset.

    Raises:
        DiskError: the directory cannot be read.
    """
    notes = []
    for name in sorted(disk.list(directory)):
        if name.endswith(NOTE_SUFFIX):
            try:
                request = decode(TellLossesRequest, disk.read_bytes(f"{directory}/{name}"), 0)
            except MalformedMessageError:
                start, _, epoch = name.removesuffix(NOTE_SUFFIX).partition("-")
                if start.isdecimal() and epoch.isdecimal():
                    loss_id = LossId(topic_id, partition, LeaderEpoch(int(epoch)))
                    notes.append((loss_id, ReplicaLoss(broker_id, ReplicaFate.CUT, cut_from=Offset(int(start)))))
                continue
            for one in request.losses:
                loss_id = LossId(
                    TopicId(one.topic_id), PartitionIndex(one.partition_index), LeaderEpoch(one.leader_epoch)
                )
                notes.append((loss_id, replica_loss_of(one.replica)))
    return notes


def what_is_gone(log: Log, noted: ReplicaLoss) -> ReplicaLoss | None:
    """What of a note holds: a process that ended between its note and its cut has kept the records.

    A log that has the last of them has all. One that has the first lost the rest by itself, as by a loss of power,
    unless it has others in their place, which a later leader had.

    Returns:
        The note without what is there; None where all is.
    """
    start, end = noted.cut_from, noted.end_offset
    if start is None or end is None or noted.first_epoch is None or noted.last_epoch is None:
        return noted
    if not _has(log, start, noted.first_epoch):
        return noted
    if _has(log, Offset(end - 1), noted.last_epoch):
        return None
    return replace(noted, cut_from=log.log_end_offset) if log.log_end_offset < end else noted


def _has(log: Log, offset: Offset, leader_epoch: LeaderEpoch) -> bool:
    is_within = log.log_start_offset <= offset < log.log_end_offset
    return is_within and log.lineage.epoch_at(offset) == leader_epoch


def remove_notes(disk: Disk, directory: str, leader_epoch: LeaderEpoch, *, from_offset: Offset) -> None:
    """The account has what was noted for a loss, from an offset on. Raises DiskError."""
    for name in _names(disk, directory, leader_epoch, NOTE_SUFFIX):
        if _offset_of(name) >= from_offset:  # what is below was cut off since, and is to be told yet
            disk.remove(f"{directory}/{name}")


def remove_uncut(disk: Disk, directory: str, leader_epoch: LeaderEpoch, offset: Offset) -> None:
    """What was noted at an offset was not cut off: remove the note, and the copy. Raises DiskError."""
    for suffix in (NOTE_SUFFIX, LOST_SUFFIX):
        for name in _names(disk, directory, leader_epoch, suffix):
            if _offset_of(name) == offset:
                disk.remove(f"{directory}/{name}")


def kept_files(disk: Disk, directory: str, leader_epoch: LeaderEpoch) -> list[str]:
    """The files with what was cut off for a loss, by offset. Raises DiskError."""
    return [f"{directory}/{name}" for name in _names(disk, directory, leader_epoch, LOST_SUFFIX)]


def kept_size_bytes(disk: Disk, directory: str, leader_epoch: LeaderEpoch) -> int:
    """How much is kept of what was cut off for a loss. Raises DiskError."""
    return sum(_size_of(disk, path) for path in kept_files(disk, directory, leader_epoch))


def copy_kept(disk: Disk, source: str, target: str) -> int:
    """Have the directory of a copy of a log hold what that of the log does, of lost records. To be called on a thread.

    A file that is there already is not copied again: none changes. What the disk of the log refuses is left out.

    Returns:
        How many bytes were copied.

    Raises:
        DiskError: the disk of the copy refused, or no file can be opened.
    """
    copied = 0
    wanted = [name for name in disk.list(source) if name.endswith((LOST_SUFFIX, NOTE_SUFFIX))]
    for name in disk.list(target):
        if name.removesuffix(COPYING_SUFFIX).endswith((LOST_SUFFIX, NOTE_SUFFIX)) and name not in wanted:
            disk.remove(f"{target}/{name}")
    for name in wanted:
        try:
            copied += _copy(disk, f"{source}/{name}", f"{target}/{name}")
        except DiskError as error:
            if not error.path.startswith(f"{source}/") or error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            logger.warning("what is kept of lost records does not move with its log: %s", error)
    if copied:
        disk.sync_dir(target)
    return copied


def _copy(disk: Disk, source: str, target: str) -> int:
    if not disk.exists(source):
        return 0  # the account has what the note said, or it is kept no more
    file = disk.open(source)
    try:
        size_bytes = file.size()
        if disk.exists(target) and _size_of(disk, target) == size_bytes:
            return 0
        copy = disk.open(f"{target}{COPYING_SUFFIX}", create=True)
        try:
            copy.truncate(0)
            for position in range(0, size_bytes, COPY_SIZE_BYTES):
                copy.append(file.read_at(position, COPY_SIZE_BYTES))
            copy.sync()
        finally:
            copy.close()
    finally:
        file.close()
    disk.rename(f"{target}{COPYING_SUFFIX}", target)
    return size_bytes


def _size_of(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


class KeptPage(NamedTuple):
    """Some of what is kept of a loss.

    Attributes:
        data: whole batches; empty at the end.
        size_bytes: of all that is kept of it.
    """

    data: bytes
    size_bytes: int


def read_kept(
    disk: Disk, directory: str, leader_epoch: LeaderEpoch, position: int, size_bytes_max: int
) -> KeptPage | None:
    """A page of what was cut off for a loss: its files one after the other, by offset. To be called on a thread.

    Args:
        position: where a batch starts, in bytes.
        size_bytes_max: of the page, unless its first batch alone is larger.

    Returns:
        None where nothing is kept.

    Raises:
        CorruptLogError: no batch starts there, or it is damaged.
        DiskError: it cannot be read.
    """
    paths = kept_files(disk, directory, leader_epoch)
    data, size_bytes = b"", 0
    for path in paths:
        file = disk.open(path)
        try:
            start, size = position - size_bytes, file.size()
            size_bytes += size
            if not data and 0 <= start < size:
                data = _whole_batches(file, start, size_bytes_max)
        finally:
            file.close()
    return KeptPage(data, size_bytes) if paths else None


def _whole_batches(file: File, start: int, size_bytes_max: int) -> bytes:
    size = size_bytes_max
    for _ in range(2):
        data = file.read_at(start, size)
        try:
            batches = split_whole_batches(data)
            if batches:
                at, last = batches[-1]
                return data[: at + last.size_bytes]
            size = max(size, read_header(file.read_at(start, BATCH_OVERHEAD)).size_bytes)  # one that is larger
        except MalformedBatchError as error:
            raise CorruptLogError(f"{file.path}: at byte {start}: {error}") from None
    raise CorruptLogError(f"{file.path}: the batch at byte {start} is cut short")


def _names(disk: Disk, directory: str, leader_epoch: LeaderEpoch, suffix: str) -> list[str]:
    ending = f"-{leader_epoch}{suffix}"
    return sorted(name for name in disk.list(directory) if name.endswith(ending))


def _offset_of(name: str) -> int:
    return int(name.partition("-")[0])


def _path(directory: str, start: Offset, leader_epoch: LeaderEpoch, suffix: str) -> str:
    return f"{directory}/{start:020d}-{leader_epoch}{suffix}"
