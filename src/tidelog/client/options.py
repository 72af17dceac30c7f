"""The arguments of the clients: names, types, defaults, bounds. Kafka's words in snake case; bytes, and ms.

`*Options` are for type checkers (every argument is optional), `*Config` are what the clients work with; a test compares
the two. An argument that does not exist is a TypeError that names the closest one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from tidelog.base.errors import ConfigError, RecordsLostError, TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.client.core.values import RAW, CommittedOffset, Deserializers, PositionReset, ResetPolicy

if TYPE_CHECKING:
    from datetime import timedelta
    from ssl import SSLContext

    from tidelog.client.consistency import ConsistencyContextStore
    from tidelog.client.core.partitioner import ChoosePartition

    Partitioner = Literal["murmur2", "crc32", "fnv1a", "sticky", "round_robin"] | ChoosePartition
    AutoOffsetReset = Literal["earliest", "latest", "closest", "none"] | timedelta
    Start = Literal["earliest", "latest"] | timedelta
    """Where to start what has no position yet."""

C = TypeVar("C", bound="CommonConfig")

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")

INT32_MAX = 2**31 - 1

Acks = Literal["all", "0", "1", -1, 0, 1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
GroupProtocol = Literal["classic", "consumer"]
Isolation = Literal["read_uncommitted", "read_committed"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
EndpointIdentification = Literal["https", ""]
StoreType = Literal["PEM", "PKCS12"]
OAuthToken = str | tuple[str, float | None] | tuple[str, float | None, Mapping[str, str]]
"""A token; until when it is good, in seconds since 1970, or None if that is not known; its extensions (KIP-342)."""


class CommonOptions(TypedDict, total=False):
    """What every client takes. See `CommonConfig`."""

    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    metadata_max_age_ms: int
    receive_message_max_bytes: int
    consistency_context_store: ConsistencyContextStore | None
    security_protocol: SecurityProtocol
    ssl_context: SSLContext | None
    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: StoreType
    ssl_truststore_password: str | None
    ssl_keystore_location: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_type: StoreType
    ssl_keystore_password: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: EndpointIdentification
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_tokenauth: bool
    sasl_oauth_token_callback: Callable[[], OAuthToken | Awaitable[OAuthToken]] | None


class ProducerOptions(CommonOptions, total=False):
    """See `ProducerConfig`."""

    acks: Acks
    enable_idempotence: bool | None
    linger_ms: int
    batch_size: int
    compression_type: CompressionType
    partitioner: Partitioner
    max_in_flight_requests_per_connection: int
    max_request_size: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    allow_auto_create_topics: bool
    on_records_lost: Callable[[RecordsLostError], None] | None


class ConsumerOptions(CommonOptions, total=False):
    """See `ConsumerConfig`."""

    auto_offset_reset: AutoOffsetReset
    client_rack: str
    isolation_level: Isolation
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    check_crcs: bool
    allow_auto_create_topics: bool
    on_reset: Callable[[PositionReset], None] | None
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    on_commit: Callable[[Mapping[TopicPartition, CommittedOffset], TidelogError | None], None] | None


class AdminOptions(CommonOptions, total=False):
    """See `AdminConfig`."""


def _within(default: int, low: int, high: int = INT32_MAX) -> int:
    return field(default=default, metadata={"low": low, "high": high})


def _one_of(*values: object) -> dict[str, object]:
    return {"values": values}


def _secret() -> str | None:
    """A text that no error, log or representation shows."""
    return field(default=None, repr=False, metadata={"is_secret": True})


_DURATION = (
    r"by_duration:P(?=[\dT])(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
"""As Java writes durations."""


def _is_duration(value: object) -> bool:
    from datetime import timedelta

    if isinstance(value, str):
        value = _duration(value)
    return isinstance(value, timedelta) and value >= timedelta()


def _duration(text: str) -> timedelta | None:
    """None for what is none, or too long."""
    import re
    from datetime import timedelta

    found = re.fullmatch(_DURATION, text)
    if found is None:
        return None
    try:
        return timedelta(**{unit: float(amount) for unit, amount in found.groupdict(default="0").items()})
    except OverflowError:
        return None


def reset_policy(config: ConsumerConfig) -> tuple[ResetPolicy, int]:
    """What `auto_offset_reset` says, and how many ms ago a policy by duration begins."""
    from datetime import timedelta

    reset: object = config.auto_offset_reset
    if isinstance(reset, str):
        reset = _duration(reset) or reset
    if isinstance(reset, timedelta):
        return ResetPolicy.BY_DURATION, reset // timedelta(milliseconds=1)
    return ResetPolicy(reset), 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonConfig:
    """What every client takes."""

    client_id: str = "tidelog"
    """What brokers call this client in their logs."""
    request_timeout_ms: int = _within(30_000, 1)
    """How long one request may take; then its connection is closed, and the request tried again."""
    default_api_timeout_ms: int = _within(60_000, 1)
    """How long a call may take, retries included, unless it is given a time of its own. After so long a consumer says
    of a topic that there is none."""
    retry_backoff_ms: int = _within(100, 0)
    """The wait before the first retry of a request; doubled for each further one."""
    retry_backoff_max_ms: int = _within(1_000, 0)
    """The longest wait before a retry."""
    reconnect_backoff_ms: int = _within(50, 0)
    """The wait before connecting again after a failure; doubled for each further one."""
    reconnect_backoff_max_ms: int = _within(1_000, 0)
    """The longest wait before connecting again."""
    socket_connection_setup_timeout_ms: int = _within(10_000, 1)
    """How long connecting to a broker may take, handshake included."""
    metadata_max_age_ms: int = _within(300_000, 1)
    """Ask for metadata after this time even if nothing calls for it."""
    receive_message_max_bytes: int = _within(256 * 1024 * 1024, 1_000)
    """The largest response accepted."""
    consistency_context_store: ConsistencyContextStore | None = None
    """Shared with other clients, so that none is shown older metadata than another has seen (KIP-1243). None: metadata
    may go back in time between brokers."""
    security_protocol: SecurityProtocol = field(
        default="PLAINTEXT", metadata=_one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    """What the brokers' listener speaks: TLS with SSL, and SASL with SASL."""
    ssl_context: SSLContext | None = None
    """For TLS, in the place of all other `ssl_` options."""
    ssl_truststore_location: str | None = None
    """A file with the authorities that may sign the brokers' certificates. None: those of the system."""
    ssl_truststore_certificates: str | None = None
    """The same as text, instead of a file."""
    ssl_truststore_type: StoreType = field(default="PEM", metadata=_one_of("PEM", "PKCS12"))
    """The format of the file; PKCS12 needs `pip install 'tidelog[security]'`."""
    ssl_truststore_password: str | None = _secret()
    """Of a file in PKCS12."""
    ssl_keystore_location: str | None = None
    """A file with the client's certificate, those that lead to an authority, and its key."""
    ssl_keystore_certificate_chain: str | None = None
    """The certificates as text, instead of a file."""
    ssl_keystore_key: str | None = _secret()
    """The key as text, beside `ssl_keystore_certificate_chain`."""
    ssl_keystore_type: StoreType = field(default="PEM", metadata=_one_of("PEM", "PKCS12"))
    """The format of the file; PKCS12 needs `pip install 'tidelog[security]'`."""
    ssl_keystore_password: str | None = _secret()
    """Of a file in PKCS12, and of the key in it."""
    ssl_key_password: str | None = _secret()
    """Of the client's key, if that is encrypted."""
    ssl_endpoint_identification_algorithm: EndpointIdentification = field(
        default="https", metadata=_one_of("https", "")
    )
    """Whether a broker's certificate has to be for the name that the broker is called by; "" does not check it."""
    sasl_mechanism: SaslMechanism | None = field(
        default=None, metadata=_one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", None)
    )
    """How the client says who it is, with SASL."""
    sasl_username: str | None = None
    """The user, for PLAIN and SCRAM."""
    sasl_password: str | None = _secret()
    """The user's password."""
    sasl_tokenauth: bool = False
    """Whether, for SCRAM, `sasl_username` is the id of a delegation token, and `sasl_password` its HMAC in base64
    (KIP-48)."""
    sasl_oauth_token_callback: Callable[[], OAuthToken | Awaitable[OAuthToken]] | None = None
    """Returns a token for OAUTHBEARER, or (token, good until, extensions): seconds since 1970, names to values. It may
    be async; a plain function is called in a thread. It is asked again before the token or the session ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(CommonConfig):
    """What producers take."""

    acks: Acks = field(default="all", metadata=_one_of("all", "0", "1", -1, 0, 1))
    """Who must have a record before it counts as delivered: all in-sync replicas, the leader (1), nobody (0)."""
    enable_idempotence: bool | None = None
    """Whether retries write nothing twice, and losses show. None: yes if acks is "all"; true needs that."""
    linger_ms: int = _within(5, 0)
    """How long a batch that is not full waits for more records."""
    batch_size: int = _within(256 * 1024, 1)
    """Bytes of records after which a batch is full; the topic's max.message.bytes must allow it."""
    compression_type: CompressionType = field(default="none", metadata=_one_of("none", "gzip", "snappy", "lz4", "zstd"))
    """How batches are compressed."""
    partitioner: Partitioner = field(
        default="murmur2",
        metadata={
            **_one_of("murmur2", "crc32", "fnv1a", "sticky", "round_robin"),
            "or": callable,
            "kind": "a function",
        },
    )
    """Where records go for which no partition is named. "murmur2" as with Java's clients, "crc32" as with librdkafka's
    default (confluent-kafka), "fnv1a" as with sarama's; "sticky" and "round_robin" do not look at keys. Or a function
    of the key (bytes or None), all partitions, and those that have a leader: called on the caller's thread for records,
    and on the client's own for columns."""
    max_in_flight_requests_per_connection: int = _within(5, 1)
    """Requests under way to one broker; at most 5 with idempotence."""
    max_request_size: int = _within(1024 * 1024, 1)
    """Bytes of one request, and the largest record."""
    buffer_memory: int = _within(32 * 1024 * 1024, 1, 2**63 - 1)
    """Bytes of records that are not delivered yet; `send` waits while there are more."""
    max_block_ms: int = _within(60_000, 0)
    """How long `send` may wait for metadata or for room in the buffer."""
    delivery_timeout_ms: int = _within(120_000, 1)
    """How long after `send` a record may be delivered, retries included."""
    transactional_id: str | None = None
    """Whose transactions these are: each producer that runs has an id of its own, and keeps it over restarts. A new
    producer fences the one before. None: no transactions."""
    transaction_timeout_ms: int = _within(60_000, 1)
    """How long a transaction may be open: then the coordinator aborts it and fences the producer. At most the brokers'
    transaction.max.timeout.ms."""
    allow_auto_create_topics: bool = True
    """Whether asking for a topic may make the broker create it (if it is set to)."""
    on_records_lost: Callable[[RecordsLostError], None] | None = None
    """Called, on the client's own thread, when it shows that acknowledged records are gone; they are logged anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(CommonConfig):
    """What consumers take."""

    auto_offset_reset: AutoOffsetReset = field(
        default="latest",
        metadata={
            **_one_of("earliest", "latest", "closest", "none"),
            "or": _is_duration,
            "kind": "a timedelta that is not negative",
        },
    )
    """Where to go without a position, or with a lost one. After a truncation all but "none" go to the divergence. A
    `timedelta`, or Kafka's "by_duration:P1DT2H", goes to the first record of so long ago."""
    client_rack: str = ""
    """Where the consumer is: a cluster that selects replicas by rack has it read from a replica there (KIP-392)."""
    isolation_level: Isolation = field(
        default="read_uncommitted", metadata=_one_of("read_uncommitted", "read_committed")
    )
    """Whether records of open and aborted transactions are delivered."""
    fetch_min_bytes: int = _within(1, 0)
    """How much the broker gathers before it answers early."""
    fetch_max_bytes: int = _within(50 * 1024 * 1024, 1)
    """Bytes of one answer, but for a first batch that is larger. Up to two answers a broker are held in advance."""
    fetch_max_wait_ms: int = _within(500, 0)
    """How long the broker waits for `fetch_min_bytes`."""
    max_partition_fetch_bytes: int = _within(1024 * 1024, 1)
    """Bytes of one partition in one answer, but for a first batch that is larger."""
    max_poll_records: int = _within(500, 1)
    """Records that one `poll` returns, unless it is told otherwise."""
    check_crcs: bool = True
    """Whether the checksum of every batch is compared."""
    allow_auto_create_topics: bool = False
    """Whether asking for a topic may make the broker create it (if it is set to)."""
    on_reset: Callable[[PositionReset], None] | None = None
    """Called, on the client's own thread, when a position was reset by policy; it is logged anyway."""
    group_id: str | None = field(default=None, metadata={"not_empty": True})
    """The group whose partitions are shared among its consumers, and that remembers how far they have read."""
    group_instance_id: str | None = field(default=None, metadata={"not_empty": True})
    """A name of this consumer that stays: after a restart within the session it gets the same partitions (KIP-345)."""
    group_protocol: GroupProtocol = field(default="classic", metadata=_one_of("classic", "consumer"))
    """How the group shares: "classic", by one of its consumers; "consumer", by the broker (KIP-848, Kafka 4)."""
    group_remote_assignor: str | None = field(default=None, metadata={"not_empty": True})
    """Which assignor the broker uses, "uniform" or "range". None leaves it to the broker."""
    partition_assignment_strategy: Sequence[str] = field(
        default=("range", "cooperative-sticky"),
        metadata={"each": ("range", "roundrobin", "sticky", "cooperative-sticky"), "kind": "assignors"},
    )
    """How a classic group shares, the best first; all its consumers must have one in common. If all that are named are
    cooperative, a consumer keeps reading while the group rebalances."""
    session_timeout_ms: int = _within(45_000, 1)
    """After so long without a heartbeat a classic group goes on without this consumer."""
    heartbeat_interval_ms: int = _within(3_000, 1)
    """Between two heartbeats to a classic group. A third of the session or less."""
    max_poll_interval_ms: int = _within(300_000, 1)
    """After so long without asking for records the consumer leaves the group; it joins again when it asks."""
    enable_auto_commit: bool = True
    """Whether a consumer in a group commits by itself what the caller was given and came back from."""
    auto_commit_interval_ms: int = _within(5_000, 1)
    """How often it does."""
    on_commit: Callable[[Mapping[TopicPartition, CommittedOffset], TidelogError | None], None] | None = None
    """Called, on the client's own thread, after each commit for which nobody waited: what, and why not, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(CommonConfig):
    """What admin clients take."""


def start_ms(owner: str, start: object) -> int | None:
    """How many ms ago a start by duration is; None for another.

    Raises:
        ConfigError: it is not one of `Start`, or None.
    """
    from datetime import timedelta

    if isinstance(start, timedelta) and start >= timedelta():
        return start // timedelta(milliseconds=1)
    if start is not None and start not in ("earliest", "latest"):
        raise ConfigError(f"{owner}(start={start!r}): one of 'earliest', 'latest', a timedelta is expected")
    return None


def deserializers_of(owner: str, key: object, value: object) -> Deserializers:
    """Raises ConfigError: one cannot be called."""
    for name, given in (("key_deserializer", key), ("value_deserializer", value)):
        if given is not None and not callable(given):
            raise ConfigError(
                f"{owner}({name}={given!r}): something to call is expected, as bytes.decode or json.loads"
            )
    return Deserializers(key, value) if key is not None or value is not None else RAW  # type: ignore[arg-type]


def parse_options(config: type[C], owner: str, options: Mapping[str, object]) -> C:
    """Check what a user gave, and add the defaults.

    Raises:
        TypeError: there is no such argument. Names the closest one.
        ConfigError: a value is not one that is allowed. Names what is.
    """
    known = {spec.name: spec for spec in fields(config)}
    for name, value in options.items():
        spec = known.get(name)
        if spec is None:
            raise TypeError(f"{owner}() has no argument {name!r}{_closest(name, list(known))}")
        _check(owner, name, value, str(spec.type), spec.metadata)
    made = config(**options)  # type: ignore[arg-type]  # checked above
    if any(name.startswith(("security_", "ssl_", "sasl_")) for name in options):
        from tidelog.client.security import check_security

        check_security(owner, made)
    return made


def _closest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    wanted = name.replace(".", "_").replace("-", "_").lower()
    if wanted.startswith(("ssl_", "sasl_", "oauth_")) and wanted not in known:
        from tidelog.client.security import ADVICE

        if wanted in ADVICE:
            return f": {ADVICE[wanted]}"
    found = [wanted] if wanted in known else get_close_matches(wanted, known, n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else f"; it takes bootstrap_servers and {', '.join(sorted(known))}"


_CLASSES = {
    "ConsistencyContextStore | None": ("tidelog.client.consistency", "a ConsistencyContextStore"),
    "SSLContext | None": ("ssl", "an ssl.SSLContext"),
}
"""By annotation, the module that has the class, which is loaded for whoever gives one, and how errors name it."""


def _check(owner: str, name: str, value: object, annotation: str, limits: Mapping[str, Any]) -> None:
    shown = "…" if limits.get("is_secret") else repr(value)
    if "values" in limits:
        if "or" in limits and limits["or"](value):
            return
        if not any(value == allowed and type(value) is type(allowed) for allowed in limits["values"]):
            allowed = ", ".join(repr(allowed) for allowed in limits["values"])
            if "or" in limits:
                allowed += f", {limits['kind']}"
            advice = ""
            if name in ("ssl_truststore_type", "ssl_keystore_type"):
                from tidelog.io.tls import TO_PKCS12

                advice = f". {TO_PKCS12}"
            raise ConfigError(f"{owner}({name}={shown}): one of {allowed} is expected{advice}")
    elif "low" in limits:
        if not isinstance(value, int) or isinstance(value, bool) or not limits["low"] <= value <= limits["high"]:
            raise ConfigError(
                f"{owner}({name}={shown}): a whole number from {limits['low']} to {limits['high']} is expected"
            )
    elif annotation == "bool" and not isinstance(value, bool):
        raise ConfigError(f"{owner}({name}={shown}): True or False is expected")
    elif annotation == "bool | None" and not (value is None or isinstance(value, bool)):
        raise ConfigError(f"{owner}({name}={shown}): True, False or None is expected")
    elif annotation == "str | None" and not (value is None or (isinstance(value, str) and value)):
        raise ConfigError(f"{owner}({name}={shown}): text that is not empty, or None, is expected")
    elif annotation in _CLASSES and value is not None:
        module, expected = _CLASSES[annotation]
        if not isinstance(value, getattr(import_module(module), annotation.removesuffix(" | None"))):
            raise ConfigError(f"{owner}({name}={shown}): {expected}, or None, is expected")
    elif annotation == "str" and not isinstance(value, str):
        raise ConfigError(f"{owner}({name}={shown}): text is expected")
    elif "each" in limits:
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise ConfigError(f"{owner}({name}={shown}): a list of {limits['kind']} is expected")
        for each in value:
            if each not in limits["each"]:
                allowed = ", ".join(limits["each"])
                raise ConfigError(f"{owner}({name}={shown}): {each!r} is none of the {limits['kind']}: {allowed}")
    elif "not_empty" in limits:
        if value is not None and (not isinstance(value, str) or not value):
            raise ConfigError(f"{owner}({name}={shown}): text that is not empty is expected, or None")
    elif annotation.startswith("Callable") and not (value is None or callable(value)):
        raise ConfigError(f"{owner}({name}={shown}): something to call is expected")
