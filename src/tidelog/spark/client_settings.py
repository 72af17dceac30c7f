"""Kafka's client settings, as `kafka.*` options spell them, for our clients.

What our clients have no counterpart for is refused rather than dropped: whoever set it counts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from tidelog.base.errors import ConfigError


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def _acks(text: str) -> int | str:
    if text not in {"all", "-1", "0", "1"}:
        raise ValueError("all, 1 or 0 is expected")
    return "all" if text in {"all", "-1"} else int(text)


_Parse = Callable[[str], object]
_SHARED: dict[str, _Parse] = {
    "bootstrap.servers": str,
    "client.id": str,
    "default.api.timeout.ms": int,
    "metadata.max.age.ms": int,
    "reconnect.backoff.max.ms": int,
    "reconnect.backoff.ms": int,
    "request.timeout.ms": int,
    "retry.backoff.max.ms": int,
    "retry.backoff.ms": int,
    "socket.connection.setup.timeout.ms": int,
}
_CONSUMER: dict[str, _Parse] = {
    "check.crcs": _boolean,
    "fetch.max.bytes": int,
    "fetch.max.wait.ms": int,
    "fetch.min.bytes": int,
    "isolation.level": str,
    "max.partition.fetch.bytes": int,
}
_PRODUCER: dict[str, _Parse] = {
    "acks": _acks,
    "batch.size": int,
    "buffer.memory": int,
    "compression.type": str,
    "delivery.timeout.ms": int,
    "enable.idempotence": _boolean,
    "linger.ms": int,
    "max.block.ms": int,
    "max.in.flight.requests.per.connection": int,
    "max.request.size": int,
    "transaction.timeout.ms": int,
}
_REFUSED = {
    "auto.offset.reset": "where to start is said by startingOffsets, and what to do about losses by onTruncation",
    "enable.auto.commit": "Spark's checkpoint holds the offsets; nothing is committed to the brokers",
    "interceptor.classes": "Java classes cannot be loaded here",
    "transactional.id": "delivery=exactly-once makes those of its tasks, from sinkId",
    "key.deserializer": "keys are binary; cast the column",
    "key.serializer": "keys are strings or binary; cast the column",
    "value.deserializer": "values are binary; cast the column",
    "value.serializer": "values are strings or binary; cast the column",
}


def client_settings(given: Mapping[str, str], *, consumer: bool) -> dict[str, object]:
    """Keyword arguments for our clients.

    Args:
        given: Kafka's keys, without `kafka.`, to text.
        consumer: for a reader; else for a writer.

    Raises:
        ConfigError: names a key that has no counterpart, with the closest that has, or a value that cannot be.
    """
    table = {**_SHARED, **(_CONSUMER if consumer else _PRODUCER)}
    settings: dict[str, object] = {}
    for key, text in given.items():
        if key == "group.id" and consumer:
            # There is no consumer group. Brokers and their logs know the reader by its client id.
            settings.setdefault("client_id", text)
            continue
        if key in _REFUSED:
            raise ConfigError(f"option kafka.{key} is not supported: {_REFUSED[key]}")
        if key not in table:
            close = get_close_matches(key, table, n=1, cutoff=0.5)
            hint = f"did you mean kafka.{close[0]}?" if close else f"there are {', '.join(sorted(table))}"
            raise ConfigError(f"option kafka.{key} has no counterpart in this client; {hint}")
        try:
            settings[key.replace(".", "_")] = table[key](text)
        except ValueError as error:
            raise ConfigError(f"option kafka.{key}={text}: {error}") from None
    return settings


def admin_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Those of a consumer's or a producer's settings that every client has."""
    names = {key.replace(".", "_") for key in _SHARED}
    return {name: value for name, value in settings.items() if name in names}
