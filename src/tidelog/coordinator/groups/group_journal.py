"""The journal of the groups of one coordinator, with what all of them share."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.errors import KafkaError
from tidelog.coordinator.deadlines import Alarm, Deadlines
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.state import RecordedGroups
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.journal import CoordinatorJournal, Moment, RequestId


class GroupJournal(CoordinatorJournal[RecordedGroups]):
    """Where all groups of one coordinator write and answer.

    Attributes:
        memory: of all groups of the node.
        offsets_memory: of all their committed offsets.
        pending_member_ids: group and id of each member that waits for its first answer, which is to tell it its id.
    """

    def __init__(self, settings: GroupSettings, memory: CoordinatorMemory, offsets_memory: CoordinatorMemory) -> None:
        super().__init__(RecordedGroups())
        self.settings = settings
        self.memory = memory
        self.offsets_memory = offsets_memory
        self.deadlines: Deadlines[Alarm] = Deadlines()
        self.pending_member_ids: dict[RequestId, tuple[str, str]] = {}

    def run(self, request_id: RequestId, now_ms: int, wall_ms: int, work: Callable[[Moment], None]) -> None:
        """Do what a request asks, which answers it; a refusal that `work` raises is the answer."""
        if not self.is_active:
            self.answer_at_once(request_id, self.why_inactive)
            return
        try:
            work(Moment(now_ms, wall_ms))
        except KafkaError as error:
            self.answer(request_id, error.with_traceback(None))  # many may wait, each with its frames
