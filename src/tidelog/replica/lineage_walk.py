"""A newcomer learns the leader's whole lineage, from its latest epoch down, before it may join the ISR (rule 5).

The batches that a follower receives tell it epochs too, but not those whose records compaction removed. A replica that
was rebuilt from such a log would answer OffsetForLeaderEpoch otherwise than its leader does.

```
 the leader's entries    (1, 0)  (3, 6)  (5, 9)
 asked for 4: (3, 9)     so 5 starts at 9, and 3 comes before it
 asked for 2: (1, 6)     so 3 starts at 6, and 1 comes before it
 asked for 0: (0, 0)     so 1 starts at 0, where the log starts: done
```
"""

from __future__ import annotations

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry


class LineageWalk:
    """The questions that are left, and what was learnt."""

    __slots__ = ("_learnt", "_log_start_offset", "_sought")

    def __init__(self, leader_epoch: LeaderEpoch, log_start_offset: Offset) -> None:
        """Begin at the leader's own epoch, which is in its lineage by rule 1; go down to where our log starts."""
        self._sought: LeaderEpoch | None = leader_epoch
        self._log_start_offset = log_start_offset
        self._learnt: list[EpochEntry] = []
        self._end_at_zero()

    @property
    def question(self) -> LeaderEpoch | None:
        """The epoch to ask for: the one below that whose start is sought. None when all is learnt."""
        return None if self._sought is None else LeaderEpoch(self._sought - 1)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """What was learnt, oldest first."""
        return tuple(reversed(self._learnt))

    def on_answer(self, leader_epoch: LeaderEpoch, end_offset: Offset) -> None:
        """The largest epoch not above `question`, and its exclusive end: there the one that is sought starts.

        The same end a second time: the epoch that is sought is older than the first that the leader knows.
        """
        sought = self._sought
        if sought is None:
            return
        if self._learnt and end_offset >= self._learnt[-1].start_offset:
            self._sought = None
            return
        self._learn(sought, end_offset)
        self._sought = None if end_offset <= self._log_start_offset else leader_epoch
        self._end_at_zero()

    def clone(self) -> LineageWalk:
        copy = LineageWalk.__new__(LineageWalk)
        copy._sought, copy._log_start_offset, copy._learnt = self._sought, self._log_start_offset, self._learnt.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for walks that go on alike."""
        return (self._sought, self._log_start_offset, tuple(self._learnt))

    def _end_at_zero(self) -> None:
        """Nothing is older than epoch 0, so it covers all from the log start on."""
        if self._sought == 0:
            self._learn(self._sought, self._log_start_offset)
            self._sought = None

    def _learn(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        self._learnt.append(EpochEntry(leader_epoch, max(start_offset, self._log_start_offset)))
