"""What a task checks of the batches it reads: that they are its range, whole, of the leader epochs planned. Pure."""

from __future__ import annotations

from tidelog.base.errors import LogTruncatedError, TidelogError, TopicRecreatedError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.header import BatchHeader
from tidelog.spark.plan import Range

MARKERS_AT_START_MAX = 16
"""Ends of transactions that may lie between two tasks' ranges, one after the other."""


class RangeNotReadError(TidelogError):
    """A task did not get what its range says. It fails; nothing of it counts. Says what was expected, and what came."""


class RangeCheck:
    """Follows one reader through its range, batch after batch.

    Args:
        piece: the range.
        committed_only: the client leaves out the records of aborted transactions.
    """

    def __init__(self, piece: Range, *, committed_only: bool = False) -> None:
        self.piece = piece
        self.committed_only = committed_only
        self.has_transactions = False
        self.expected_offset = piece.start_offset
        self.leader_epoch: LeaderEpoch | None = piece.leader_epoch_min

    @property
    def is_complete(self) -> bool:
        return self.expected_offset >= self.piece.end_offset

    def on_fetch(self, fetch_offset: int, topic_id: str | None) -> None:
        """An answer has come, to a fetch from `fetch_offset`.

        Raises:
            TopicRecreatedError: it is of another topic of the same name.
            RangeNotReadError: it is not the one that is due.
        """
        piece = self.piece
        if piece.topic_id is not None and topic_id is not None and piece.topic_id != topic_id:
            raise TopicRecreatedError(
                piece.partition,
                position=self.expected_offset,
                old_topic_id=piece.topic_id,
                new_topic_id=topic_id,
            )
        if fetch_offset != self.expected_offset:
            raise RangeNotReadError(f"{piece.partition}: fetched from {fetch_offset}, not from {self.expected_offset}")

    def on_batch(self, header: BatchHeader, *, follows_directly: bool) -> None:
        """A batch that holds records to be delivered. It may reach over both ends of the range.

        Args:
            header: the batch's.
            follows_directly: in the log nothing lies between it and the batch before. If not, there may be control
                records, and aborted ones, which the client leaves out.

        Raises:
            LogTruncatedError: a leader epoch that is not one of those planned: the log was rewritten since.
            RangeNotReadError: offsets are missing before the batch or within it.
        """
        if header.base_offset >= self.piece.end_offset:
            return
        self._check_leader_epoch(header)
        self.has_transactions |= header.is_transactional
        if not self.piece.may_have_gaps:
            gap = header.base_offset - self.expected_offset
            hidden = not follows_directly and (self.has_transactions or self.committed_only or self._at_start(gap))
            if header.record_count != header.last_offset_delta + 1 or (gap > 0 and not hidden):
                raise RangeNotReadError(
                    f"{self.piece.partition}: offset {self.expected_offset} is expected, and a batch came with "
                    f"{header.record_count} records at [{header.base_offset}, {header.next_offset}), though the topic "
                    "is not compacted: records are missing from the log (or it was, under an earlier cleanup.policy: "
                    "then compact,delete lets it be read)"
                )
        self.expected_offset = Offset(max(self.expected_offset, header.next_offset))

    def _at_start(self, gap: int) -> bool:
        # Whether the record before the range was of a transaction is not known, so there may be its marker.
        return self.expected_offset == self.piece.start_offset and gap <= MARKERS_AT_START_MAX

    def _check_leader_epoch(self, header: BatchHeader) -> None:
        epoch = LeaderEpoch(header.leader_epoch)
        if epoch < 0:
            return
        older = self.leader_epoch is not None and epoch < self.leader_epoch
        newer = self.piece.leader_epoch_max is not None and epoch > self.piece.leader_epoch_max
        if older or newer:
            raise LogTruncatedError(
                self.piece.partition,
                position=self.expected_offset,
                divergent_offset=None if older else max(header.base_offset, self.piece.start_offset),
                leader_epoch=self.leader_epoch,
            )
        self.leader_epoch = epoch

    def on_answer_read(self, next_offset: int) -> None:
        """All batches of the answer were seen; the next fetch is from `next_offset`, what was left out being markers.

        Raises:
            RangeNotReadError: it lies before what was read.
        """
        if next_offset < self.expected_offset:
            raise RangeNotReadError(
                f"{self.piece.partition}: after {self.expected_offset} the reader would go on at {next_offset}"
            )
        self.expected_offset = Offset(next_offset)
