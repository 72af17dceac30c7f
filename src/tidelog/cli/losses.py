"""`tidelog losses`: the account of what was lost, and of what may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.base.losses import LossCause, ReplicaFate
from tidelog.cli.command import (
    UsageError,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows, Section, Sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.base.losses import Loss, ReplicaLoss
    from tidelog.client.admin.loss_administration import LossReaders

CAUSES = {
    LossCause.BY_SETTING: "unclean election (setting)",
    LossCause.BY_OPERATOR: "unclean election (operator)",
    LossCause.LOST_BY_LEADER: "the leader lost its own",
    LossCause.FOUND: "found by a replica",
}
FATES = {
    ReplicaFate.AWAITED: "awaited",
    ReplicaFate.LED: "led",
    ReplicaFate.WHOLE: "held nothing more",
    ReplicaFate.CUT: "was cut",
    ReplicaFate.LEFT: "left before it told",
    ReplicaFate.EMPTY: "came back empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLosses:
    """List the entries of the account of losses, the oldest first.

    An entry is opened when a partition gets a leader that may lack committed records, as by an unclean election. It is
    open while a replica is awaited that may hold such records. LOST is how many offsets were cut off at most at one
    replica, and COMMITTED how many of them are known to have been committed.

    Examples:

        tidelog losses list
        tidelog losses list --open --topic orders
    """

    topic: tuple[str, ...] = option(
        "--topic", multiple=True, metavar="TOPIC", help="Only of this one. May be repeated."
    )
    open: bool = option("--open", is_flag=True, help="Only entries that await a replica.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            account = admin.describe_losses(self.topic or None, open_only=self.open)
        rows = [
            {
                "loss": loss.name,
                "opened": _moment(loss.opened_ms),
                "cause": CAUSES[loss.cause],
                "state": _state(loss),
                "lost": max((one.cut_count for one in loss.cut), default=0),
                "committed": max((one.committed_count for one in loss.cut), default=0),
                "awaits": list(loss.awaited),
            }
            for loss in account.losses
        ]
        return Rows(rows, nothing="nothing is known to be lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLoss:
    """Show what is known of a LOSS: each replica, what was cut off it, and what of that is kept.

    A replica that is awaited has not told whether it held more than the leader: it is down, or has no leader to compare
    itself with. It tells by itself once it is back. A group on the lost branch has read records that are gone.

    Example:

        tidelog losses describe orders-3@17
    """

    loss: tuple[str, ...] = argument(metavar="LOSS...", nargs=-1, required=True)
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            found = _named(admin.describe_losses(_topics(self.loss)).losses, self.loss)
            readers = admin.describe_loss_readers(found)
        return Sections(section for loss in found for section in _sections(loss, readers[loss.id]))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeLosses:
    """Note in entries of the account that they are dealt with: those LOSSes that are named, or all.

    An entry that is open stays open, since a replica that is awaited may still tell of more.

    Examples:

        tidelog losses acknowledge orders-3@17 --note 'replayed from the shop'
        tidelog losses acknowledge --all --note 'a test cluster'
    """

    loss: tuple[str, ...] = argument(metavar="[LOSS]...", nargs=-1)
    all: bool = option("--all", is_flag=True, help="All that nobody has acknowledged.")
    note: str = option("--note", default="", metavar="TEXT", help="What was done about them.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        if self.all == bool(self.loss):
            raise UsageError("say which losses: LOSS..., or --all")
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            losses = admin.describe_losses(_topics(self.loss) if self.loss else None).losses
            if self.loss:
                found = _named(losses, self.loss)
            else:
                found = [loss for loss in losses if loss.acknowledged_ms is None]
            admin.acknowledge_losses(found, note=self.note)
        rows: list[Row] = [{"loss": loss.name, "outcome": "acknowledged"} for loss in found]
        return Rows(rows, nothing="nothing to acknowledge")


def _topics(names: Sequence[str]) -> list[str]:
    """The topics of losses as `Loss.name` has them. Raises UsageError."""
    topics = []
    for name in names:
        partition, at, epoch = name.rpartition("@")
        topic, dash, index = partition.rpartition("-")
        if not (at and dash and topic and epoch.isdecimal() and index.isdecimal()):
            raise UsageError(f"{name!r} is no loss: TOPIC-PARTITION@EPOCH is expected, as tidelog losses list shows it")
        topics.append(topic)
    return topics


def _named(losses: Sequence[Loss], names: Sequence[str]) -> list[Loss]:
    """Those entries; of deleted topics of the same name the newest one comes last. Raises UsageError."""
    missing = [name for name in names if all(loss.name != name for loss in losses)]
    if missing:
        raise UsageError(f"the account has no loss {missing[0]!r}: see tidelog losses list")
    return [loss for loss in losses if loss.name in names]


def _state(loss: Loss) -> str:
    state = "open" if loss.is_open else "closed"
    return state if loss.acknowledged_ms is None else f"{state}, acknowledged"


def _sections(loss: Loss, readers: LossReaders) -> Iterator[Section]:
    yield _section(loss)
    groups: list[Row] = [
        {
            "group": each.group_id,
            "committed": each.offset,
            "epoch": each.leader_epoch,
            "standing": each.standing.value,
        }
        for each in readers.groups
    ]
    yield Section(f"{loss.name}: groups", {}, Rows(groups, nothing="no group committed an offset there"))
    told: list[Row] = [
        {
            "client": each.client_id,
            "host": each.host,
            "broker": each.broker_id,
            "told": each.times_told,
            "how": "compared its position" if each.has_compared else "was beyond",
            "last": _moment(each.last_ms),
            "kept_up_to": each.end_offset,
        }
        for each in readers.told
    ]
    yield Section(f"{loss.name}: readers told", {}, Rows(told, nothing="no broker has told a reader since it started"))


def _section(loss: Loss) -> Section:
    lost = loss.lost_offsets
    facts = {
        "loss": loss.name,
        "topic_id": str(loss.topic_id),
        "state": _state(loss),
        "cause": CAUSES[loss.cause],
        "opened": _moment(loss.opened_ms),
        "leader": loss.leader,
        "first_lost_offset": None if lost is None else lost[0],
        "last_lost_offset": None if lost is None else lost[1] - 1,
        "acknowledged": _moment(loss.acknowledged_ms),
        "note": loss.note or None,
    }
    return Section(loss.name, facts, Rows([_row(one) for one in loss.replicas], nothing="no replicas"))


def _row(one: ReplicaLoss) -> Row:
    return {
        "broker": one.broker_id,
        "fate": FATES[one.fate],
        "log_end": one.end_offset,
        "cut_from": one.cut_from,
        "cut": one.cut_count,
        "committed": one.committed_count,
        "epochs": None if one.first_epoch is None else f"{one.first_epoch} to {one.last_epoch}",
        "from": _moment(one.first_timestamp_ms),
        "to": _moment(one.last_timestamp_ms),
        "producers": one.producer_count,
        "kept_bytes": one.kept_size_bytes,
    }


def _moment(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
