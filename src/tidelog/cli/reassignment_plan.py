"""Plans of who is to hold which partitions, as files, in the format of `kafka-reassign-partitions`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.cli.command import INT16_MAX, UsageError, WholeNumber, option
from tidelog.cli.group_offsets import TopicPartitions

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.descriptions import TopicDescription
    from tidelog.client.core.replica_plan import Assignment

VERSION = 1
ANY_DIRECTORY = "any"

Directories = dict[tuple[int, TopicPartition], str]
"""For a broker and a partition the log directory, where a plan names one."""


class Brokers(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """Ids of brokers, with a comma between."""

    name = "brokers"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
            self.fail(f"{value!r} is not a list of broker ids like 1,2,3", parameter, context)
        return tuple(map(int, parts))


def topic_option() -> Any:
    return option(
        "--topic",
        type=TopicPartitions(),
        multiple=True,
        metavar="TOPIC[:N,…]",
        help="A topic, or some of its partitions. May be repeated.",
    )


def brokers_option() -> Any:
    return option(
        "--brokers", type=Brokers(), default=None, metavar="N,…", help="Who may hold them; else all that live."
    )


def without_option() -> Any:
    return option("--without", type=Brokers(), default=None, metavar="N,…", help="Who may not hold them.")


def factor_option() -> Any:
    return option(
        "--replication-factor",
        type=WholeNumber(1, INT16_MAX),
        default=None,
        metavar="N",
        help="How many replicas each is to have; else as many as it has.",
    )


def described(admin: Admin, topics: Sequence[tuple[str, tuple[int, ...]]]) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of the partitions meant: of those topics or partitions, or of all there are.

    Raises:
        UsageError: a topic has no such partition.
    """
    found = admin.describe_topics([name for name, _ in topics] or None)
    for name, indexes in topics:
        known = {each.partition for each in found[name].partitions}
        unknown = sorted(set(indexes) - known)
        if unknown:
            raise UsageError(f"topic {name} has no partition {unknown[0]}; it has {len(known)}")
    wanted = {name: set(indexes) for name, indexes in topics}
    return {
        partition: replicas
        for name, topic in sorted(found.items())
        for partition, replicas in replicas_of(topic).items()
        if not wanted.get(name) or partition.partition in wanted[name]
    }


def replicas_of(topic: TopicDescription) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic.name, PartitionIndex(each.partition)): each.replicas for each in topic.partitions}


def planned(
    admin: Admin,
    current: Mapping[TopicPartition, tuple[int, ...]],
    *,
    brokers: Sequence[int] | None,
    without: Sequence[int] | None,
    replication_factor: int | None,
) -> Assignment:
    """What of them is to move where, over brokers that are named, or live.

    Raises:
        UsageError: a broker that is named is not there.
        ConfigError: there are too few.
    """
    from tidelog.client.core.replica_plan import plan

    known = {each.broker_id: each for each in admin.describe_cluster(include_fenced_brokers=True).brokers}
    for each in (*(brokers or ()), *(without or ())):
        if each not in known:
            raise UsageError(f"there is no broker {each}; there are {', '.join(map(str, sorted(known)))}")
    chosen = brokers or [broker_id for broker_id, each in known.items() if not each.is_fenced]
    racks = {broker_id: known[broker_id].rack for broker_id in chosen if broker_id not in (without or ())}
    return plan(current, racks, replication_factor=replication_factor)


def write_plan(path: str, assignment: Assignment) -> None:
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for partition, replicas in assignment.items()
    ]
    Path(path).write_text(json.dumps({"version": VERSION, "partitions": rows}, indent=1) + "\n")


def read_plan(path: str) -> Assignment:
    """The plan in a file, but for log directories.

    Raises:
        ConfigError: as `read_directories`.
    """
    return read_directories(path)[0]


def read_directories(path: str) -> tuple[Assignment, Directories]:
    """The plan in a file, and the log directories that it names.

    Raises:
        ConfigError: it is none; says what is wrong, and where.
    """
    try:
        held = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a plan: {error}") from error
    if not isinstance(held, dict) or held.get("version") != VERSION or not isinstance(held.get("partitions"), list):
        raise ConfigError(
            f'{path} is no plan: it should say {{"version": 1, "partitions": [{{"topic": "flights", "partition": 0, '
            '"replicas": [1, 2]}]}'
        )
    assignment: Assignment = {}
    directories: Directories = {}
    for number, row in enumerate(held["partitions"], start=1):
        partition, replicas, named = _row(path, number, row)
        if partition in assignment:
            raise ConfigError(f"{path}, entry {number}: {partition} stands there twice; it can go to one place only")
        assignment[partition] = replicas
        directories |= {(broker, partition): name for broker, name in named.items()}
    if not assignment:
        raise ConfigError(f"{path} names no partitions: there is nothing to do")
    return assignment, directories


def _row(path: str, number: int, row: object) -> tuple[TopicPartition, tuple[int, ...], dict[int, str]]:
    where = f"{path}, entry {number}"
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: {row!r} is not an object with topic, partition and replicas")
    topic, index, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise ConfigError(f"{where}: topic is {topic!r}, not a name")
    if not _is_number(index):
        raise ConfigError(f"{where}: partition is {index!r}, not a number from 0 on")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise ConfigError(f"{where}: replicas is {replicas!r}, not a list of broker ids")
    if len(set(replicas)) < len(replicas):
        raise ConfigError(f"{where}: a broker stands twice in {replicas}")
    names = row.get("log_dirs", [])
    if not isinstance(names, list) or (names and len(names) != len(replicas)):
        raise ConfigError(f"{where}: log_dirs is {names!r}, not a list as long as replicas; leave it out for any")
    if not all(isinstance(each, str) and (each == ANY_DIRECTORY or each.startswith("/")) for each in names):
        raise ConfigError(f'{where}: log_dirs is {names!r}; each is "any" or an absolute path')
    named = {broker: name for broker, name in zip(replicas, names, strict=False) if name != ANY_DIRECTORY}
    return TopicPartition(topic, PartitionIndex(int(str(index)))), tuple(replicas), named


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
