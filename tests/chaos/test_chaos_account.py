"""The checker of the account in chaos: what it lets pass, and what it finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from chaos.account import Account, check_account
from chaos.nodes import ChaosCluster
from chaos.operator_faults import FAULTS
from chaos.play import Plan, play
from support.load.histories import Given, History, RecordId
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.client.admin.lost_records import LostRecord

OLD, NEW = 3, 5


def record(number: int) -> RecordId:
    return RecordId("ours", 0, number)


def given(offset: int, number: int, leader_epoch: int) -> Given:
    return Given(0, offset, record(number).value, leader_epoch)


HISTORY = History(
    acknowledged={**{record(number): number for number in range(4)}, record(7): 2},
    final={0: [given(0, 0, OLD), given(1, 1, OLD), given(2, 7, NEW)]},
)
"""Of four records the leader of epoch 3 had, that of epoch 5 lacked the last two, and has another in place of one."""
CUT = ReplicaLoss(BrokerId(1), ReplicaFate.CUT, Offset(4), Offset(2), None, LeaderEpoch(OLD), LeaderEpoch(OLD))
LED = ReplicaLoss(BrokerId(2), ReplicaFate.LED, Offset(2))
EMPTY = ReplicaLoss(BrokerId(3), ReplicaFate.EMPTY)


def entry(*replicas: ReplicaLoss, leader_epoch: int = NEW) -> Loss:
    where = "flights", TopicId(UUID(int=7)), PartitionIndex(0), LeaderEpoch(leader_epoch)
    return Loss(*where, LossCause.BY_OPERATOR, BrokerId(2), 0, replicas)


def kept(offset: int, number: int) -> LostRecord:
    names = 1, "flights", 0, offset, OLD, 0, "CreateTime", None
    return LostRecord(*names, record(number).value, (), None)


ENTRY = entry(CUT, LED)
KEPT = {ENTRY.name: [kept(2, 2), kept(3, 3)]}


@pytest.mark.parametrize(
    "account",
    [
        Account([ENTRY], KEPT),
        Account([ENTRY]),
        Account([entry(EMPTY, LED)]),
        Account([entry(replace(CUT, cut_from=Offset(0)), LED, leader_epoch=4), entry(CUT, LED)]),
    ],
    ids=["named", "named, and nothing kept", "nobody can tell", "what a later entry brought back"],
)
def test_an_account_that_says_what_is_so_passes(account: Account) -> None:
    check_account(account, HISTORY)


@pytest.mark.parametrize(
    ("account", "why"),
    [
        (Account([]), "acknowledged at offset 2, is gone, and no entry names it"),
        (Account([entry(replace(CUT, end_offset=Offset(3)), LED)]), "acknowledged at offset 3, is gone"),
        (Account([entry(replace(CUT, cut_from=Offset(1)), LED)]), "names offset 1 of broker 1, where"),
        (
            Account([entry(replace(CUT, cut_from=Offset(1), last_epoch=LeaderEpoch(4)), LED)]),
            "names offset 1 of broker 1, where",
        ),
        (Account([ENTRY], {ENTRY.name: [kept(1, 1)]}), "as lost, which is there"),
        (Account([ENTRY], {ENTRY.name: [kept(1, 2)]}), "has kept offset 1, which broker 1 does not name"),
        (Account([entry(EMPTY), replace(ENTRY, partition=PartitionIndex(1))][1:]), "no entry names it"),
    ],
    ids=[
        "no entry",
        "too short",
        "too long",
        "too long, of two epochs",
        "kept, and there",
        "kept, and not named",
        "other",
    ],
)
def test_an_account_that_says_otherwise_is_found(account: Account, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_account(account, HISTORY)


FORGETFUL = """
from tidelog.server.replication.loss_notes import LossNotes
LossNotes.note = lambda *_: None
from tidelog.cli.app import main
main()
"""
"""The planted bug: what a replica cut off is not told, and it says that nothing was."""


def forget(cluster: ChaosCluster) -> None:
    for node in cluster.nodes.values():
        node.program = FORGETFUL


@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_planted", [False, True])
def test_a_round_with_an_unclean_election_finds_a_replica_that_does_not_tell(is_planted: bool, tmp_path: Path) -> None:
    (unclean,) = [fault for fault in FAULTS if fault.kind == "unclean election"]
    fault = replace(unclean, prepare=forget) if is_planted else unclean
    row = play(Plan(kind=fault.kind, faults=[fault], seed=4, seconds=0.1), tmp_path, is_sealed=False)
    assert row.lost
    assert ("LossesAreAccounted" in row.error) == is_planted, row.error
    assert bool(row.error) == is_planted, row.error
