"""The producer snapshots of one log's directory, and the replay that brings one up to date.

Kafka: `ProducerStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer, Disk
from tidelog.log.files.producer_snapshot import format_snapshot, parse_snapshot
from tidelog.log.files.transaction_index import AbortedEntry
from tidelog.log.producer_state import ProducerState, ProducerStates
from tidelog.log.segment import SNAPSHOT_SUFFIX, Segment, file_name, parse_file_name
from tidelog.records.batch import read_header, read_records
from tidelog.records.control import ControlType, read_control_type, read_end_transaction_marker


class ProducerSnapshots:
    """Snapshot files by their offset."""

    __slots__ = ("_directory", "_disk", "_offsets")

    def __init__(self, disk: Disk, directory: str, names: Iterable[str]) -> None:
        """`names` are all that are in the directory."""
        self._disk = disk
        self._directory = directory
        found = (parse_file_name(name, SNAPSHOT_SUFFIX) for name in names)
        self._offsets = sorted(offset for offset in found if offset is not None)

    def _path(self, offset: Offset) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def take(self, states: ProducerStates) -> None:
        """Write the state as of its end offset. It is not synced: a torn one is found out by its CRC."""
        path = self._path(states.end_offset)
        data = format_snapshot(states)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append(data)
        finally:
            file.close()
        if states.end_offset not in self._offsets:
            self._offsets.append(states.end_offset)
            self._offsets.sort()

    def load_newest(self, end_offset: Offset, *, now_ms: int) -> tuple[ProducerStates, list[str]]:
        """The newest snapshot at or below `end_offset` that can be read; nothing known, as of offset 0, if none can.

        Newer ones, and those that cannot be read, are removed.

        Returns:
            The state as of the snapshot, and what was wrong with those that could not be read.
        """
        faults = []
        self.remove_above(end_offset)
        for offset in reversed(self._offsets.copy()):
            path = self._path(offset)
            try:
                states = parse_snapshot(self._disk.read_bytes(path), path)
            except CorruptLogError as error:
                faults.append(str(error))
                self._remove(offset)
                continue
            return _loaded(states, offset, now_ms), faults
        return ProducerStates(), faults

    def newest_below(self, end_offset: Offset, *, now_ms: int) -> ProducerStates:
        """As `load_newest`, but all files stay: what came before is asked for a second time."""
        for offset in reversed(self._offsets):
            path = self._path(offset)
            if offset <= end_offset:
                try:
                    return _loaded(parse_snapshot(self._disk.read_bytes(path), path), offset, now_ms)
                except CorruptLogError:
                    continue
        return ProducerStates()

    def remove_above(self, end_offset: Offset) -> None:
        """Remove the snapshots beyond, whose records were truncated."""
        for offset in [offset for offset in self._offsets if offset > end_offset]:
            self._remove(offset)

    def remove_below(self, log_start_offset: Offset) -> None:
        """Records below were deleted: no replay can start there any more."""
        for offset in [offset for offset in self._offsets if offset < log_start_offset]:
            self._remove(offset)

    def remove_between(self, start_offset: Offset, end_offset: Offset) -> None:
        """No segment starts there any more, at neither end: those of the segments that are left suffice."""
        for offset in [offset for offset in self._offsets if start_offset < offset < end_offset]:
            self._remove(offset)

    def remove_all(self) -> None:
        """Remove all snapshots: the log starts anew."""
        for offset in self._offsets.copy():
            self._remove(offset)

    def _remove(self, offset: Offset) -> None:
        self._disk.remove(self._path(offset))
        self._offsets.remove(offset)


def _loaded(states: list[ProducerState], offset: Offset, now_ms: int) -> ProducerStates:
    for state in states:
        state.last_active_ms = state.transaction_started_ms = now_ms
    return ProducerStates(states, end_offset=offset)


def replay(
    states: ProducerStates,
    segments: Iterable[Segment],
    *,
    end_offset: Offset,
    now_ms: int,
    on_aborted: Callable[[Segment, AbortedEntry], None] = lambda segment, entry: None,
) -> int:
    """Take in the batches of `segments` from `states.end_offset` on. Returns how many were looked at.

    Args:
        states: as of an offset that lies not below the first of the segments, or below all records.
        segments: in order.
        end_offset: of the last of them, exclusive.
        now_ms: since 1970.
        on_aborted: called with each entry of a transaction index, and the segment that it belongs to.

    Raises:
        CorruptLogError: there is no batch where one should start.
    """
    count = 0
    for segment in segments:
        if segment.end_offset <= states.end_offset or not segment.size_bytes or not segment.indexes.holds_producers:
            continue
        for position, header in segment.headers(segment.position_of(states.end_offset)):
            count += 1
            if header.producer_id < 0:
                continue
            if header.is_control:
                batch = segment.file.read_at(position, header.size_bytes)
                for entry in end_transactions(states, batch, now_ms=now_ms):
                    on_aborted(segment, entry)
            else:
                states.remember(header, header.base_offset, header.last_offset, header.max_timestamp, now_ms)
    states.end_offset = end_offset
    return count


def end_transactions(states: ProducerStates, batch: Buffer, *, now_ms: int) -> list[AbortedEntry]:
    """Take in a control batch that stands in the log, given its bytes: a marker decides its producer's transaction.

    Returns:
        What the transaction index of its segment is to hold of it.
    """
    header = read_header(batch)
    aborted = []
    for record in read_records(batch, header=header):
        marker = read_end_transaction_marker(record)
        if marker is not None:
            committed = read_control_type(record.key) is ControlType.COMMIT
            entry = states.end_transaction(header, record.offset, marker.coordinator_epoch, now_ms, committed=committed)
            if entry is not None:
                aborted.append(entry)
    return aborted
