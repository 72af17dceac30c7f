"""Kafka's client settings, as files for Kafka's tools and Spark's `kafka.*` options have them, for our clients.

Each key of Kafka's consumers and producers is in one of these tables. A key that our clients have no counterpart for
is accepted if nothing depends on it, accepted with a warning if only speed or resources do, and refused if results or
security do. Whoever sets a key of the last kind counts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.client.kafka_security import SECURITY_KEYS, idle_keys, security_settings


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number is expected") from None


def _acks(text: str) -> int | str:
    if text not in {"all", "-1", "0", "1"}:
        raise ValueError("all, 1 or 0 is expected")
    return "all" if text in {"all", "-1"} else int(text)


_Parse = Callable[[str], object]
SHARED: dict[str, _Parse] = {
    "bootstrap.servers": str,
    "client.id": str,
    "default.api.timeout.ms": _whole,
    "metadata.max.age.ms": _whole,
    "reconnect.backoff.max.ms": _whole,
    "reconnect.backoff.ms": _whole,
    "request.timeout.ms": _whole,
    "retry.backoff.max.ms": _whole,
    "retry.backoff.ms": _whole,
    "socket.connection.setup.timeout.ms": _whole,
}
CONSUMER: dict[str, _Parse] = {
    "allow.auto.create.topics": _boolean,
    "check.crcs": _boolean,
    "client.rack": str,
    "fetch.max.bytes": _whole,
    "fetch.max.wait.ms": _whole,
    "fetch.min.bytes": _whole,
    "isolation.level": str,
    "max.partition.fetch.bytes": _whole,
}
PRODUCER: dict[str, _Parse] = {
    "acks": _acks,
    "batch.size": _whole,
    "buffer.memory": _whole,
    "compression.type": str,
    "delivery.timeout.ms": _whole,
    "enable.idempotence": _boolean,
    "linger.ms": _whole,
    "max.block.ms": _whole,
    "max.in.flight.requests.per.connection": _whole,
    "max.request.size": _whole,
    "transaction.timeout.ms": _whole,
}

NO_GROUP = "there is no consumer group"
WITHOUT_EFFECT = {
    "auto.commit.interval.ms": "nothing is committed to the brokers",
    "auto.include.jmx.reporter": "there is no JMX",
    "enable.metrics.push": "the clients push no metrics",
    "exclude.internal.topics": "a pattern never selects internal topics, as in Spark's connector",
    "group.instance.id": NO_GROUP,
    "group.protocol": NO_GROUP,
    "group.remote.assignor": NO_GROUP,
    "heartbeat.interval.ms": NO_GROUP,
    "max.poll.interval.ms": NO_GROUP,
    "max.poll.records": "records come in batches, as Spark asks for them",
    "metadata.max.idle.ms": "a writer forgets topics when it ends",
    "metrics.num.samples": "the clients have metrics of their own",
    "metrics.recording.level": "the clients have metrics of their own",
    "metrics.sample.window.ms": "the clients have metrics of their own",
    "partition.assignment.strategy": NO_GROUP,
    "retries": "retries end with delivery.timeout.ms, as Kafka's do by default",
    "session.timeout.ms": NO_GROUP,
    "share.acknowledgement.mode": "there is no share group",
    "share.acquire.mode": "there is no share group",
}
"""Neither results nor speed depend on them here."""
WITHOUT_COUNTERPART = {
    "client.dns.lookup": "all addresses of a host name are tried",
    "compression.gzip.level": "the codec's default level is used",
    "compression.lz4.level": "the codec's default level is used",
    "compression.zstd.level": "the codec's default level is used",
    "connections.max.idle.ms": "connections stay open until the broker closes them",
    "metadata.recovery.rebootstrap.trigger.ms": "the bootstrap servers are asked when no other broker answers",
    "metadata.recovery.strategy": "the bootstrap servers are asked when no other broker answers",
    "metric.reporters": "Java classes cannot be loaded here",
    "partitioner.adaptive.partitioning.enable": "rows without a key go to one partition after another",
    "partitioner.availability.timeout.ms": "rows without a key go to partitions that have a leader",
    "receive.buffer.bytes": "the operating system chooses the size",
    "send.buffer.bytes": "the operating system chooses the size",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms does not grow",
}
"""Speed or resources may depend on them: the log says once that they are not in force."""
_AS_IT_IS = {
    "client.dns.lookup": "use_all_dns_ips",
    "metadata.recovery.strategy": "rebootstrap",
    "metric.reporters": "",
    "partitioner.adaptive.partitioning.enable": "true",
}
"""The values among these that describe what is so anyway. The log says nothing of them."""
_BYTES = "org.apache.kafka.common.serialization.ByteArray"
ONLY_VALUES: dict[str, tuple[tuple[str, ...], str]] = {
    "enable.auto.commit": (("false",), "Spark's checkpoint holds the offsets; nothing is committed to the brokers"),
    "interceptor.classes": (("",), "interceptors can modify records, and Java classes cannot be loaded here"),
    "key.deserializer": ((f"{_BYTES}Deserializer",), "keys are binary; cast the column"),
    "key.serializer": ((f"{_BYTES}Serializer",), "keys are strings or binary; cast the column"),
    "transaction.two.phase.commit.enable": (("false",), "the brokers' side of it is not stable yet"),
    "value.deserializer": ((f"{_BYTES}Deserializer",), "values are binary; cast the column"),
    "value.serializer": ((f"{_BYTES}Serializer",), "values are strings or binary; cast the column"),
}
"""Keys with the values that change nothing. Results depend on any other value, which is refused."""
REFUSED = {
    "auto.offset.reset": "startingOffsets says where to start, and onTruncation what to do about losses",
    "config.providers": "values are taken as they are: look them up before, in Python",
    "transactional.id": "delivery=exactly-once makes those of its tasks, from sinkId",
}
_PARTITIONERS: dict[str, str | None] = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": None,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
}
PARTITIONING = ("partitioner.class", "partitioner.ignore.keys")


class ClientSettings(NamedTuple):
    """What the `kafka.*` options come to.

    Attributes:
        arguments: of our clients. Its `repr` shows no secret.
        without_effect: the keys that change nothing, with the reason.
        warnings: those among them that somebody may miss.
    """

    arguments: Arguments
    without_effect: Mapping[str, str]
    warnings: Sequence[str]


class Arguments(dict[str, object]):
    """Keyword arguments of a client. May hold secrets, and shows none."""

    def __repr__(self) -> str:
        shown = {name: "…" if name.startswith(("sasl_", "ssl_")) else value for name, value in self.items()}
        return f"Arguments({shown})"


class Spelling(NamedTuple):
    """How a key is spelled where it was set, for errors: the first that a sentence names, and the others."""

    first: str = ""
    other: str = ""

    def of(self, text: str) -> str:
        """Put it in the place of the marks ¶ and §."""
        return text.replace("¶", self.first).replace("§", self.other)


def client_settings(
    given: Mapping[str, str],
    *,
    consumer: bool,
    spelling: Spelling = Spelling(),  # noqa: B008 - it never changes
) -> ClientSettings:
    """Keyword arguments for our clients.

    Args:
        given: Kafka's keys to text.
        consumer: for a reader; else for a writer.
        spelling: of the keys, where they were set.

    Raises:
        ConfigError: names a key that is not Kafka's, with the closest that is; or one on which results or security
            depend and that has no counterpart; or a value that is not allowed.
    """
    try:
        found = _client_settings(given, consumer=consumer)
    except ConfigError as error:
        raise ConfigError(spelling.of(str(error))) from None
    return found._replace(warnings=[spelling.of(text) for text in found.warnings])


def _client_settings(given: Mapping[str, str], *, consumer: bool) -> ClientSettings:
    """Errors and warnings have a mark in the place of a key's prefix."""
    table = {**SHARED, **(CONSUMER if consumer else PRODUCER)}
    others = {**(PRODUCER if consumer else CONSUMER), **({} if not consumer else dict.fromkeys(PARTITIONING, str))}
    known = every_key() | SECURITY_KEYS
    misspelt = next((key for key in given if key not in known), None)
    if misspelt is not None:  # before what is said of the others: it may be the one that they lack
        raise ConfigError(_unknown(misspelt, table))
    security = {key: text for key, text in given.items() if key in SECURITY_KEYS}
    arguments = Arguments(security_settings(security))
    without_effect = idle_keys(security)
    warnings = []
    for key, text in given.items():
        if key in SECURITY_KEYS:
            continue
        if key == "group.id":
            if consumer:  # Brokers and their logs know the reader by its client id.
                arguments.setdefault("client_id", text)
            else:
                without_effect[key] = "it is for readers"
        elif key in table:
            arguments[key.replace(".", "_")] = _parsed(key, text, table[key])
        elif key in others:
            without_effect[key] = f"it is for {'writers' if consumer else 'readers'}"
        elif key in PARTITIONING:
            _add_partitioner(arguments, key, text)
        elif key in WITHOUT_EFFECT:
            without_effect[key] = WITHOUT_EFFECT[key]
        elif key in WITHOUT_COUNTERPART:
            without_effect[key] = WITHOUT_COUNTERPART[key]
            if text.lower() != _AS_IT_IS.get(key):
                warnings.append(f"¶{key}={text} is not in force: {WITHOUT_COUNTERPART[key]}")
        elif key in ONLY_VALUES:
            allowed, why = ONLY_VALUES[key]
            if text.rsplit(".", maxsplit=1)[-1] not in {value.rsplit(".", maxsplit=1)[-1] for value in allowed}:
                raise ConfigError(f"¶{key} is not supported: {why}")
            without_effect[key] = why
        elif key in REFUSED:
            raise ConfigError(f"¶{key} is not supported: {REFUSED[key]}")
    return ClientSettings(arguments, without_effect, warnings)


