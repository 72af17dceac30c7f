"""The options of the source and the sink: those of Spark's Kafka connector, and what ours can do besides.

Options are not case-sensitive. One that is unknown is refused with the name of the closest known one: a misspelt
`failOnDataLoss` that does nothing is found too late.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.kafka_settings import Spelling, client_settings
from tidelog.spark.plan import EARLIEST, LATEST, Bound
from tidelog.spark.truncation import OnTruncation

T = TypeVar("T")
OF_AN_OPTION = Spelling("option kafka.", "kafka.")
logger = logging.getLogger("tidelog.spark")

SOURCE_OPTIONS = {
    "assign": 'the partitions to read, as JSON: {"t": [0, 1]}',
    "subscribe": "the topics to read, separated by commas",
    "subscribePattern": "a regular expression of Java's; topics whose whole name it matches are read, later ones too",
    "startingTimestamp": "start at the first record at or after it, in milliseconds since 1970",
    "startingOffsetsByTimestamp": 'the same by partition, as JSON: {"t": {"0": 1700000000000}}',
    "startingOffsets": 'earliest, latest or JSON: {"t": {"0": 23, "1": -2}}, -1 being latest and -2 earliest',
    "startingOffsetsByTimestampStrategy": "where a partition starts that has no record so late: error or latest",
    "endingTimestamp": "batch only: end before the first record at or after it",
    "endingOffsetsByTimestamp": "the same by partition, as JSON",
    "endingOffsets": "batch only: latest or JSON, as in startingOffsets",
    "failOnDataLoss": "true: onTruncation=fail; false: onTruncation=rewind, and offsets out of range are moved into it",
    "onTruncation": "what to do when records are gone that were read or stood past: fail, rewind, earliest or latest",
    "checkpoint": "the query's checkpointLocation: onTruncation=rewind does not rewind a query that keeps state there",
    "minPartitions": "tasks to aim at in a batch",
    "maxRecordsPerPartition": "records that one task reads at most",
    "maxOffsetsPerTrigger": "records of one micro-batch at most",
    "minOffsetsPerTrigger": "records that a micro-batch waits for",
    "maxTriggerDelay": "how long it waits for them, such as 90s or 15m",
    "kafkaConsumer.pollTimeoutMs": "how long a task waits for the next records of its range before it fails",
    "fetchOffset.numRetries": "how often planning is tried while brokers fail; without it, for two minutes",
    "fetchOffset.retryIntervalMs": "the pause between two tries of planning, in milliseconds",
    "includeHeaders": "whether rows have the column `headers`",
    "includeLeaderEpoch": "whether rows have the column `leaderEpoch`, null where the brokers do not tell it",
    "groupIdPrefix": "names this reader in the brokers' logs; there is no consumer group",
    "strictOptions": "whether an option or a client setting without effect is refused",
}
SINK_OPTIONS = {
    "topic": "where rows go; without it, each row's column `topic` says",
    "includeHeaders": "whether the column `headers` is written",
    "useTimestamp": "whether the column `timestamp` is the records'; else they have the time of writing",
    "onBadRow": "what to do with a row that no topic can take: fail, drop, or topic:NAME, which gets it as a record",
    "strictOptions": "whether an option, a client setting or a column without effect is refused",
    "delivery": "at-least-once, or exactly-once: a batch in transactions, which are committed when Spark has all of it",
    "sinkId": "exactly-once: what the sink is called, from one start of the query to the next; letters, digits, . _ -",
    "sinkReset": "exactly-once: the query, or the run, whose decisions are given up; an error says when, and which",
    "txnId": "exactly-once, batches: what the write is called; the second write of that name writes nothing",
}
TRANSACTION_TIMEOUT_MS = 900_000
"""Of an exactly-once sink's transactions, unless the user says otherwise: the longest that brokers allow by default.

