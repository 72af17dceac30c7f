"""Where all groups of one coordinator write and answer: the journal, behind the names of requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.memory import GroupMemory
from tidelog.coordinator.settings import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, GroupSettings
from tidelog.coordinator.state import RecordedGroups
from tidelog.coordinator.values import Answer, EncodedBatch, KeyValue, Ready, RequestId
from tidelog.journal import Decision, Journal, Ticket


class Ledger:
    """The journal of one coordinator, its deadlines, and the time at which it was last told something.

    Every answer waits for all that was written before it, its own records included. What waits is bounded by the
    driver: one request per connection.

    Attributes:
        memory: of all groups of the node.
        nameless: group and id of each member that waits for its first answer, which is to tell it its id.
    """

    def __init__(self, settings: GroupSettings, memory: GroupMemory) -> None:
        self.settings = settings
        self.memory = memory
        self.state = RecordedGroups()
        self.deadlines = Deadlines()
        self.now_ms = 0
        self.wall_ms = 0
        self.nameless: dict[RequestId, tuple[str, str]] = {}
        self._journal: Journal[RecordedGroups] = Journal(
            self.state, not_active=Code.NOT_COORDINATOR, keeps_committed=False
        )
        self._asked: dict[Ticket, RequestId] = {}
        self._answers: list[Answer] = []
        self._has_resigned = False

    @property
    def is_active(self) -> bool:
        return self._journal.is_active

    @property
    def why_inactive(self) -> KafkaError:
        """What is answered while it is not active."""
        if self._has_resigned:
            return refusal(Code.NOT_COORDINATOR)
        return refusal(Code.COORDINATOR_LOAD_IN_PROGRESS)

    def replay(self, record: KeyValue, offset: Offset) -> None:
        """See `Journal`."""
        self._journal.replay(record, offset)

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset) -> None:
        """See `Journal`."""
        self._journal.become_active(leader_epoch, next_offset)

    def on_committed(self, end_offset: Offset) -> None:
        """See `Journal`."""
        if self._journal.is_active:
            self._journal.on_committed(end_offset)

    def resign(self, error: KafkaError | None) -> None:
        """See `Journal`; from now on nothing is written, and answers are errors."""
        self._journal.resign(error)
        self._has_resigned = True

    # What groups do.

    def answer(self, request_id: RequestId, outcome: object) -> None:
        """Answer, once all that was written until now is committed."""
        self.write_and_answer((), request_id, outcome)

    def answer_at_once(self, request_id: RequestId, error: KafkaError) -> None:
        """Answer what depends on nothing."""
        self._answers.append(Answer(request_id, error))

    def write(self, records: tuple[KeyValue, ...]) -> None:
        """Write records as one batch."""
        self._journal.submit(Decision(records, None))

    def write_and_answer(self, records: tuple[KeyValue, ...], request_id: RequestId, outcome: object) -> None:
        """Write records as one batch, and answer once it is committed."""
        self._asked[self._journal.submit(Decision(records, outcome))] = request_id

    def write_in_parts(self, records: Iterable[KeyValue]) -> None:
        """Write records of which each stands for itself, in as many batches as they need."""
        for part in self._parts(records):
            self.write(part)

    def fits(self, records: Sequence[KeyValue]) -> bool:
        """Whether the log would take them as one batch."""
        return BATCH_OVERHEAD_BYTES + sum(_size_bytes(one) for one in records) <= self.settings.batch_size_bytes_max

    def take_ready(self) -> Ready:
        """All that is owed since the last call."""
        ready = self._journal.take_ready()
        answers = self._answers
        if ready.replies:
            asked = self._asked
            for reply in ready.replies:
                request_id = asked.pop(reply.ticket, None)
                if request_id is not None:
                    self.nameless.pop(request_id, None)
                    answers.append(Answer(request_id, reply.outcome))
        made = Ready(
            tuple(
                EncodedBatch(batch.base_offset, batch.leader_epoch, batch.records)  # type: ignore[arg-type]
                for batch in ready.batches
            ),
            tuple(answers),
        )
        answers.clear()
        return made

    def _parts(self, records: Iterable[KeyValue]) -> Iterator[tuple[KeyValue, ...]]:
        part: list[KeyValue] = []
        left = self.settings.batch_size_bytes_max - BATCH_OVERHEAD_BYTES
        for record in records:
            size = _size_bytes(record)
            if part and size > left:
                yield tuple(part)
                part = []
                left = self.settings.batch_size_bytes_max - BATCH_OVERHEAD_BYTES
            part.append(record)
            left -= size
        if part:
            yield tuple(part)


def _size_bytes(record: KeyValue) -> int:
    key, value = record
    return RECORD_OVERHEAD_BYTES + len(key) + (len(value) if value is not None else 0)
