"""`tidelog elect`: have partitions elect another leader."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import (
    UsageError,
    WholeNumber,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows, Section, Sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.descriptions import PartitionDescription
    from tidelog.client.admin.election_preview import ElectionPreview, LeaderCandidate


class ElectionDeclinedError(TidelogError):
    """Somebody was shown what an election would do, and did not want it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Have partitions elect another leader, and show who leads then.

    `--type preferred` gives partitions back to the first of their replicas, if it is in sync: so leaderships spread
    again after nodes were away. `--type unclean` lets a partition that nobody can lead be led by a replica that lives,
    though it may not hold all that was acknowledged: WHAT IT DOES NOT HOLD IS LOST, and readers are told.

    An unclean election is shown before it is done: of each replica its log end and last leader epoch, whether it is
    alive, whether it is the one that would lead, what would be lost then as far as the other replicas tell, and which
    groups have committed beyond it. Then it asks. `--yes` shows the same, and does not ask. Without a terminal to ask
    at, and without `--yes`, nothing is elected.

    Ends with status 1 if a partition that was asked for could not elect, or the answer was no.

    Examples:

        tidelog elect --type preferred --all
        tidelog elect --type unclean --topic flights --partition 3
        tidelog elect --type unclean --topic flights --partition 3 --yes
    """

    type: str = option(
        "--type",
        type=click.Choice(["preferred", "unclean"]),
        required=True,
        help="preferred: the first replica; unclean: any that lives, though records are lost.",
    )
    topic: str | None = option("--topic", default=None, metavar="TOPIC", help="The topic.")
    partition: tuple[int, ...] = option(
        "--partition",
        type=WholeNumber(),
        multiple=True,
        metavar="N",
        help="A partition of it; else all of them. May be repeated.",
    )
    all: bool = option("--all", is_flag=True, help="All partitions of all topics that need it.")
    yes: bool = option("--yes", is_flag=True, help="Do not ask before an unclean election.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        if self.all == (self.topic is not None):
            raise UsageError("say which partitions: --topic TOPIC, with --partition N if you like, or --all")
        if self.partition and self.topic is None:
            raise UsageError("--partition needs --topic")
        return Sections(self._preferred() if self.type == "preferred" else self._unclean())

    def _preferred(self) -> Iterator[Section]:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            yield from self._elected(admin, admin.elect_leaders("preferred", self._partitions(admin)))

    def _unclean(self) -> Iterator[Section]:
        """What it would do; then the question; then what came of it."""
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            asked = self._partitions(admin)
            previews = admin.preview_unclean_election(asked)
            yield from (_preview(partition, preview) for partition, preview in previews.items())
            if previews and not self.yes:
                _ask(len(previews))
            # Whoever has a leader was not shown: it is not elected, even if it has lost that leader meanwhile.
            led = [partition for partition in asked or () if partition not in previews]
            not_needed = KafkaError("the partition has a leader", code=Code.ELECTION_NOT_NEEDED)
            results: dict[TopicPartition, KafkaError | None] = dict.fromkeys(led, not_needed)
            if previews:
                results |= admin.elect_leaders("unclean", list(previews))
            yield from self._elected(admin, results)

    def _elected(self, admin: Admin, results: Mapping[TopicPartition, KafkaError | None]) -> Iterator[Section]:
        """What came of it; and then the error, if a partition could not elect."""
        described = admin.describe_topics(sorted({each.topic for each in results})) if results else {}
        leaders = {
            TopicPartition(name, PartitionIndex(each.partition)): each
            for name, topic in described.items()
            for each in topic.partitions
        }
        rows = [_row(partition, leaders.get(partition), error) for partition, error in sorted(results.items())]
        facts = {"type": self.type}
        yield Section(f"{self.type} election", facts, Rows(rows, nothing="no partition needs it"))
        failed = [error for error in results.values() if error and error.code is not Code.ELECTION_NOT_NEEDED]
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise KafkaError(f"{failed[0]}{more}", code=failed[0].code)

    def _partitions(self, admin: Admin) -> list[TopicPartition] | None:
        if self.topic is None:
            return None
        there = [each.partition for each in admin.describe_topics([self.topic])[self.topic].partitions]
        for index in self.partition:
            if index not in there:
                raise UsageError(f"topic {self.topic} has no partition {index}: it has {len(there)}, from 0 on")
        return [TopicPartition(self.topic, PartitionIndex(index)) for index in dict.fromkeys(self.partition or there)]


def _ask(count: int) -> None:
    """Raises UsageError where nobody can be asked, and ElectionDeclinedError where the answer is no."""
    if not sys.stdin.isatty():
        raise UsageError(
            "an unclean election loses records: look at what is shown, and say --yes to elect without asking"
        )
    sys.stdout.flush()
    partitions = "this partition" if count == 1 else f"these {count} partitions"
    try:
        is_meant = click.confirm(f"elect a leader of {partitions}?", default=False, err=True)
    except click.Abort:
        is_meant = False
    if not is_meant:
        raise ElectionDeclinedError("nothing was elected")


def _preview(partition: TopicPartition, preview: ElectionPreview) -> Section:
    title = f"{partition} has no leader in epoch {preview.leader_epoch}"
    elected = preview.elected
    if elected is None:
        title += "; no replica is alive, so none can be elected"
    elif elected.is_clean:
        title += f"; broker {elected.broker_id} would lead, and holds all that is committed"
    else:
        title += f"; broker {elected.broker_id} would lead, UNCLEANLY: what it does not hold is lost"
        if (better := preview.loses_less) is not None:
            title += (
                f"\nbroker {better.broker_id} would lose less: to have it lead, stop broker {elected.broker_id} first"
            )
    for each in preview.candidates:
        if each.error is not None:
            title += f"\nbroker {each.broker_id} does not tell what it holds: {each.error}"
    if preview.groups_unknown:
        title += f"\nnot all groups could be asked: {preview.groups_unknown}"
    facts = {
        "type": "unclean preview",
        "topic": partition.topic,
        "partition": partition.partition,
        "would_lead": preview.would_lead,
        "unknown_replicas": list(preview.unknown),
        "groups_unknown": preview.groups_unknown,
    }
    columns = ("broker", "alive", "elected", "log_end", "last_epoch", "would_lose", "groups_beyond")
    return Section(title, facts, Rows([_candidate(each, preview) for each in preview.candidates], columns))


def _candidate(each: LeaderCandidate, preview: ElectionPreview) -> Row:
    last_lost = None if each.lost_end_offset is None else each.lost_end_offset - 1
    return {
        "broker": each.broker_id,
        "alive": each.is_alive,
        "elected": each.broker_id == preview.would_lead,
        "log_end": each.end_offset,
        "last_epoch": each.last_epoch,
        "would_lose": _would_lose(each, preview),
        "groups_beyond": _beyond(each, preview),
        "groups": each.groups,
        "clean": each.is_clean,
        "first_lost_offset": each.lost_from,
        "last_lost_offset": last_lost,
    }


def _would_lose(each: LeaderCandidate, preview: ElectionPreview) -> str:
    if each.is_clean:
        return "nothing committed"
    known = "nothing known" if preview.unknown else "nothing"
    if each.lost_from is not None and each.lost_end_offset is not None:
        known = f"{each.lost_from} to {each.lost_end_offset - 1}"
    if each.error is not None:
        return "unknown"
    unknown = " and ".join(str(one) for one in preview.unknown)
    return f"{known}; unknown of {unknown}" if unknown else known


def _beyond(each: LeaderCandidate, preview: ElectionPreview) -> str:
    if each.groups is None:
        return "unknown"
    known = ", ".join(f"{group} at {offset}" for group, offset in each.groups.items())
    return known or ("none known" if preview.groups_unknown else "none")


def _row(partition: TopicPartition, state: PartitionDescription | None, error: KafkaError | None) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if state is None else state.leader,
        "leader_epoch": None if state is None else state.leader_epoch,
        "outcome": "elected" if error is None else error.code.name,
    }
