"""`tidelog losses`: the account of what was lost, and of what may be."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.base.errors import TidelogError
from tidelog.base.losses import LossCause, ReplicaFate
from tidelog.cli.client_settings import client_arguments
from tidelog.cli.command import (
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_ms,
    timeout_option,
)
from tidelog.cli.output import Row, Rows, Section, Sections
from tidelog.cli.produce import UNACKNOWLEDGED_RECORDS_MAX, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.base.losses import Loss, ReplicaLoss
    from tidelog.client.admin.loss_administration import LossReaders, ToldReader
    from tidelog.client.admin.lost_records import LostRecord
    from tidelog.client.core.values import RecordMetadata
    from tidelog.client.futures import Future

CAUSES = {
    LossCause.BY_SETTING: "unclean election (setting)",
    LossCause.BY_OPERATOR: "unclean election (operator)",
    LossCause.LOST_BY_LEADER: "the leader may have lost its own",
    LossCause.FOUND: "found by a replica",
}
FATES = {
    ReplicaFate.AWAITED: "awaited",
    ReplicaFate.LED: "led",
    ReplicaFate.WHOLE: "was not cut",
    ReplicaFate.CUT: "was cut",
    ReplicaFate.LEFT: "left before it told",
    ReplicaFate.EMPTY: "came back empty",
    ReplicaFate.UNCOMPARED: "was thrown away uncompared",
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
        return Rows(rows, nothing="no replica is awaited" if self.open else "nothing is known to be lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLoss:
    """Show what is known of a LOSS: each replica, what was cut off it, and what of that is kept.

    A replica that is awaited has not told whether it held more than the leader: it is down, or has no leader to compare
    itself with. It tells by itself once it is back. A group on the lost branch has read records that are gone. Readers
    that a broker told of it are listed, and producers whose sequence numbers showed it.

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
class ExportLoss:
    """Give back the records of a LOSS, from the broker that keeps most of them: to a file, as JSON, or into a topic.

    `--to FILE` writes an Arrow file (the IPC format), which pandas, DuckDB and Spark read. `--json` prints an object a
    line. `--topic TOPIC` produces them there, with their keys, headers and timestamps; the partition follows from the
    key. `--same-topic` allows the topic that lost them, and writes to the partition that lost them: READERS THAT HAD
    READ THEM BEFORE READ THEM AGAIN.

    Control records are left out. Records of transactions are given back whether or not they were committed.

    Examples:

        tidelog losses export orders-3@17 --to lost-orders.arrow
        tidelog losses export orders-3@17 --broker 2 --json
        tidelog losses export orders-3@17 --topic orders-lost
    """

    loss: str = argument(metavar="LOSS")
    broker: int | None = option(
        "--broker",
        type=WholeNumber(),
        default=None,
        metavar="N",
        help="Whose records; else of the one that keeps most.",
    )
    to: str | None = option("--to", default=None, metavar="FILE", help="Write an Arrow file, which must not exist yet.")
    json: bool = option("--json", is_flag=True, help="Print the records, one JSON object a line.")
    topic: str | None = option("--topic", default=None, metavar="TOPIC", help="Produce the records into this topic.")
    same_topic: bool = option("--same-topic", is_flag=True, help="Allow --topic to name the topic that lost them.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def __post_init__(self) -> None:
        if self.json:
            object.__setattr__(self, "output", "json")

    def run(self) -> Rows:
        if (self.to is not None) + self.json + (self.topic is not None) != 1:
            raise UsageError("say where to: one of --to FILE, --json and --topic TOPIC")
        names = _topics([self.loss])
        if self.topic in names and not self.same_topic:
            raise UsageError(
                f"--topic {self.topic} is the topic that lost them, whose readers would read some of them twice: name "
                "another one, or say --same-topic"
            )
        if self.to is not None and os.path.exists(self.to):
            raise UsageError(f"--to {self.to}: this file is there already; name another one, or remove it")
        if self.to is not None and not os.path.isdir(os.path.dirname(self.to) or "."):
            raise UsageError(f"--to {self.to}: its directory is not there; make it, or name another one")
        return Rows(self._rows(names))

    def _rows(self, names: Sequence[str]) -> Iterator[Row]:
        """The records; or what became of them, once it is done."""
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            loss = _named(admin.describe_losses(names).losses, [self.loss])[-1]
            records = admin.read_lost_records(loss, broker_id=self.broker)
            if self.json:
                yield from map(_record_row, records)
                return
            count = self._write(records) if self.to is not None else self._produce(records, loss)
        yield {"loss": loss.name, "records": count, "to": self.to or self.topic}

    def _write(self, records: Iterator[LostRecord]) -> int:
        """The file is there once it is whole."""
        from tidelog.client.arrow import write_lost_records

        assert self.to is not None
        unfinished = f"{self.to}.unfinished"
        try:
            count = write_lost_records(records, unfinished)
            os.rename(unfinished, self.to)
        finally:
            with suppress(FileNotFoundError):
                os.remove(unfinished)
        return count

    def _produce(self, records: Iterator[LostRecord], loss: Loss) -> int:
        from tidelog import Producer

        assert self.topic is not None
        tally = Tally()
        partition = loss.partition if self.topic == loss.topic else None
        options = client_arguments(
            self.bootstrap, "producer", acks="all", max_block_ms=timeout_ms(self.timeout), client_id="tidelog-losses"
        )
        producer = Producer(**options)
        with producer:
            sent: deque[Future[RecordMetadata]] = deque()
            for record in records:
                timestamp_ms = record.timestamp if record.timestamp >= 0 else None
                sent.append(
                    producer.send(
                        self.topic,
                        record.value,
                        record.key,
                        partition=partition,
                        timestamp_ms=timestamp_ms,
                        headers=record.headers,
                    )
                )
                while sent and (len(sent) > UNACKNOWLEDGED_RECORDS_MAX or sent[0].done()):
                    tally.add(sent.popleft())
            for each in sent:
                tally.add(each)
        count = sum(each.records for each in tally.partitions.values())
        if tally.failed:
            all_count = tally.failed + count
            said = f"{tally.failed} of {all_count} records were not written to {self.topic}: {tally.first_error}"
            raise TidelogError(said)
        return count


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


def _record_row(record: LostRecord) -> Row:
    return {**record._asdict(), "headers": [{"key": key, "value": value} for key, value in record.headers]}


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
            "how": _how(each),
            "producer": each.producer_id,
            "last": _moment(each.last_ms),
            "kept_up_to": each.end_offset,
            "stood_at": each.position,
            "went_on_at": each.resumed_offset,
            "policy": each.policy,
        }
        for each in readers.told
    ]
    nothing = "no broker has told a reader or a producer since it started"
    yield Section(f"{loss.name}: readers and producers told", {}, Rows(told, nothing=nothing))
    if readers.unanswered:
        missing: list[Row] = [{"not_asked": each} for each in readers.unanswered]
        yield Section(f"{loss.name}: there may be more", {}, Rows(missing))


def _how(told: ToldReader) -> str:
    if told.producer_id is not None:
        return "its sequence was refused"
    if not told.times_told:
        return "said so itself"
    return "compared its position" if told.has_compared else "was beyond"


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
