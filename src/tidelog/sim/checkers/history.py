"""What is promised in one partition: the records that leaders committed, and what has come since that excuses a loss.

The promise: an acknowledged record survives any number of crashes, and the loss of power or disk of so many replicas,
unless an operator allows an unclean election. So it has to be known of each record whether it still is promised:

- an unclean election ends all promises made before it, and those that a leader of an earlier epoch goes on to make;
- the loss of power of one replica too many ends all promises made before the first of these losses. A replica counts
  until it has lost its seat in the ISR and won it back: then it holds again all that is promised. Or until it is no
  replica any more, and all who are replicas are in sync.

What has outlived that, and is held again by as many in sync as a promise takes, is promised anew.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import NamedTuple, Self

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.metadata.image import PartitionImage
from tidelog.sim.checkers.views import Record


class Promise(NamedTuple):
    """A record that a leader committed, and how many had been before it."""

    record: Record
    number: int


class PartitionHistory:
    """See the module.

    Args:
        power_losses_max: of so many replicas the power may be lost, and all promises stand: `min.insync.replicas` - 1.
            None where what is acknowledged is on disk: any number.

    Attributes:
        committed: by offset; where a promise has ended, what was committed since takes its place.
        committed_end_offset: exclusive.
        overwritten: how often something was promised anew, or another record, where a promise had ended.
    """

    __slots__ = (
        "_clean_since",
        "_doubtful",
        "_ended",
        "_forgone",
        "_gone_in_sync",
        "_numbers",
        "_power_losses_max",
        "committed",
        "committed_end_offset",
        "overwritten",
    )

    def __init__(self, power_losses_max: int | None = 0) -> None:
        self.committed: dict[int, Promise] = {}
        self.committed_end_offset = Offset(0)
        self.overwritten = 0
        self._power_losses_max = power_losses_max
        self._numbers = 0
        self._ended = 0  # promises of a lower number have
        self._clean_since = LeaderEpoch(0)
        self._gone_in_sync: frozenset[BrokerId] = frozenset()  # whom nobody misses yet
        self._forgone: set[tuple[int, Record]] = set()  # committed, and promised no more, or never
        self._doubtful: dict[BrokerId, tuple[int, bool]] = {}  # the number of the next promise then; seat lost since

    # What happened.

    def on_committed(self, leader_epoch: LeaderEpoch, offset: int, record: Record) -> Record | None:
        """The leader of an epoch has a record below its high watermark.

        Returns:
            Another record that was promised at that offset, if there is one; it stays so.
        """
        known = self.committed.get(offset)
        if leader_epoch < self._clean_since:
            if known is None or known.record != record:
                self._forgone.add((offset, record))
            return None
        if known is not None and (known.record == record or known.number >= self._ended):
            return None if known.record == record else known.record
        if known is not None:
            self.overwritten += 1
            self._forgone.add((offset, known.record))
        self.committed[offset] = Promise(record, self._numbers)
        self._numbers += 1
        if self._doubtful:
            self._count_late_losses()
        if offset >= self.committed_end_offset:
            self.committed_end_offset = Offset(offset + 1)
        return None

    def on_committed_and_lost(self, broker: BrokerId, offset: int, record: Record) -> None:
        """A leader committed a record, and it was gone from a replica with its power before anybody saw that.

        It was promised before that loss.
        """
        lost = self._doubtful.get(broker)
        self.on_committed(record[0], offset, record)
        known = self.committed.get(offset)
        if lost is not None and known is not None and known.record == record:
            self.committed[offset] = known._replace(number=min(known.number, lost[0] - 1))

    def on_held(self, offset: int, record: Record) -> None:
        """Enough in sync hold what a leader committed: if that promise had ended, it is made anew."""
        known = self.committed.get(offset)
        if known is not None and known.record == record and known.number < self._ended:
            self.overwritten += 1
            self.committed[offset] = Promise(record, self._numbers)
            self._numbers += 1

    def on_unclean_election(self, leader_epoch: LeaderEpoch) -> None:
        """An operator allowed it: `leader_epoch` begins with what its leader happens to have."""
        self._clean_since = max(self._clean_since, leader_epoch)
        self._ended = self._numbers

    def on_power_lost(self, broker: BrokerId) -> None:
        """What it had not synced may be gone, or all of it, where its disk was lost."""
        self._doubtful[broker] = (self._numbers, False)
        self._end_promises()

    def _count_late_losses(self) -> None:
        """What a replica said before it lost power may come after that: while its seat is there, the loss counts."""
        for broker, (_, has_left) in list(self._doubtful.items()):
            if not has_left and broker in self._gone_in_sync:
                self._doubtful[broker] = (self._numbers, False)
        self._end_promises()

    def _end_promises(self) -> None:
        if self._power_losses_max is None:
            return
        since = sorted((number for number, _ in self._doubtful.values()), reverse=True)
        if len(since) > self._power_losses_max:
            self._ended = max(self._ended, since[self._power_losses_max])

    def on_state(self, state: PartitionImage, down: Collection[BrokerId] = ()) -> None:
        """As the controller has it: who lost power stops counting once it has lost its seat and won it back.

        Args:
            down: whom the controller has not heard of since. A seat that they get is that of one that is gone.
        """
        in_sync = frozenset((*state.isr, *state.eligible_leader_replicas))
        self._gone_in_sync = in_sync & frozenset(down)
        holds_everywhere = in_sync.issuperset(state.replicas)
        for broker, (number, has_left) in list(self._doubtful.items()):
            is_in_sync = broker in in_sync
            if holds_everywhere and broker not in state.replicas:
                del self._doubtful[broker]  # it was to hold it once; all who are to hold it now do
                continue
            if broker in down:
                continue
            if is_in_sync and has_left:
                del self._doubtful[broker]
            elif not is_in_sync and not has_left:
                self._doubtful[broker] = (number, True)

    # What is the case.

    @property
    def ended(self) -> int:
        """Promises of a lower number have."""
        return self._ended

    def is_enough(self, state: PartitionImage) -> bool:
        """Whether so many are in sync as a promise takes, and nobody is in doubt who may be elected."""
        takes = 1 if self._power_losses_max is None else min(self._power_losses_max + 1, len(state.replicas))
        may_lead = (*state.isr, *state.eligible_leader_replicas)
        return len(state.isr) >= takes and not any(broker in self._doubtful for broker in may_lead)

    @property
    def has_doubts(self) -> bool:
        """Whether anybody lost power, and has not won back its seat."""
        return bool(self._doubtful)

    def is_promised(self, offset: int) -> bool:
        """Whether what was committed there must still be there."""
        known = self.committed.get(offset)
        return known is not None and known.number >= self._ended

    def promised(self, offset: int) -> Record | None:
        """The record that must be at an offset; None where nothing must."""
        known = self.committed.get(offset)
        return None if known is None or known.number < self._ended else known.record

    def ever_committed(self) -> Iterator[tuple[int, Record]]:
        """All that any leader ever committed, promised or not, and where."""
        yield from ((offset, promise.record) for offset, promise in sorted(self.committed.items()))
        yield from sorted(self._forgone, key=lambda each: (each[0], each[1][0]))

    def was_committed(self, offset: int, record: Record | None) -> bool:
        """Whether a leader ever committed it there, promised or not."""
        known = self.committed.get(offset)
        return (known is not None and known.record == record) or (offset, record) in self._forgone

    def was_said_committed(self, offset: int, value: Hashable) -> bool:
        """As `was_committed`, of a record of any leader epoch: whoever acknowledged it names none."""
        known = self.committed.get(offset)
        if known is not None and known.record[1] == value:
            return True
        return any(at == offset and record[1] == value for at, record in self._forgone)

    def is_bound(self, leader_epoch: LeaderEpoch | None) -> bool:
        """Whether a leader of this epoch makes promises: no unclean election has come after it."""
        return leader_epoch is not None and leader_epoch >= self._clean_since

    def is_doubtful(self, broker: BrokerId) -> bool:
        """Whether it lost power, and has not left the ISR and joined it again since: nothing is asked of it."""
        return broker in self._doubtful

    def clone(self) -> Self:
        """An independent copy, for whoever explores what may come next."""
        copy = type(self).__new__(type(self))
        for name in PartitionHistory.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.committed, copy._doubtful = self.committed.copy(), self._doubtful.copy()
        copy._forgone = self._forgone.copy()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for histories that judge alike: which promises stand, and how many losses each of them has seen."""
        ended = self._ended
        doubtful = frozenset(
            (broker, has_left, frozenset(at for at, known in self.committed.items() if ended <= known.number < number))
            for broker, (number, has_left) in self._doubtful.items()
        )
        committed = frozenset((at, known.record, known.number >= ended) for at, known in self.committed.items())
        seated = self._gone_in_sync.intersection(self._doubtful)
        return (committed, doubtful, seated, self._clean_since, frozenset(self._forgone))


def is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether somebody was elected who may not have all that is promised."""
    if after.leader_epoch == before.leader_epoch or not after.is_recovering or after.leader is None:
        return False
    return after.leader not in (*before.isr, *before.eligible_leader_replicas)