A batch that is decided has so long to be committed, a restart of Spark included.
"""
_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
"""Spark hands these to a source or sink as well."""
_BATCH_ONLY = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

_MILLISECONDS = {
    "ms": 1, "millisecond": 1, "s": 1_000, "second": 1_000, "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read: exactly one of the three is set. The pattern is Python's."""

    partitions: frozenset[TopicPartition] = frozenset()
    names: tuple[str, ...] = ()
    pattern: str | None = None

    def select(self, existing: list[str]) -> list[str]:
        """The topics to read, given those that exist. A named one is selected though it does not."""
        if self.pattern is not None:
            return sorted(name for name in existing if re.fullmatch(self.pattern, name))
        return sorted(self.names) or sorted({topic for topic, _ in self.partitions})

    def missing(self, existing: Collection[TopicPartition]) -> list[str]:
        """The topics, or the partitions, that are named and do not exist. A pattern names none."""
        topics = {topic for topic, _ in existing}
        absent = [f"topic {name}" for name in self.names if name not in topics]
        return absent + [f"partition {partition}" for partition in sorted(self.partitions) if partition not in existing]

    def includes(self, partition: TopicPartition) -> bool:
        """Whether a partition of a selected topic is read."""
        return not self.partitions or partition in self.partitions


@dataclass(frozen=True, slots=True)
class Retries:
    """How long passing errors are borne.

    Attributes:
        poll_timeout_ms: for which a task may get nothing.
        tries: of planning; None: as many as fit into `PLAN_PATIENCE_MS`.
        pause_ms: between two tries.
    """

    poll_timeout_ms: int = 120_000
    tries: int | None = None
    pause_ms: int = 100


