"""Consistency contexts: metadata that never goes back in time, across clients and processes (KIP-1243).

A context says how far a cluster's metadata was when somebody saw it. Clients that share a store send the latest one
with their requests, and a broker that is not as far waits, or refuses with STALE_METADATA, which is tried again.

A context as bytes, big-endian:

    version: int8 = 1 | token: int64, -1 if unknown | cluster id: int16 length (0 if unknown), UTF-8 | CRC-32C: uint32

A context as JSON, in any order:

    {"version": 1, "cluster_id": "Some-Cluster-Id", "token": 4711}
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar

from tidelog.base.errors import Code, ConsistencyContextError, KafkaError, refusal
from tidelog.records.crc32c import crc32c
from tidelog.wire.frame import NO_TOKEN_YET, ConsistencyState

FORMAT_VERSION = 1
"""Of both forms. Another one is refused: what it means is not known here."""
CLUSTER_ID_BYTES_MAX = 255
TOKEN_MAX = 2**63 - 1

_HEAD = struct.Struct(">bqh")
_CRC = struct.Struct(">I")
_KEYS = frozenset(("version", "cluster_id", "token"))


@dataclass(frozen=True, slots=True)
class ConsistencyContext:
    """How recent the metadata of one cluster is. Compare contexts of one cluster only.

    To carry one to another process, send `to_bytes()` or `to_json()`, and give `from_bytes` or `from_json` of it to a
    store there. A context can also be pickled.

    Args:
        cluster_id: the cluster; None if nothing is known yet.
        token: see there.

    Raises:
        ConsistencyContextError: a value is of another type or out of range, or one is known and the other is not.
    """

    cluster_id: str | None = None
    token: int | None = None
    """The inclusive last offset of the cluster's metadata log; None if nothing is known yet."""

    def __post_init__(self) -> None:
        cluster_id, token = self.cluster_id, self.token
        if cluster_id is not None and (not isinstance(cluster_id, str) or not _is_cluster_id(cluster_id)):
            raise ConsistencyContextError(
                f"cluster_id={cluster_id!r}: text of 1 to {CLUSTER_ID_BYTES_MAX} bytes of UTF-8 is expected, or None"
            )
        if token is not None and (not isinstance(token, int) or isinstance(token, bool) or not 0 <= token <= TOKEN_MAX):
            raise ConsistencyContextError(
                f"token={token!r}: an offset of the metadata log is expected, from 0 to {TOKEN_MAX}, or None"
            )
        if (cluster_id is None) != (token is None):
            raise ConsistencyContextError(
                f"cluster_id={cluster_id!r}, token={token!r}: a token means something in its own cluster only:"
                " both are expected, or neither"
            )

    @classmethod
    def unknown(cls) -> ConsistencyContext:
        """The context of who has seen nothing yet."""
        return cls(None, None)

    @property
    def is_unknown(self) -> bool:
        return self.cluster_id is None or self.token is None

    def later(self, other: ConsistencyContext) -> ConsistencyContext:
        """The more recent of the two.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID if they are of different clusters.
        """
        if other.is_unknown:
            return self
        if self.is_unknown:
            return other
        if self.cluster_id != other.cluster_id:
            raise foreign_cluster(self, other.cluster_id)
        return other if (other.token or 0) > (self.token or 0) else self

    # To other processes.
    def to_bytes(self) -> bytes:
        """The context as a few bytes, for `from_bytes`."""
        cluster_id = b"" if self.cluster_id is None else self.cluster_id.encode()
        head = _HEAD.pack(FORMAT_VERSION, -1 if self.token is None else self.token, len(cluster_id))
        return head + cluster_id + _CRC.pack(crc32c(head + cluster_id))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> ConsistencyContext:
        """The context that `to_bytes` returned, perhaps in another process.

        Raises:
            ConsistencyContextError: the bytes are no context, are damaged, or have the format of another version.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ConsistencyContextError(f"from_bytes({data!r}): bytes are expected, as to_bytes returns them")
        data = bytes(data)
        size_min = _HEAD.size + _CRC.size
        if len(data) < size_min:
            raise ConsistencyContextError(f"{len(data)} bytes are no consistency context: one has at least {size_min}")
        version, token, size = _HEAD.unpack_from(data)
        _check_version(version)
        cluster_id, rest = data[_HEAD.size : -_CRC.size], data[-_CRC.size :]
        if crc32c(data[: -_CRC.size]) != _CRC.unpack(rest)[0] or size != len(cluster_id):
            raise ConsistencyContextError(
                "these bytes are no consistency context, or a damaged one: the checksum differs"
            )
        try:
            text = cluster_id.decode()
        except UnicodeDecodeError:
            raise ConsistencyContextError(f"the cluster id {cluster_id!r} is not UTF-8") from None
        return cls(text or None, None if token == -1 else token)

    def to_json(self) -> str:
        """The context as a JSON object, for `from_json`."""
        import json

        return json.dumps({"version": FORMAT_VERSION, "cluster_id": self.cluster_id, "token": self.token})

    @classmethod
    def from_json(cls, text: str | bytes | bytearray) -> ConsistencyContext:
        """The context that `to_json` returned, perhaps in another process.

        Raises:
            ConsistencyContextError: the text is not JSON or no context, or has the format of another version.
        """
        if not isinstance(text, str | bytes | bytearray):
            raise ConsistencyContextError(f"from_json({text!r}): text is expected, as to_json returns it")
        import json

        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConsistencyContextError(
                f"a consistency context is a JSON object, and this is no JSON: {error}"
            ) from None
        if not isinstance(found, dict):
            raise ConsistencyContextError(f"a consistency context is a JSON object, not a {type(found).__name__}")
        if "version" in found:
            _check_version(found["version"])
        if found.keys() != _KEYS:
            listed = ", ".join(sorted(_KEYS))
            raise ConsistencyContextError(
                f"a consistency context has the keys {listed}, and this one {', '.join(sorted(found)) or 'none'}"
            )
        return cls(found["cluster_id"], found["token"])


class ConsistencyContextStore:
    """The latest context that any of the clients sharing the store has seen.

    Any number of clients may share one, blocking clients and those of `tidelog.aio` alike, on any threads and event
    loops. A store is for one cluster: clients of two clusters have a store each. A subclass that overrides `read` and
    `store_latest` may keep the context elsewhere; both are called for each request, and must neither block nor raise.

    Args:
        context: where to start, for instance what another process saw; by default nothing is known.
    """

    def __init__(self, context: ConsistencyContext | None = None) -> None:
        if context is not None and not isinstance(context, ConsistencyContext):
            raise ConsistencyContextError(f"ConsistencyContextStore({context!r}): a ConsistencyContext is expected")
        self._context = context or ConsistencyContext.unknown()
        self._lock = Lock()

    @staticmethod
    def eventually_consistent() -> ConsistencyContextStore:
        """A store that stays empty: its clients send no tokens, and metadata may go back in time between brokers."""
        return _EventuallyConsistentStore()

    def read(self) -> ConsistencyContext:
        """The latest context."""
        return self._context

    def store_latest(self, context: ConsistencyContext) -> bool:
        """Keep `context` if it is later than what is stored. Returns whether it was.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID if it is of another cluster.
        """
        with self._lock:
            later = self._context.later(context)
            changed = later is not self._context
            self._context = later
        return changed

    # What connections ask of it.
    def state(self) -> ConsistencyState | None:
        """What to put into request headers. "None yet" as well: a broker sends tokens only to who sends the tag."""
        context = self.read()
        return NO_TOKEN_YET if context.is_unknown else ConsistencyState(context.cluster_id, context.token)

    def on_state(self, state: ConsistencyState) -> None:
        """What came in a response header."""
        if state.token is None or state.cluster_id is None:
            return
        known = self.read()
        if known.cluster_id != state.cluster_id or known.token is None or state.token > known.token:
            self.store_latest(ConsistencyContext(state.cluster_id, state.token))


class _EventuallyConsistentStore(ConsistencyContextStore):
    """See `ConsistencyContextStore.eventually_consistent`."""

    _UNKNOWN: ClassVar = ConsistencyContext.unknown()

    def read(self) -> ConsistencyContext:
        return self._UNKNOWN

    def store_latest(self, context: ConsistencyContext) -> bool:
        return False

    def state(self) -> ConsistencyState | None:
        return None

    def on_state(self, state: ConsistencyState) -> None:
        pass


def foreign_cluster(context: ConsistencyContext, cluster_id: str | None) -> KafkaError:
    """The error of a broker, or a context, of another cluster than this one's."""
    return refusal(
        Code.INCONSISTENT_CLUSTER_ID,
        f"the cluster here is {cluster_id}, and this consistency context is of {context.cluster_id}:"
        " clients of different clusters cannot share one. Give the clients of each cluster a store of their own",
    )


def _is_cluster_id(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= CLUSTER_ID_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _check_version(version: object) -> None:
    if version != FORMAT_VERSION or isinstance(version, bool | float):
        raise ConsistencyContextError(
            f"the consistency context has format version {version!r}; this version of Tidelog reads {FORMAT_VERSION}"
        )
