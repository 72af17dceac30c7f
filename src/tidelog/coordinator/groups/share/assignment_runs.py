"""Target assignments of share groups that take long: made in pieces, one group after the other, between requests.

While one is made, the members of its group stay where they are: half of the targets would be of another assignment.
A piece is done while nothing else that is done about the group has begun. Nobody waits for it: a member learns with a
later heartbeat what it is to read.
"""

from __future__ import annotations

import logging
from collections.abc import Container

from tidelog.base.errors import KafkaError
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.group import PARTITION_BYTES, ShareGroup
from tidelog.coordinator.groups.share.group_change import assigned
from tidelog.coordinator.groups.share.group_work import GroupWork
from tidelog.coordinator.groups.share.share_journal import ShareJournal
from tidelog.journal import KeyValue, Moment

logger = logging.getLogger("tidelog.server.groups")

RECORD_WORK = 50
"""What writing the target of a member takes, in partitions looked at."""


class ShareAssignmentRuns:
    """Those of one coordinator, a piece of each in turn."""

    def __init__(self, written: ShareJournal, work: GroupWork) -> None:
        self._written = written
        self._work = work
        self._runs: dict[str, tuple[ShareGroup, Pieces[None]]] = {}
        self._refused: dict[str, tuple[ShareGroup, int]] = {}  # epochs for which there is no assignment
        self._at = Moment(0, 0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done."""
        return not self._runs

    @property
    def group_ids(self) -> Container[str]:
        """The groups of which one is being made."""
        return self._runs

    def is_under_way(self, group: ShareGroup) -> bool:
        """Whether a target assignment is being made for a group."""
        run = self._runs.get(group.group_id)
        return run is not None and run[0] is group

    def is_refused(self, group: ShareGroup) -> bool:
        """Whether none can be made for the epoch that a group has."""
        refused = self._refused.get(group.group_id)
        return refused is not None and refused[0] is group and refused[1] == group.epoch

    def start(self, group: ShareGroup) -> None:
        """Make the target assignment for the epoch that a group has now."""
        self._refused.pop(group.group_id, None)
        self._runs[group.group_id] = group, self._pieces(group)

    def step(self, at: Moment) -> None:
        """Do the next piece of an assignment; then it is another one's turn."""
        group_id = next((one for one in self._runs if not self._work.is_half_done(one)), None)
        if group_id is None:
            return
        self._at = at
        group, pieces = self._runs.pop(group_id)
        if self._written.groups.get(group_id) is not group:
            return
        try:
            next(pieces)
        except StopIteration:
            return
        except KafkaError as error:
            self._refuse(group, group.epoch, str(error))
            return
        self._runs[group_id] = group, pieces

    def has_room(self, group: ShareGroup, epoch: int, after: int) -> bool:
        """Whether what members are to read, and then read, finds room. If not, a group keeps its old assignment.

        Args:
            epoch: of the group, that it is made for.
            after: partitions, each counted for each member that is to read it.
        """
        if self._written.has_room(2 * PARTITION_BYTES * (after - group.target_count)):
            return True
        memory = self._written.journal.memory
        self._refuse(
            group,
            epoch,
            f"an assignment of {after} partitions finds no room beside the {memory.used_bytes} bytes of all groups of "
            f"this node (group.coordinator.memory.bytes is {memory.limit_bytes})",
        )
        return False

    def release(self) -> None:
        """The coordinator resigned."""
        self._runs.clear()
        self._refused.clear()

    def _refuse(self, group: ShareGroup, epoch: int, why: str) -> None:
        self._refused[group.group_id] = group, epoch
        logger.warning("group %s keeps the assignment that it has: %s", group.group_id, why)

    def _pieces(self, group: ShareGroup) -> Pieces[None]:
        epoch, pace, group_id = group.epoch, Pace(), group.group_id
        targets = yield from assigned(
            dict(group.subscriptions), dict(group.targets), group.known_states, self._written.known
        )
        after = 0
        for target in targets.values():
            after += sum(map(len, target.values()))
            if pace.counts(len(target)):
                yield
        if not self.has_room(group, epoch, after):
            return
        made: dict[str, KeyValue] = {}
        for member_id in list(targets):
            target = targets.pop(member_id)  # to free all at once would take long
            if member_id in group.subscriptions and group.targets.get(member_id) != target:
                made[member_id] = yield from recorded.target_record(group_id, member_id, target, pace)
            if pace.counts(RECORD_WORK + len(target)):
                self._written.write(group_id, _of_members(group, made))
                made = {}
                yield
        records = _of_members(group, made)
        records.append(recorded.target_epoch_record(group_id, epoch, self._at.wall_ms))
        self._written.write(group_id, records)


def _of_members(group: ShareGroup, records: dict[str, KeyValue]) -> list[KeyValue]:
    """The records of those who are members yet: somebody may have left while they were made."""
    return [record for member_id, record in records.items() if member_id in group.subscriptions]
