"""`tidelog reassign`: move partitions to other brokers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import TopicPartition
from tidelog.cli.command import (
    INT64_MAX,
    UsageError,
    WholeNumber,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows, Section, Sections
from tidelog.cli.reassignment_plan import (
    brokers_option,
    described,
    factor_option,
    planned,
    read_directories,
    read_plan,
    topic_option,
    without_option,
    write_plan,
)

if TYPE_CHECKING:
    from tidelog.cli.reassignment_plan import Directories
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.descriptions import PartitionDescription
    from tidelog.client.admin.reassignment import PartitionReassignment, ReassignmentOutcome
    from tidelog.client.core.replica_plan import Assignment

LOOK_AGAIN_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReassignment:
    """Show who would hold which partitions, so that all brokers and racks carry their share; move nothing.

    As few replicas move as that takes: a broker that was added gets its share, one that is to go gives all away, and
    what lies well stays. ADDS are the replicas that have to be copied. Without --topic, of all topics, those that the
    cluster keeps for itself included.

    Examples:

        tidelog reassign plan --topic flights --brokers 1,2,3,4
        tidelog reassign plan --without 3 --file away-from-3.json
        tidelog reassign plan --topic flights --replication-factor 3
    """

    topic: tuple[tuple[str, tuple[int, ...]], ...] = topic_option()
    brokers: tuple[int, ...] | None = brokers_option()
    without: tuple[int, ...] | None = without_option()
    replication_factor: int | None = factor_option()
    file: str | None = option(
        "--file", "-f", default=None, metavar="FILE", help="Write the plan there, for `tidelog reassign run FILE`."
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            current = described(admin, self.topic)
            targets = planned(
                admin,
                current,
                brokers=self.brokers,
                without=self.without,
                replication_factor=self.replication_factor,
            )
        if self.file is not None and targets:
            write_plan(self.file, targets)
        return Rows([_move(partition, current, targets) for partition in targets], nothing="nothing need move")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReassignment:
    """Move partitions as a PLAN says, or as `plan` would for the same flags.

    Records are written and read all the while.

    A partition has moved when all of its new replicas are in sync; then the old ones go. One that was on its way
    elsewhere turns. What has to wait for a broker that does not live says so.

    Where a plan names log directories (`log_dirs`), replicas come to lie there, or are moved there.

    With --throttle, new replicas are copied no faster than so many bytes a second at each broker; it has to be more
    than producers write there. --wait takes throttles away at the end; without it, `tidelog reassign status` does.

    Ends with status 1 if a partition was refused.

    Examples:

        tidelog reassign run away-from-3.json --throttle 50000000 --wait
        tidelog reassign run --topic flights --brokers 2,3,4
    """

    plan: str | None = argument(metavar="[PLAN]", required=False)
    topic: tuple[tuple[str, tuple[int, ...]], ...] = topic_option()
    brokers: tuple[int, ...] | None = brokers_option()
    without: tuple[int, ...] | None = without_option()
    replication_factor: int | None = factor_option()
    throttle: int | None = option(
        "--throttle", type=WholeNumber(1, INT64_MAX), default=None, metavar="BYTES", help="A second, at each broker."
    )
    wait: bool = option("--wait", is_flag=True, help="Return when all have moved.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections | Rows:
        by_flags = bool(self.topic or self.brokers or self.without or self.replication_factor)
        if by_flags == (self.plan is not None):
            raise UsageError("say what is to move: a PLAN, or --topic, --brokers, --without or --replication-factor")
        return Sections(self._sections())

    def _sections(self) -> Iterator[Section]:
        """What has begun; and then the error, if a partition was refused."""
        from tidelog.cli.replication_throttles import lift_throttles, throttle

        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            current, targets = self._targets(admin)
            directories = {} if self.plan is None else read_directories(self.plan)[1]
            _choose_directories(admin, directories)
            if self.throttle is not None:
                unreached = throttle(admin, current, targets, self.throttle)
                if unreached:
                    _say(f"not throttled, for they do not live: brokers {', '.join(map(str, unreached))}")
            outcomes = admin.alter_partition_reassignments(targets) if targets else {}
            rows = [{**_move(each, current, targets), **_outcome(outcomes[each])} for each in outcomes]
            yield Section("reassignments", {}, Rows(rows, nothing="nothing need move"))
            begun = [partition for partition, outcome in outcomes.items() if outcome.error is None]
            if self.wait and begun:
                _wait_until_moved(admin, begun)
            if (self.wait or not begun) and self.throttle is not None and not admin.list_partition_reassignments():
                _say_lifted(lift_throttles(admin, {partition.topic for partition in targets}))
        _raise_refusals(outcomes)

    def _targets(self, admin: Admin) -> tuple[Mapping[TopicPartition, tuple[int, ...]], Assignment]:
        if self.plan is not None:
            targets = read_plan(self.plan)
            known = {each.name for each in admin.list_topics()}
            topics = [(name, ()) for name in sorted({each.topic for each in targets}) if name in known]
            return (described(admin, topics) if topics else {}), targets
        current = described(admin, self.topic)
        return current, planned(
            admin, current, brokers=self.brokers, without=self.without, replication_factor=self.replication_factor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentStatus:
    """Show which partitions are on their way, and for whom each waits; of a PLAN, which of them have arrived as well.

    When nothing moves any more, the throttles of `run` are taken away, of topics and brokers, unless --keep-throttles.

    Examples:

        tidelog reassign status
        tidelog reassign status away-from-3.json
    """

    plan: str | None = argument(metavar="[PLAN]", required=False)
    keep_throttles: bool = option("--keep-throttles", is_flag=True, help="Leave throttles as they are.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        targets = None if self.plan is None else read_plan(self.plan)
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            moving = admin.list_partition_reassignments()
            topics = {each.topic for each in (moving if targets is None else targets)}
            states = _states(admin, topics)
            wanted = list(moving) if targets is None else list(targets)
            rows = [_status(each, moving.get(each), states.get(each), targets) for each in wanted]
            if not moving and not self.keep_throttles:
                _lift_all(admin)
        return Rows(rows, nothing="nothing is on its way")


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReassignment:
    """Have partitions go back to the replicas that they had; what was copied so far is deleted.

    One that would be left with too few replicas in sync to hold what was acknowledged is refused, and moves on.

    Ends with status 1 if a partition was refused, or was not on its way.

    Examples:

        tidelog reassign cancel --all
        tidelog reassign cancel --topic flights:0
        tidelog reassign cancel away-from-3.json
    """

    plan: str | None = argument(metavar="[PLAN]", required=False)
    topic: tuple[tuple[str, tuple[int, ...]], ...] = topic_option()
    all: bool = option("--all", is_flag=True, help="Everything that is on its way.")
    keep_throttles: bool = option("--keep-throttles", is_flag=True, help="Leave throttles as they are.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        if (self.plan is not None) + bool(self.topic) + self.all != 1:
            raise UsageError("say what is to go back: a PLAN, --topic TOPIC, or --all")
        return Sections(self._sections())

    def _sections(self) -> Iterator[Section]:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            outcomes = admin.alter_partition_reassignments(dict.fromkeys(self._partitions(admin)))
            states = _states(admin, {each.topic for each in outcomes})
            rows: list[Row] = [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "replicas": states[each].replicas if each in states else None,
                    **_outcome(outcome, done="cancelled"),
                }
                for each, outcome in outcomes.items()
            ]
            yield Section("cancelled reassignments", {}, Rows(rows, nothing="nothing is on its way"))
            if outcomes and not self.keep_throttles and not admin.list_partition_reassignments():
                _lift_all(admin)
        _raise_refusals(outcomes)

    def _partitions(self, admin: Admin) -> list[TopicPartition]:
        if self.plan is not None:
            return list(read_plan(self.plan))
        moving = admin.list_partition_reassignments()
        if self.all:
            return list(moving)
        named = described(admin, self.topic)
        wholly = {name for name, indexes in self.topic if not indexes}
        # Of a whole topic, what is on its way; a partition that is named and is not, is refused by the controller.
        return [each for each in named if each in moving or each.topic not in wholly]


def _choose_directories(admin: Admin, directories: Directories) -> None:
    """Have brokers lay replicas where a plan says, those that they have already and those that are to come.

    Raises:
        KafkaError: a broker cannot, so nothing is moved to other brokers either.
    """
    if not directories:
        return
    for error in admin.alter_replica_log_dirs(directories).values():
        if error is not None and error.code is not Code.REPLICA_NOT_AVAILABLE:
            raise error


def _move(partition: TopicPartition, current: Mapping[TopicPartition, tuple[int, ...]], targets: Assignment) -> Row:
    held, target = current.get(partition, ()), targets[partition]
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": held or None,
        "target": target,
        "adds": [broker for broker in target if broker not in held] or None,
        "drops": [broker for broker in held if broker not in target] or None,
    }


def _outcome(outcome: ReassignmentOutcome, done: str = "begun") -> Row:
    if outcome.error is not None:
        return {"outcome": outcome.error.code.name}
    return {"outcome": done if outcome.waits_for is None else f"{done}, {outcome.waits_for}"}


def _raise_refusals(outcomes: Mapping[TopicPartition, ReassignmentOutcome]) -> None:
    refused = [outcome.error for outcome in outcomes.values() if outcome.error is not None]
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise KafkaError(f"{refused[0]}{more}", code=refused[0].code)


def _states(admin: Admin, topics: set[str]) -> dict[TopicPartition, PartitionDescription]:
    from tidelog.base.ids import PartitionIndex

    known = sorted(topics & {each.name for each in admin.list_topics()})
    found = admin.describe_topics(known) if known else {}
    return {
        TopicPartition(name, PartitionIndex(each.partition)): each
        for name, topic in found.items()
        for each in topic.partitions
    }


def _status(
    partition: TopicPartition,
    moving: PartitionReassignment | None,
    state: PartitionDescription | None,
    targets: Assignment | None,
) -> Row:
    wanted = moving.target if targets is None and moving is not None else (targets or {}).get(partition)
    if state is None:
        said = "no such partition"
    elif moving is not None:
        said = "on its way" if moving.target == wanted else "on its way elsewhere"
    else:
        said = "there" if state.replicas == wanted else "elsewhere"
    in_sync = () if state is None else state.isr
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "state": said,
        "leader": None if state is None else state.leader,
        "replicas": None if state is None else state.replicas,
        "adding": (moving and moving.adding_replicas) or None,
        "removing": (moving and moving.removing_replicas) or None,
        "waits_for": [each for each in moving.target if each not in in_sync] if moving is not None else None,
    }


def _wait_until_moved(admin: Admin, partitions: list[TopicPartition]) -> None:
    """Return when none of them is on its way. Ctrl-C ends the waiting, not the way."""
    from tidelog.cli.progress import Reporter

    with Reporter() as reporter:
        reporter.begin("moved", len(partitions))
        while True:
            left = len(admin.list_partition_reassignments(partitions))
            reporter.advance(len(partitions) - left)
            if not left:
                return
            time.sleep(LOOK_AGAIN_SECONDS)


def _lift_all(admin: Admin) -> None:
    from tidelog.cli.replication_throttles import lift_throttles

    _say_lifted(lift_throttles(admin, sorted(each.name for each in admin.list_topics())))


def _say_lifted(whose: list[str]) -> None:
    if whose:
        _say(f"throttles taken away: {', '.join(whose)}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
