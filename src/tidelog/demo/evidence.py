"""What really is in the logs: the files of every replica, read as they lie on the disk, without asking any node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.client.admin.cluster_descriptions import EpochSpan, first_difference
from tidelog.records import check_crc, read_records, split_whole_batches


@dataclass(frozen=True)
class ReplicaLog:
    """One replica of a partition of the ledger.

    Attributes:
        spans: the leader epochs of its batches, oldest first, each with the offsets that it holds.
        numbers: what is written at each offset.
    """

    spans: tuple[EpochSpan, ...] = ()
    numbers: Mapping[int, int] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.spans[-1].end_offset if self.spans else 0

    def parts_from(self, other: ReplicaLog) -> int | None:
        """The first offset at which the two hold different records; None where one continues the other."""
        return first_difference(self.spans, other.spans)


def read_replica(directory: Path) -> ReplicaLog:
    """Read the segments in the directory of a replica. What is being appended just now, and is not whole, is left out.

    Raises:
        CorruptBatchError: a batch is not as it was written.
    """
    spans: list[EpochSpan] = []
    numbers: dict[int, int] = {}
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for position, header in split_whole_batches(data):
            check_crc(data, position, header)
            if spans and spans[-1].leader_epoch == header.leader_epoch:
                spans[-1] = spans[-1]._replace(end_offset=header.next_offset)
            else:
                spans.append(EpochSpan(header.leader_epoch, header.base_offset, header.next_offset))
            if not header.is_control:
                for record in read_records(data, position, header):
                    numbers[record.offset] = int(record.value or b"-1")
    return ReplicaLog(tuple(spans), numbers)