def _parsed(key: str, text: str, parse: _Parse) -> object:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"¶{key}={text}: {error}") from None


def _add_partitioner(arguments: Arguments, key: str, text: str) -> None:
    if key == "partitioner.ignore.keys":
        if _parsed(key, text, _boolean):
            arguments.setdefault("partitioner", "sticky")
        return
    if text not in _PARTITIONERS:
        raise ConfigError(f"¶{key} is not supported: Java classes cannot be loaded here; compute a column partition")
    if (name := _PARTITIONERS[text]) is not None:
        arguments["partitioner"] = name


def every_key() -> set[str]:
    """All keys of these tables."""
    tables = (SHARED, CONSUMER, PRODUCER, WITHOUT_EFFECT, WITHOUT_COUNTERPART, ONLY_VALUES, REFUSED)
    return {"group.id", *PARTITIONING, *(key for table in tables for key in table)}


def _unknown(key: str, table: Mapping[str, object]) -> str:
    close = get_close_matches(key, sorted(every_key() | SECURITY_KEYS), n=1, cutoff=0.5)
    hint = f"did you mean §{close[0]}?" if close else f"there are {', '.join(sorted(table))}"
    return f"¶{key} is no property of Kafka's clients; {hint}"


def client_arguments(settings: Mapping[str, object]) -> dict[str, Any]:
    """What our clients take: plain data, but for the function that gets tokens (`security_settings`)."""
    arguments: dict[str, Any] = dict(settings)
    asked = arguments.pop("sasl_oauth", None)
    if asked is not None:
        from tidelog.client.oauth import token_source

        arguments["sasl_oauth_token_callback"] = token_source(asked)
    return arguments


def admin_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """What an admin client takes of a consumer's or a producer's settings: those that every client has."""
    names = {key.replace(".", "_") for key in SHARED}
    return {
        name: value
        for name, value in client_arguments(settings).items()
        if name in names or name.startswith(("security_", "ssl_", "sasl_"))
    }
