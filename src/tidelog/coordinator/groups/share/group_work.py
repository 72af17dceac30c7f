"""What is done about share groups: one thing after another for each group, and what takes long in pieces.

```
 group 1   heartbeat ▓▓▓ │ states begun ▓ │ leave          a piece of each group in turn; between two pieces
 group 2   alter ▓▓▓▓▓▓▓ │ delete                          others have the event loop
```

What takes little is done at once, unless something else is being done about its group: then it waits for that. So
nothing but its own work changes a group between two pieces. The topics of the cluster may change, and another kind of
group may take an id that no group has yet.

Its counterpart in Kafka: none; a thread that is busy there keeps nobody else from a core.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass

from tidelog.base.errors import KafkaError
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.journal import Moment, RequestId

logger = logging.getLogger("tidelog.server.groups")

WORK = 250
"""What something takes that is done at once, in elements looked at: what has waited is done some at a time."""


@dataclass(slots=True)
class _Work:
    pieces: Pieces[None]
    request_id: RequestId | None
    has_begun: bool = False


class GroupWork:
    """That of all share groups of one coordinator.

    Attributes:
        at: when the piece at hand is done.
    """

    def __init__(self, journal: GroupJournal) -> None:
        self.at = Moment(0, 0)
        self._journal = journal
        self._under_way: dict[str, deque[_Work]] = {}
        self._droppable: dict[RequestId, _Work] = {}  # what has changed nothing yet, and is for those alone who asked

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done."""
        return not self._under_way

    @property
    def group_ids(self) -> Iterable[str]:
        """The groups about which something is being done. They need not be there."""
        return self._under_way

    def is_under_way(self, group_id: str) -> bool:
        """Whether something is being done about a group, or is to be."""
        return group_id in self._under_way

    def is_half_done(self, group_id: str) -> bool:
        """Whether something that is being done about a group has begun, so that nothing else may change the group."""
        waiting = self._under_way.get(group_id)
        return waiting is not None and waiting[0].has_begun

    def do(
        self,
        group_id: str,
        pieces: Pieces[None],
        at: Moment,
        request_id: RequestId | None = None,
        *,
        is_droppable: bool = False,
    ) -> None:
        """Do something about a group: its first piece at once, if nothing is under way there.

        Args:
            request_id: that is answered by it, and with what it raises, or if the coordinator resigns before.
            is_droppable: whether it need not be done if whoever asked is gone before `keep` is called. It may hold
                much, and one that asks and goes, again and again, would have it held without bound.
        """
        waiting = self._under_way.get(group_id)
        work = _Work(pieces, request_id)
        if is_droppable and request_id is not None:
            self._droppable[request_id] = work
        if waiting is not None:
            waiting.append(work)
            return
        self.at = at
        waiting = self._under_way[group_id] = deque((work,))
        if self._is_done(work):
            self._end(group_id, waiting)

    def do_later(self, group_id: str, pieces: Pieces[None]) -> None:
        """As `do`, of what happens to many groups or members at once: none of it is done now."""
        self._under_way.setdefault(group_id, deque()).append(_Work(pieces, None))

    def keep(self, request_id: RequestId) -> None:
        """What a request asks is about to change something: from now on it is done to its end."""
        self._droppable.pop(request_id, None)

    def on_disconnected(self, request_id: RequestId) -> None:
        """Nobody waits for that answer any more."""
        work = self._droppable.pop(request_id, None)
        if work is not None:
            work.pieces, work.request_id = _nothing(), None

    def step(self, at: Moment, assigned: Container[str]) -> None:
        """Do the next piece of what is under way about one group; then it is another one's turn.

        Args:
            assigned: groups of which an assignment is being made: what has taken long is followed by a piece of that.
        """
        if not self._under_way:
            return
        self.at = at
        group_id = next(iter(self._under_way))
        waiting = self._under_way[group_id] = self._under_way.pop(group_id)
        pace = Pace()
        while waiting:
            had_begun = waiting[0].has_begun
            if not self._is_done(waiting[0]):
                return
            self._end(group_id, waiting)
            if pace.counts(WORK) or (had_begun and group_id in assigned):
                return

    def release(self, error: KafkaError) -> None:
        """The coordinator resigned: whoever waits is told `error`."""
        for waiting in self._under_way.values():
            for one in waiting:
                if one.request_id is not None:
                    self._journal.answer_at_once(one.request_id, error)
        self._under_way.clear()
        self._droppable.clear()

    def _end(self, group_id: str, waiting: deque[_Work]) -> None:
        work = waiting.popleft()
        if work.request_id is not None:
            self._droppable.pop(work.request_id, None)
        if not waiting:
            del self._under_way[group_id]

    def _is_done(self, work: _Work) -> bool:
        """Do the next piece. Returns whether it was the last; what it raises is the answer."""
        work.has_begun = True
        try:
            next(work.pieces)
        except StopIteration:
            return True
        except KafkaError as error:
            if work.request_id is None:
                logger.warning("%s", error)
            else:
                self._journal.answer(work.request_id, error.with_traceback(None))
            return True
        return False


def _nothing() -> Pieces[None]:
    yield from ()