PLAN_PATIENCE_MS = 120_000


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much is read at a time. Counts are of offsets; None is no limit."""

    tasks_min: int | None = None
    task_records_max: int | None = None
    batch_records_max: int | None = None
    batch_records_min: int | None = None
    batch_delay_ms_max: int = 15 * 60_000


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """Where to look for state before a rewind.

    Attributes:
        location: the query's `checkpointLocation`.
        refuses: whether state forbids the rewind. Under `failOnDataLoss=false` nothing does.
    """

    location: str
    refuses: bool


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What was asked of the source, checked."""

    client: Mapping[str, object]
    topics: Topics
    start: Bound
    end: Bound
    on_truncation: OnTruncation
    clamp: bool
    limits: BatchLimits
    retries: Retries
    include_headers: bool
    checkpoint: Checkpointed | None = None
    include_leader_epoch: bool = False


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What was asked of the sink, checked.

    Attributes:
        exactly_once: None for at least once.
    """

    client: Mapping[str, object]
    topic: str | None
    include_headers: bool
    use_timestamp: bool = False
    strict: bool = False
    on_bad_row: str = "fail"
    """Or "drop", or the topic that gets such rows, after "topic:"."""
    exactly_once: ExactlyOnce | None = None


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """What an exactly-once sink is called.

    Attributes:
        scope: prefix of its transactional ids, and the key of its decisions.
        reset: a query or a run that is given up.
        txn_id: of a batch write.
    """

    scope: str
    reset: str | None = None
    txn_id: str | None = None


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of a read.

    Args:
        options: as Spark hands them over.
        streaming: ends are for batches only, and they start at the earliest offsets, streams at the latest.

    Raises:
        ConfigError: names the option, and what is allowed.
    """
    read = _Reader(options, SOURCE_OPTIONS, SINK_OPTIONS)
    ended = [name for name in _BATCH_ONLY if read.has(name)]
    if streaming and ended:
        raise ConfigError(f"option {ended[0]}: a stream has no end; it is for spark.read")
    start = _bound(read, "starting", LATEST if streaming else EARLIEST, lenient=_latest_without_match(read))
    if not streaming and (start.named == LATEST or LATEST in (start.offsets or {}).values()):
        raise ConfigError(f"option {start.option}: a batch that starts at the latest offset reads nothing")
    if not streaming:
        read.unused += [f"option {name}: it is for streams" for name in _STREAM_ONLY if read.has(name)]
    fail = read.parsed("failOnDataLoss", _boolean, True)
    tries = read.parsed("fetchOffset.numRetries", _number, None)
    policy = read.one_of("onTruncation", tuple(value.value for value in OnTruncation), "fail" if fail else "rewind")
    least, most = (read.parsed(name, _count, None) for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"))
    if streaming and least is not None and most is not None and least > most:
        raise ConfigError(f"option minOffsetsPerTrigger={least} is higher than maxOffsetsPerTrigger={most}")
    return SourceOptions(
        client=_client_options(read, consumer=True),
        topics=_topics(read),
        start=start,
        end=_bound(read, "ending", LATEST, lenient=True),
        on_truncation=OnTruncation(policy),
        clamp=not fail,
        limits=BatchLimits(
            tasks_min=read.parsed("minPartitions", _count, None),
            task_records_max=read.parsed("maxRecordsPerPartition", _count, None),
            batch_records_max=most,
            batch_records_min=least,
            batch_delay_ms_max=read.parsed("maxTriggerDelay", duration_ms, 15 * 60_000),
        ),
        retries=Retries(
            poll_timeout_ms=read.parsed("kafkaConsumer.pollTimeoutMs", _count, 120_000),
            tries=tries,
            pause_ms=read.parsed("fetchOffset.retryIntervalMs", _number, 100 if tries is None else 10),
        ),
        include_headers=read.parsed("includeHeaders", _boolean, False),
        checkpoint=_checkpointed(read, OnTruncation(policy), fail=fail),
        include_leader_epoch=read.parsed("includeLeaderEpoch", _boolean, False),
    )


def sink_options(options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Check the options of a write.

    Raises:
        ConfigError: names the option, and what is allowed.
    """
    read = _Reader(options, SINK_OPTIONS, SOURCE_OPTIONS)
    exactly_once = _exactly_once(read, streaming=streaming)
    client = _client_options(read, consumer=False)
    if exactly_once is not None:
        _check_client(client)
        client.setdefault("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS)
    return SinkOptions(
        client=client,
        topic=read.text("topic"),
        include_headers=read.parsed("includeHeaders", _boolean, True),
        use_timestamp=read.parsed("useTimestamp", _boolean, False),
        strict=read.strict,
        on_bad_row=read.parsed("onBadRow", _on_bad_row, "fail"),
        exactly_once=exactly_once,
    )


def _exactly_once(read: _Reader, *, streaming: bool) -> ExactlyOnce | None:
    if read.one_of("delivery", ("at-least-once", "exactly-once"), "at-least-once") == "at-least-once":
        for name in ("sinkId", "sinkReset", "txnId"):
            if read.has(name):
                raise ConfigError(f"option {name} is for delivery=exactly-once, which is not set")
        return None
    sink_id = read.parsed("sinkId", _name, None)
    if sink_id is None:
        raise ConfigError(
            "option sinkId is missing: delivery=exactly-once knows by it what the sink wrote before. Choose a name that"
            " stays the same when the query is started again, and that no other query has"
        )
    txn_id = read.parsed("txnId", _name, None)
    if streaming and txn_id is not None:
        raise ConfigError("option txnId is for df.write: a stream numbers its batches itself")
    if not streaming and txn_id is None:
        raise ConfigError(
            "option txnId is missing: a batch write with delivery=exactly-once needs a name, by which a second attempt"
            " finds that the first has written, such as the date of what it writes"
        )
    return ExactlyOnce(sink_id if txn_id is None else f"{sink_id}:{txn_id}", read.text("sinkReset"), txn_id)


def _check_client(client: Mapping[str, object]) -> None:
    if client.get("acks", "all") != "all" or client.get("enable_idempotence", True) is not True:
        raise ConfigError(
            "delivery=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true, which are the defaults:"
            " leave them out"
        )


def optional_columns(options: Mapping[str, str]) -> dict[str, bool]:
    """Which of them the source's schema has; the rest of the options is checked when a reader is made."""
    read = _Reader(options, SOURCE_OPTIONS, SINK_OPTIONS)
    return {
        "include_headers": read.parsed("includeHeaders", _boolean, False),
        "include_leader_epoch": read.parsed("includeLeaderEpoch", _boolean, False),
    }


class _Reader:
    """Options by their proper names, none of them unknown.

    Args:
        options: as Spark hands them over.
        known: those of the source, or of the sink, with what they mean.
        others: those of the other one, which have no effect here: one set of options may serve both.

    Attributes:
        unused: what has no effect, and why.
    """

    def __init__(self, options: Mapping[str, str], known: Mapping[str, str], others: Mapping[str, str]) -> None:
        self.known = known
        self.values = {name.lower(): str(value) for name, value in options.items()}
        # As in Kafka, a password's spaces belong to it.
        self.values = {
            name: value if name.endswith("password") else value.strip() for name, value in self.values.items()
        }
        names = {name.lower(): name for name in known}
        foreign = {name.lower(): name for name in others}
        self.unused: list[str] = []
        for name in self.values:
            if name in names or name in _SPARKS_OWN or name.startswith("kafka."):
                continue
            if name not in foreign:
                raise ConfigError(f"option {name} is unknown{_closest(name, known)}")
            self.unused.append(f"option {foreign[name]}: it is for the {'sink' if 'assign' in known else 'source'}")
        self.strict = self.parsed("strictOptions", _boolean, False)

    def has(self, name: str) -> bool:
        return name.lower() in self.values

    def text(self, name: str) -> str | None:
        value = self.values.get(name.lower())
        if value == "":
            raise ConfigError(f"option {name} is empty; it is {self.known[name]}")
        return value

    def parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"option {name}={value}: {error}; it is {self.known[name]}") from None

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in allowed:
            raise ConfigError(f"option {name}={value}: one of {', '.join(allowed)} is expected")
        return value


def _client_options(read: _Reader, *, consumer: bool) -> dict[str, object]:
    given = {name.removeprefix("kafka."): value for name, value in read.values.items() if name.startswith("kafka.")}
    found = client_settings(given, consumer=consumer, spelling=OF_AN_OPTION)
    settings = found.arguments
    if "bootstrap_servers" not in settings:
        raise ConfigError("option kafka.bootstrap.servers is missing: HOST:PORT of one or more brokers, by commas")
    unused = read.unused + [f"option kafka.{key}: {why}" for key, why in found.without_effect.items()]
    if read.strict and unused:
        raise ConfigError(f"under strictOptions, what has no effect is refused: {'; '.join(unused)}")
    for warning in found.warnings:
        _warn_once(warning)
    if consumer:
        settings.setdefault("client_id", read.text("groupIdPrefix") or "spark-tidelog-source")
    else:
        settings.setdefault("client_id", "spark-tidelog-sink")
    return settings


_warned: set[str] = set()


def _warn_once(warning: str) -> None:
    """Spark makes readers and writers again and again."""
    if warning not in _warned:
        _warned.add(warning)
        logger.warning("%s", warning)


def _on_bad_row(text: str) -> str:
    from tidelog.metadata.topic_names import check_topic_name

    policy, colon, topic = text.partition(":")
    policy, topic = policy.strip().lower(), topic.strip()
    if policy in {"fail", "drop"} and not colon:
        return policy
    if policy != "topic" or check_topic_name(topic) is not None:
        raise ValueError("fail, drop or topic:NAME is expected")
    return f"topic:{topic}"


def _topics(read: _Reader) -> Topics:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if read.has(name)]
    if len(given) != 1:
        said = "none is given" if not given else f"there are {' and '.join(given)}"
        raise ConfigError(f"exactly one of the options assign, subscribe and subscribePattern is needed; {said}")
    return read.parsed(given[0], {"assign": _assign, "subscribe": _subscribe}.get(given[0], _pattern), Topics())


