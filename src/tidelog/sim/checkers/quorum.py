"""OneLeaderPerEpoch, QuorumEpochNeverGoesBack, VotesOnce, LeaderHasCommitted, CommittedIsOnAMajority.

What makes the metadata log one log, whoever leads the quorum: held against what each node says of itself, and against
what its disk would still say after a loss of power.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import QuorumState
from tidelog.sim.checkers.views import Broken, Record, text_of


class QuorumView(NamedTuple):
    """One node of the metadata quorum, as somebody outside sees it.

    Attributes:
        is_up: whether its process takes part.
        leads: whether it believes that it leads, in `leader_epoch`.
        leader_epoch: that it is in; None while it is down.
        leader_id: whom it believes to lead.
        high_watermark: exclusive; None where it knows none.
        log_start_offset: of the first of `records`.
        records: of its log, as its disk has them, synced or not.
        synced_end_offset: exclusive: what a loss of power would leave of them, at the least.
        state: what its quorum-state file would say after a loss of power; None where there is none.
    """

    node_id: BrokerId
    is_up: bool
    leads: bool
    leader_epoch: LeaderEpoch | None
    leader_id: BrokerId | None
    high_watermark: Offset | None
    log_start_offset: Offset
    records: Sequence[Record]
    synced_end_offset: Offset
    state: QuorumState | None = None

    @property
    def called(self) -> str:
        return f"node {self.node_id}"

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.log_start_offset + len(self.records))

    def at(self, offset: int) -> Record | None:
        """The record at an offset; None where the log has none (any more)."""
        index = offset - self.log_start_offset
        return self.records[index] if 0 <= index < len(self.records) else None


class QuorumCheckers:
    """See the module. Looks at each node whenever something of it has changed.

    Args:
        voters: who votes. Where they change, `on_voters` says so.
    """

    names = (
        "OneLeaderPerEpoch", "QuorumEpochNeverGoesBack", "VotesOnce", "LeaderHasCommitted", "CommittedIsOnAMajority",
    )  # fmt: skip

    def __init__(self, voters: Sequence[BrokerId]) -> None:
        self._voters = tuple(voters)
        self._leaders: dict[LeaderEpoch, BrokerId] = {}
        self._epochs: dict[BrokerId, LeaderEpoch] = {}
        self._votes: dict[tuple[BrokerId, LeaderEpoch], BrokerId] = {}
        self._led: set[tuple[BrokerId, LeaderEpoch]] = set()
        self._committed_in: list[tuple[LeaderEpoch, int]] = []  # epochs, and the end of what each has committed
        self._majority_end_offset = 0  # up to which it was looked at
        self._latest: dict[BrokerId, QuorumView] = {}
        self._lost: dict[BrokerId, QuorumView] = {}  # as they were when their logs went

    def on_voters(self, voters: Sequence[BrokerId]) -> None:
        """Others vote from now on."""
        self._voters = tuple(voters)

    def on_log_lost(self, node: BrokerId) -> None:
        """The disk of a voter forgets its log. A fetch of its last process may arrive after that."""
        if node in self._latest:
            self._lost[node] = self._latest[node]._replace(records=tuple(self._latest[node].records))

    def on_votes_lost(self, node: BrokerId) -> None:
        """The disk of a voter forgets its epoch and its votes."""
        self._epochs.pop(node, None)
        for key in [key for key in self._votes if key[0] == node]:
            del self._votes[key]

    def check(self, views: Sequence[QuorumView], committed: Sequence[Record]) -> Iterator[Broken]:
        """After a step.

        Args:
            views: of all nodes.
            committed: all that was ever committed, from offset 0 on.
        """
        if committed and (not self._committed_in or self._committed_in[-1][1] < len(committed)):
            # A leader commits by a record of its own epoch, and with it those of older epochs that lie below.
            self._committed_in.append((committed[-1][0], len(committed)))
        for view in views:
            self._latest[view.node_id] = view
            yield from self._check_epoch(view)
            yield from self._check_leader(view, committed)
        yield from self._check_majority(views, committed)

    def _check_epoch(self, view: QuorumView) -> Iterator[Broken]:
        """What is on its disk binds it; what is only in its memory nobody was told of."""
        known, state = self._epochs.get(view.node_id), view.state
        if state is not None:
            self._epochs[view.node_id] = state.leader_epoch
            if known is not None and state.leader_epoch < known:
                what = f"the file of {view.called} says epoch {state.leader_epoch}, after {known}"
                yield Broken("QuorumEpochNeverGoesBack", what)
            known = state.leader_epoch
        if known is not None and view.leader_epoch is not None and view.leader_epoch < known:
            yield Broken("QuorumEpochNeverGoesBack", f"{view.called} is in epoch {view.leader_epoch}, after {known}")
        if state is not None and state.voted_id is not None:
            key = (view.node_id, state.leader_epoch)
            first = self._votes.setdefault(key, state.voted_id)
            if first != state.voted_id:
                what = f"{view.called} votes for {state.voted_id} in epoch {state.leader_epoch}, and voted for {first}"
                yield Broken("VotesOnce", what)

    def _check_leader(self, view: QuorumView, committed: Sequence[Record]) -> Iterator[Broken]:
        leader_epoch = view.leader_epoch
        if leader_epoch is None:
            return
        told = view.node_id if view.leads else view.leader_id
        if told is not None:
            first = self._leaders.setdefault(leader_epoch, told)
            if first != told:
                who = "itself" if told == view.node_id else f"node {told}"
                what = f"{view.called} takes {who} for the leader of epoch {leader_epoch}, which is node {first}"
                yield Broken("OneLeaderPerEpoch", what)
        if view.leads and (view.node_id, leader_epoch) not in self._led:
            self._led.add((view.node_id, leader_epoch))
            # Votes may come late: a node that takes up an epoch when there is a newer one need not have what that has.
            end_offset = max((end for epoch, end in self._committed_in if epoch <= leader_epoch), default=0)
            for offset in range(view.log_start_offset, end_offset):
                if view.at(offset) != committed[offset]:
                    has = (
                        f"has {text_of(view.at(offset))} at offset={offset}, committed is {text_of(committed[offset])}"
                    )
                    yield Broken("LeaderHasCommitted", f"{view.called} leads epoch {leader_epoch} and {has}")
                    break

    def _check_majority(self, views: Sequence[QuorumView], committed: Sequence[Record]) -> Iterator[Broken]:
        """What is committed survives the loss of power of all, and the loss of any minority for good.

        A voter that lost its log counts with what was in it: its fetch may arrive after that, and commit a record.
        """
        end_offset = len(committed)
        if end_offset <= self._majority_end_offset:
            return
        self._majority_end_offset = end_offset
        holders = {
            view.node_id
            for view in (*views, *self._lost.values())
            if view.node_id in self._voters
            and view.synced_end_offset >= end_offset
            and view.at(end_offset - 1) == committed[end_offset - 1]
        }
        if len(holders) <= len(self._voters) // 2:
            who = ", ".join(map(str, sorted(holders))) or "nobody"
            what = f"offset={end_offset - 1} is committed, and on the disk of {who} of the voters {self._voters}"
            yield Broken("CommittedIsOnAMajority", what)
