"""All that must hold for the replicas of one partition, checked together after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from tidelog.sim.checkers.growth import Changes, LogGrowth
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.in_sync import LeaderInIsr, StrongIsr, WeakIsr
from tidelog.sim.checkers.logs import EpochOffsetUnique, LineageTellsTheLog, LogsArePrefixes
from tidelog.sim.checkers.promises import AckedRecordsSurvive, DeliveredStaysDeliverable
from tidelog.sim.checkers.views import Broken, PartitionView


class PartitionChecker(Protocol):
    """One invariant."""

    @property
    def name(self) -> str: ...

    def check(self, view: PartitionView, history: PartitionHistory, changes: Changes) -> Iterator[Broken]:
        """What is broken now.

        Args:
            history: what is promised.
            changes: since the last call; every call has to be told of all of them.
        """
        ...


class PartitionCheckers:
    """See the module.

    Args:
        history: what is promised. Whoever runs the world tells it of losses of power and of unclean elections.
        made: where checks are counted, by invariant.

    Attributes:
        broken: the first that was seen of each invariant.
        unique: knows what was written by which leader epoch at which offset.
        prefixes: knows which record lies before which, for those who read.
    """

    def __init__(self, history: PartitionHistory | None = None, made: Counter[str] | None = None) -> None:
        self.history = PartitionHistory() if history is None else history
        self.made: Counter[str] = Counter() if made is None else made
        self.broken: dict[str, Broken] = {}
        self.unique = EpochOffsetUnique()
        self.prefixes = LogsArePrefixes()
        self._growth = LogGrowth()
        self._checkers: tuple[PartitionChecker, ...] = (
            AckedRecordsSurvive(),  # the first: it notes what is promised
            LeaderInIsr(),
            WeakIsr(),
            StrongIsr(),
            DeliveredStaysDeliverable(),
            self.unique,
            self.prefixes,
            LineageTellsTheLog(),
        )

    def check(self, view: PartitionView) -> list[Broken]:
        """After a step. Returns what is broken and was not before."""
        if self.history.has_doubts:
            down = [broker for broker, replica in view.replicas.items() if not replica.is_up]
            self.history.on_state(view.state, down)
        changes = self._growth.changes(view)
        found = []
        for checker in self._checkers:
            self.made[checker.name] += 1
            broken = list(checker.check(view, self.history, changes))
            if broken and checker.name not in self.broken:
                self.broken[checker.name] = broken[0]
                found.append(broken[0])
        return found


def broken_now(view: PartitionView, history: PartitionHistory) -> list[Broken]:
    """What is broken, looking at everything: for whoever jumps between moments, and remembers nothing else of them.

    Args:
        history: what is promised; what leaders have committed by now is noted in it.
    """
    return PartitionCheckers(history).check(view)
