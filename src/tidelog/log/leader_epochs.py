"""Many logs that a new leader epoch begins in, as after a start: their lineages are written together.

Kafka: `LeaderEpochFileCache`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import LeaderEpoch
from tidelog.base.ports import Disk
from tidelog.log.log import Log
from tidelog.records.lineage import EpochEntry


def assign_leader_epochs(
    disk: Disk, assignments: Sequence[tuple[Log, LeaderEpoch]]
) -> list[CorruptLogError | DiskError | None]:
    """Persist for each log that the epoch starts at its end, before anybody leads in it (rule 1).

    All of them are on disk when this returns; nobody's lineage says so in memory before. If the disk refuses, each is
    tried alone, so that one does not keep the others from being led.

    Returns:
        For each: None, or why not. CorruptLogError: the log is of a later epoch than the metadata knows of.
    """
    outcomes: list[CorruptLogError | DiskError | None] = []
    files: dict[str, bytes] = {}
    for log, leader_epoch in assignments:
        latest = log.lineage.latest_leader_epoch
        outcome: CorruptLogError | DiskError | None = log.segments.failure
        if latest is not None and latest > leader_epoch:
            outcome = CorruptLogError(
                f"{log.directory}: its log is of leader epoch {latest}, but the metadata only of {leader_epoch}: "
                "the metadata log is older than the data; put back the one that was here before, then start again"
            )
        outcomes.append(outcome)
        entry = EpochEntry(leader_epoch, log.log_end_offset)
        if outcome is None and not log._lineage_file.says(entry):
            path, data = log._lineage_file.planned([entry])
            files[path] = data
    try:
        disk.write_all_atomically(files)
        are_written = True
    except DiskError:
        are_written = False
    for index, (log, leader_epoch) in enumerate(assignments):
        if outcomes[index] is not None:
            continue
        try:
            if are_written:
                log._lineage_file.assign_written([EpochEntry(leader_epoch, log.log_end_offset)])
            else:
                log.assign_leader_epoch(leader_epoch)
        except DiskError as error:
            outcomes[index] = error
    return outcomes
