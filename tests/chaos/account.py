"""LossesAreAccounted, of real nodes: the account of losses names what is gone, names nothing else, and awaits nobody.

As the simulator's checker of that name (`tidelog/sim/checkers/losses.py`), with what can be known from outside: what
producers were told, what the logs hold in the end, the entries, and the records that replicas kept.

- An acknowledged record that is gone lies in the range of a row, unless an entry of its partition says that nobody can
  tell what a replica held: its log was empty or was thrown away, or its leader may have lost records by itself.
- Where a row names one epoch at an offset, no record of that epoch is there, and none that the replica kept as lost;
  unless a later entry brought it back: a replica cut it off, and somebody was elected later who still had it.
- No entry awaits anybody: all replicas are back and in sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from support.fixtures.waiting import wait_until
from support.load.histories import Given, History, RecordId
from support.nodes.cluster import Cluster
from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.lost_records import LostRecord

NAME = "LossesAreAccounted"
FOUND_MAX = 5
NOBODY_KNOWS = frozenset({ReplicaFate.EMPTY, ReplicaFate.UNCOMPARED, ReplicaFate.LEFT})
"""What such a replica held, no row can name."""


@dataclass(frozen=True)
class Account:
    """The entries of a topic, and what of them is kept.

    Attributes:
        losses: the oldest first.
        kept: of all replicas, by the name of the entry.
    """

    losses: Sequence[Loss]
    kept: Mapping[str, Sequence[LostRecord]] = field(default_factory=dict)

    def of(self, partition: int) -> list[Loss]:
        return [loss for loss in self.losses if loss.partition == partition]


def read_account(cluster: Cluster, topic: str) -> Account:
    """As soon as no entry awaits anybody. Raises AssertionError: one still does."""

    def open_losses() -> list[str] | None:
        try:
            with Admin(cluster.bootstrap) as admin:
                losses = admin.describe_losses(open_only=True).losses
                return [f"{loss.name} awaits {list(loss.awaited)}" for loss in losses]
        except TidelogError:
            return None

    wait_until(lambda: open_losses() == [], lambda: f"{NAME}: no entry awaits anybody: {open_losses()}")
    with Admin(cluster.bootstrap) as admin:
        losses = admin.describe_losses([topic]).losses
        return Account(losses, {loss.name: list(_kept(admin, loss)) for loss in losses})


def _kept(admin: Admin, loss: Loss) -> Iterator[LostRecord]:
    for row in loss.cut:
        if row.kept_size_bytes:
            with suppress(_NotKeptError):
                yield from _kept_by(admin, loss, row)


class _NotKeptError(Exception):
    """Its directory went since, and with it what it kept."""


def _kept_by(admin: Admin, loss: Loss, row: ReplicaLoss) -> list[LostRecord]:
    try:
        return list(admin.read_lost_records(loss, broker_id=row.broker_id))
    except KafkaError as error:
        if error.code is Code.RESOURCE_NOT_FOUND:
            raise _NotKeptError from None
        raise


def check_account(account: Account, history: History) -> None:
    """All is healed. Raises AssertionError over what is gone and not named, and what is named and not gone."""
    there = {partition: {given.offset: given for given in records} for partition, records in history.final.items()}
    found = [*_unnamed(account, history, there), *_named(account, there)]
    assert not found, "\n".join(f"{NAME}: {one}" for one in [f"{len(found)} findings", *found[:FOUND_MAX]])


def _unnamed(account: Account, history: History, there: Mapping[int, Mapping[int, Given]]) -> Iterator[str]:
    present = {RecordId.of(given.value) for records in there.values() for given in records.values()}
    for record, offset in history.acknowledged.items():
        if offset is None or record in present or offset < min(there.get(record.partition, ()), default=0):
            continue
        losses = account.of(record.partition)
        if not any(_is_named(offset, loss) or _may_lack_rows(loss) for loss in losses):
            said = [f"{loss.name} {_ranges(loss)}" for loss in losses]
            yield f"{record}, acknowledged at offset {offset}, is gone, and no entry names it: {said}"


def _is_named(offset: int, loss: Loss) -> bool:
    return any(_covers(row, offset) for row in loss.cut)


def _may_lack_rows(loss: Loss) -> bool:
    return loss.cause is LossCause.LOST_BY_LEADER or any(row.fate in NOBODY_KNOWS for row in loss.replicas)


def _covers(row: ReplicaLoss, offset: int) -> bool:
    return row.cut_from is not None and row.end_offset is not None and row.cut_from <= offset < row.end_offset


def _ranges(loss: Loss) -> list[str]:
    return [f"{row.broker_id}: {row.cut_from}..{row.end_offset}" for row in loss.cut]


def _named(account: Account, there: Mapping[int, Mapping[int, Given]]) -> Iterator[str]:
    for loss in account.losses:
        if any(other.leader_epoch > loss.leader_epoch for other in account.of(loss.partition)):
            continue  # that one may have brought back what this one names
        left = there.get(loss.partition, {})
        for row in loss.cut:
            for offset, leader_epoch in _exact(row):
                given = left.get(offset)
                if given is not None and given.leader_epoch == leader_epoch:
                    yield f"{loss.name} names offset {offset} of broker {row.broker_id}, where {given} is"
                    break
        rows = {int(row.broker_id): row for row in loss.cut}
        for record in account.kept.get(loss.name, ()):
            given = left.get(record.offset)
            if given is not None and (given.leader_epoch, given.value) == (record.leader_epoch, record.value):
                yield f"{loss.name} has kept {given} as lost, which is there"
            if not _covers(rows[record.broker_id], record.offset):
                yield f"{loss.name} has kept offset {record.offset}, which broker {record.broker_id} does not name"


def _exact(row: ReplicaLoss) -> Iterator[tuple[int, int | None]]:
    """The offsets of a row whose epochs are known: all, if it names one epoch; else the first and the last."""
    assert row.cut_from is not None
    assert row.end_offset is not None
    if row.first_epoch == row.last_epoch:
        yield from ((offset, row.first_epoch) for offset in range(row.cut_from, row.end_offset))
    else:
        yield (row.cut_from, row.first_epoch)
        yield (row.end_offset - 1, row.last_epoch)
