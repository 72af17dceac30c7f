"""What a task checks of the batches it reads: that they are its range, whole, of the leader epochs planned. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.errors import LogTruncatedError, TidelogError, TopicRecreatedError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.header import BatchHeader
from tidelog.spark.plan import Range


class RangeNotReadError(TidelogError):
    """A task did not get what its range says. It fails; nothing of it counts. Says what was expected, and what came."""


class RangeCheck:
    """Follows one reader through its range, batch after batch.

    Args:
        piece: the range.
    """

    def __init__(self, piece: Range) -> None:
        self.piece = piece
        self.expected_offset = piece.start_offset
        self.leader_epoch: LeaderEpoch | None = piece.leader_epoch_min

    @property
    def is_complete(self) -> bool:
        return self.expected_offset >= self.piece.end_offset

    def on_fetch(self, fetch_offset: int, topic_id: str | None, gaps: Iterable[tuple[int, int]] = ()) -> None:
        """An answer has come, to a fetch from `fetch_offset`.

        Args:
            fetch_offset: what was asked for.
            topic_id: of the topic that answered; None where the broker has none.
            gaps: offsets, the ends exclusive, of which the broker has no batch. Ends of transactions and records that
                are not to be seen are no gaps.

        Raises:
            TopicRecreatedError: it is of another topic of the same name.
            RangeNotReadError: it is not the one that is due, or it lacks records of the range.
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
        for first_offset, end_offset in gaps:
            if not piece.may_have_gaps and first_offset < piece.end_offset:
                raise self._lacks(first_offset, end_offset)

    def on_batch(self, header: BatchHeader) -> None:
        """A batch that holds records to be delivered. It may reach over both ends of the range.

        Raises:
            LogTruncatedError: a leader epoch that is not one of those planned: the log was rewritten since.
            RangeNotReadError: offsets are missing within it.
        """
        if header.base_offset >= self.piece.end_offset:
            return
        self._check_leader_epoch(header)
        if not self.piece.may_have_gaps and header.record_count != header.last_offset_delta + 1:
            raise self._lacks(header.base_offset, header.next_offset, header.record_count)
        self.expected_offset = Offset(max(self.expected_offset, header.next_offset))

    def _lacks(self, first_offset: int, end_offset: int, record_count: int = 0) -> RangeNotReadError:
        return RangeNotReadError(
            f"{self.piece.partition}: there are {record_count or 'no'} records at [{first_offset}, {end_offset}), "
            "though the topic is not compacted: records are missing from the log (or it was, under an earlier "
            "cleanup.policy: then compact,delete lets it be read)"
        )

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
