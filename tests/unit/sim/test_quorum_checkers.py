"""What nodes of the metadata quorum may say of themselves, and what they may not."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.quorum import QuorumState
from tidelog.sim.checkers.quorum import QuorumCheckers, QuorumView
from tidelog.sim.checkers.views import Record

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)


def log(text: str) -> list[Record]:
    """Drawn as in stories: `a@1 b@1`."""
    words = (word.partition("@") for word in text.split())
    return [(LeaderEpoch(int(leader_epoch)), value) for value, _, leader_epoch in words]


def node(
    node_id: BrokerId,
    records: str = "",
    *,
    epoch: int | None = 1,
    leads: bool = False,
    leader: BrokerId | None = None,
    synced: int | None = None,
    start: int = 0,
    voted: tuple[int, BrokerId] | None = None,
) -> QuorumView:
    held = log(records)
    return QuorumView(
        node_id,
        is_up=epoch is not None,
        leads=leads,
        leader_epoch=None if epoch is None else LeaderEpoch(epoch),
        leader_id=node_id if leads else leader,
        high_watermark=None,
        log_start_offset=Offset(start),
        records=held,
        synced_end_offset=Offset(start + len(held) if synced is None else synced),
        state=None if voted is None else QuorumState(LeaderEpoch(voted[0]), None, voted[1]),
    )


def look(checkers: QuorumCheckers, *views: QuorumView, committed: Sequence[Record] = ()) -> list[str]:
    return [str(one) for one in checkers.check(views, committed)]


def test_an_epoch_has_one_leader() -> None:
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, leads=True), node(B, leader=A), node(C)) == []
    assert look(checkers, node(A, epoch=2), node(B, epoch=2, leads=True)) == []
    assert look(checkers, node(C, epoch=2, leads=True)) == [
        "OneLeaderPerEpoch: node 3 takes itself for the leader of epoch 2, which is node 2"
    ]


def test_whoever_believes_in_another_leader_of_an_epoch_is_told_of() -> None:
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, leads=True), node(B, leader=C)) == [
        "OneLeaderPerEpoch: node 2 takes node 3 for the leader of epoch 1, which is node 1"
    ]


def test_a_node_does_not_return_to_an_epoch_before_that_of_its_file() -> None:
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, epoch=3)) == []
    assert look(checkers, node(A, epoch=2)) == [], "3 was in its memory only"
    assert look(checkers, node(A, epoch=None, voted=(4, B))) == []
    assert look(checkers, node(A, epoch=3, voted=(4, B))) == ["QuorumEpochNeverGoesBack: node 1 is in epoch 3, after 4"]


def test_nor_does_its_file() -> None:
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, epoch=None, voted=(4, B))) == []
    assert look(checkers, node(A, epoch=None, voted=(3, B))) == [
        "QuorumEpochNeverGoesBack: the file of node 1 says epoch 3, after 4"
    ]


def test_a_voter_has_one_vote_in_an_epoch() -> None:
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, voted=(1, B))) == []
    assert look(checkers, node(A, epoch=2, voted=(2, C))) == []
    assert look(checkers, node(A, epoch=2, voted=(2, B))) == [
        "VotesOnce: node 1 votes for 2 in epoch 2, and voted for 3"
    ]


def test_who_lost_its_disk_has_forgotten_its_votes() -> None:
    checkers = QuorumCheckers((A, B, C))
    look(checkers, node(A, epoch=2, voted=(2, C)))
    checkers.on_votes_lost(A)
    assert look(checkers, node(A, epoch=1), node(A, epoch=2, voted=(2, B))) == []


def test_who_leads_has_all_that_is_committed() -> None:
    checkers, committed = QuorumCheckers((A, B, C)), log("a@1 b@1")
    everybody = (node(A, "a@1 b@1", leads=True), node(B, "a@1 b@1", leader=A), node(C, "a@1", leader=A))
    assert look(checkers, *everybody, committed=committed) == []
    assert look(checkers, node(C, "a@1", epoch=2, leads=True), committed=committed) == [
        "LeaderHasCommitted: node 3 leads epoch 2 and has nothing at offset=1, committed is b@1"
    ]
    assert look(checkers, node(B, "b@1", epoch=3, leads=True, start=1), committed=committed) == [], "a snapshot has a"


def test_who_comes_to_lead_late_need_not_have_what_a_newer_epoch_has_committed() -> None:
    """The votes for it were on their way while others elected another; it is deposed by the next answer it gets."""
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, "a@1 b@1", leads=True), node(B, "a@1 b@1"), committed=log("a@1")) == []
    committed = log("a@1 b@1 c@3")
    newest = (node(A, "a@1 b@1 c@3", epoch=3), node(B, "a@1 b@1 c@3", epoch=3, leads=True))
    assert look(checkers, *newest, committed=committed) == []
    late = node(C, "a@1", epoch=2, leads=True)
    assert look(checkers, late, committed=committed) == [], "b came to be committed by epoch 3 alone"
    assert look(checkers, node(C, epoch=2), node(A, epoch=3), committed=committed) == []

    lacking = QuorumCheckers((A, B, C))
    assert look(lacking, node(A, "a@1", leads=True), node(B, "a@1"), committed=log("a@1")) == []
    assert look(lacking, *newest, committed=committed) == []
    assert look(lacking, node(C, epoch=2, leads=True), committed=committed) == [
        "LeaderHasCommitted: node 3 leads epoch 2 and has nothing at offset=0, committed is a@1"
    ]


def test_what_is_committed_is_on_the_disks_of_a_majority() -> None:
    committed = log("a@1 b@1")
    half_synced = (node(A, "a@1 b@1"), node(B, "a@1 b@1", synced=1), node(C, "a@1"))
    assert look(QuorumCheckers((A, B, C)), *half_synced, committed=committed) == [
        "CommittedIsOnAMajority: offset=1 is committed, and on the disk of 1 of the voters (1, 2, 3)"
    ]
    synced = (node(A, "a@1 b@1"), node(B, "a@1 b@1", epoch=None), node(C, "a@1 x@1"))
    assert look(QuorumCheckers((A, B, C)), *synced, committed=committed) == []
    observed = (node(A, "a@1 b@1"), node(B, "a@1"), node(C, "a@1 b@1"))
    assert look(QuorumCheckers((A, B)), *observed, committed=committed) != [], "an observer does not count"


def test_what_a_voter_said_before_it_lost_its_log_counts() -> None:
    """Its fetch was on its way; whoever hears of it commits, rightly."""
    checkers, committed = QuorumCheckers((A, B, C)), log("a@1 b@1")
    assert look(checkers, node(A, "a@1 b@1"), node(B, "a@1 b@1", leads=True), node(C)) == []
    checkers.on_log_lost(A)
    assert look(checkers, node(A), node(B, "a@1 b@1", leads=True), node(C), committed=committed) == []
    checkers = QuorumCheckers((A, B, C))
    assert look(checkers, node(A, "a@1 b@1", synced=1), node(B, "a@1 b@1", leads=True), node(C)) == []
    checkers.on_log_lost(A)
    assert look(checkers, node(A), node(B, "a@1 b@1", leads=True), node(C), committed=committed) != []