def _checkpointed(read: _Reader, policy: OnTruncation, *, fail: bool) -> Checkpointed | None:
    location = read.text("checkpoint")
    if location is None:
        return None
    if policy is not OnTruncation.REWIND:
        raise ConfigError(
            f"option checkpoint is for onTruncation=rewind, and it is {policy.value}: leave one of them out, or change "
            "it. It is not checkpointLocation, which belongs to writeStream"
        )
    return Checkpointed(location, refuses=fail)


def _latest_without_match(read: _Reader) -> bool:
    return read.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"


def _bound(read: _Reader, which: str, default: int, *, lenient: bool) -> Bound:
    """The bound that the strongest given option of three says (`which` is starting or ending)."""
    timestamp, by_timestamp, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if read.has(timestamp):
        at = read.parsed(timestamp, _number, None)
        return Bound(timestamp, default, timestamp_ms=at, latest_without_match=lenient)
    if read.has(by_timestamp):
        at_each = read.parsed(by_timestamp, _by_partition, None)
        negative = [value for value in (at_each or {}).values() if value < 0]
        if negative:
            raise ConfigError(f"option {by_timestamp}: {negative[0]} is not a timestamp, milliseconds since 1970")
        return Bound(by_timestamp, default, timestamps_ms=at_each, latest_without_match=lenient)
    named = {"latest": LATEST, "earliest": EARLIEST}.get((read.text(offsets) or "").lower())
    if named is not None or not read.has(offsets):
        bound = Bound(offsets, default if named is None else named)
        if which == "ending" and bound.named == EARLIEST:
            raise ConfigError(f"option {offsets}=earliest: nothing would be read; latest or offsets are expected")
        return bound
    given = read.parsed(offsets, _by_partition, None) or {}
    least = LATEST if which == "ending" else EARLIEST
    for partition, offset in given.items():
        if offset < least:
            raise ConfigError(f"option {offsets}: {partition} cannot be at {offset}; {least} or more is expected")
    return Bound(offsets, default, offsets=given)


