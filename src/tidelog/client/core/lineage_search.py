"""The whole lineage of one replica, by asking it where leader epochs end, until nothing is left to ask.

```
 its entries      (1, 0)  (3, 6)  (5, 9), log end 12; the cluster is at epoch 8
 asked for 8: -   it knows nothing of 8, nor of anything between its latest epoch and 8: halve what is left
 asked for 4: (3, 9)
 asked for 6: -
 asked for 5: (5, 12)     the latest
 then down from there, as a follower learns its leader's lineage
```
"""

from __future__ import annotations

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.client.admin.cluster_descriptions import EpochSpan, epoch_spans
from tidelog.replica.lineage_walk import LineageWalk


class LineageSearch:
    """The questions that are left, and what was learnt.

    Args:
        leader_epoch: the newest that there is: no replica has a newer one.
    """

    def __init__(self, leader_epoch: LeaderEpoch) -> None:
        self._known = -1  # the newest epoch that was answered; the log has it, or a newer one
        self._unknown = leader_epoch + 1  # the oldest that was not
        self._question: LeaderEpoch | None = leader_epoch
        self._walk: LineageWalk | None = None
        self._log_end_offset = Offset(0)

    @property
    def question(self) -> LeaderEpoch | None:
        """The epoch to ask for; None when all is learnt."""
        return self._question if self._walk is None else self._walk.question

    def on_answer(self, answer: tuple[LeaderEpoch, Offset] | None) -> None:
        """The largest epoch not above `question`, and its exclusive end; None where the replica knows of none."""
        requested = self.question
        if requested is None:
            return
        if self._walk is not None:
            if answer is None:  # it knew newer ones a moment ago, and was truncated since: begin anew
                self._walk, self._known, self._unknown = None, -1, int(requested)
                self._ask_on()
            else:
                self._walk.on_answer(*answer)
            return
        if answer is None:
            self._unknown = int(requested)
        else:
            self._known, self._log_end_offset = int(requested), answer[1]
        self._ask_on()

    def _ask_on(self) -> None:
        if self._unknown - self._known > 1:
            self._question = LeaderEpoch((self._known + self._unknown) // 2)
            return
        self._question = None
        if self._known >= 0:
            self._walk = LineageWalk(LeaderEpoch(self._known), Offset(0))

    @property
    def spans(self) -> tuple[EpochSpan, ...]:
        """What was learnt, oldest first; nothing of an empty log."""
        return () if self._walk is None else epoch_spans(self._walk.entries, self._log_end_offset)