def duration_ms(text: str) -> int:
    """`500ms`, `90s`, `15m`, `1 hour` in milliseconds."""
    match = re.fullmatch(r"(\d+)\s*([a-z]+)", text.lower())
    unit = "" if match is None else match[2] if match[2] in _MILLISECONDS else match[2].removesuffix("s")
    if match is None or unit not in _MILLISECONDS:
        raise ValueError("a duration such as 500ms, 90s or 15m is expected")
    return int(match[1]) * _MILLISECONDS[unit]


def _assign(text: str) -> Topics:
    parsed = _json_object(text)
    partitions = set()
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"a list of partition numbers is expected for {topic!r}")
        partitions |= {TopicPartition(topic, PartitionIndex(number)) for number in numbers}
    if not partitions:
        raise ValueError("no partition is named")
    return Topics(partitions=frozenset(partitions))


def _subscribe(text: str) -> Topics:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("no topic is named")
    return Topics(names=tuple(dict.fromkeys(names)))


def _pattern(text: str) -> Topics:
    from tidelog.spark.java_patterns import python_pattern

    return Topics(pattern=python_pattern(text).pattern)


def _by_partition(text: str) -> dict[TopicPartition, int]:
    values = {}
    for topic, numbers in _json_object(text).items():
        if not isinstance(numbers, dict):
            raise ValueError(f"an object from partition to number is expected for {topic!r}")
        for partition, number in numbers.items():
            if not partition.isdigit() or not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(f"{topic!r} has {partition!r}: {number!r}; a partition and a number are expected")
            values[TopicPartition(topic, PartitionIndex(int(partition)))] = number
    if not values:
        raise ValueError("no partition is named")
    return values


def _json_object(text: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("a JSON object by topic is expected")
    return parsed


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", text):
        raise ValueError("up to 200 letters, digits and . _ - are expected")
    return text


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("a number from 0 is expected")
    return int(text)


def _count(text: str) -> int:
    if _number(text) == 0:
        raise ValueError("a number from 1 is expected")
    return int(text)


def _closest(name: str, known: Mapping[str, str]) -> str:
    lowered = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {lowered[close[0]]}? It is {known[lowered[close[0]]]}"
    return f"; there are {', '.join(known)}, and kafka.* for the client"
