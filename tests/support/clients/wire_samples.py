"""Values for every declared message, derived from its declaration: hypothesis strategies, and one fixed sample."""

from __future__ import annotations

from typing import Any
from uuid import UUID
from zlib import crc32

from hypothesis import strategies as st

from tidelog.wire.api import APIS, OWN_SINCE, ApiKey
from tidelog.wire.schema import FieldSpec, Layout, WireType, layout_of

LENGTHS_OF_NOTE = (0, 1, 126, 127, 128, 300)  # around the first step of a varint's size


def all_messages() -> list[tuple[type[Any], int]]:
    """Every declared request and response, in every version."""
    return [
        (cls, version)
        for api in APIS.values()
        for cls in (api.request, api.response)
        for version in layout_of(cls).versions
    ]


def message_id(cls: type[Any], version: int) -> str:
    return f"{cls.__name__}-v{version}"


ALL_MESSAGES = all_messages()
ALL_MESSAGE_IDS = [message_id(cls, version) for cls, version in ALL_MESSAGES]

NODES_ONLY = {
    ApiKey.STOP_REPLICA,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
}
"""What nodes say to each other, and a few orders to the quorum: kafka-python does not know them. All but StopReplica,
which it dropped, are compared with what Apache Kafka reads."""

TRANSACTIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
}

SHARE_GROUPS = {
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}

DELEGATION_TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}

OURS = {key for key in ApiKey if key >= OWN_SINCE}
NOT_IN_KAFKA_PYTHON = (
    {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE} | SHARE_GROUPS | DELEGATION_TOKENS
)

READ_BY_KAFKA: dict[ApiKey, int] = {
    **dict.fromkeys((NODES_ONLY - {ApiKey.STOP_REPLICA}) | TRANSACTIONS | NOT_IN_KAFKA_PYTHON, 0),
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
}
"""What is compared with what Apache Kafka reads, from which version on."""

READ_BY_KAFKA_MESSAGES = [
    (cls, version)
    for cls, version in ALL_MESSAGES
    if version >= READ_BY_KAFKA.get(ApiKey(layout_of(cls).api_key), version + 1)
]

SHARED_MESSAGES = [
    (cls, version)
    for cls, version in ALL_MESSAGES
    if layout_of(cls).api_key not in NODES_ONLY | NOT_IN_KAFKA_PYTHON | OURS
]
"""What kafka-python knows as well."""
SHARED_MESSAGE_IDS = [message_id(cls, version) for cls, version in SHARED_MESSAGES]

OURS_TAG_MIN = 10_000
"""Tagged fields of ours, in messages of Kafka's, are far from those of others."""

_bits = {"b": 8, "h": 16, "i": 32, "q": 64}
_TEXT = st.one_of(st.text(max_size=6), st.sampled_from(LENGTHS_OF_NOTE).map(lambda size: "ü" * size))
_BYTES = st.one_of(st.binary(max_size=6), st.sampled_from(LENGTHS_OF_NOTE).map(bytes))


def is_ours(spec: FieldSpec) -> bool:
    """Whether Kafka knows no such field."""
    return spec.tag is not None and spec.tag >= OURS_TAG_MIN


def messages(cls: type[Any], version: int, *, with_ours: bool = True) -> st.SearchStrategy[Any]:
    """Messages of a version: fields it does not carry hold their defaults. So do ours, where others are to read it."""
    return _struct(layout_of(cls), version, with_ours)


def _has(spec: FieldSpec, version: int, with_ours: bool) -> bool:
    return version in spec.versions and (with_ours or not is_ours(spec))


def _struct(layout: Layout, version: int, with_ours: bool) -> st.SearchStrategy[Any]:
    fields = {spec.name: _field(spec, version, with_ours) for spec in layout.fields if _has(spec, version, with_ours)}
    absent = {spec.name: spec.make_default() for spec in layout.fields if spec.name not in fields}
    return st.fixed_dictionaries(fields).map(lambda values: layout.cls(**values, **absent))


def _field(spec: FieldSpec, version: int, with_ours: bool) -> st.SearchStrategy[Any]:
    values = _value(spec.type, version, with_ours)
    if spec.is_tagged_in(version):
        values = st.one_of(st.builds(spec.make_default), values)
    return st.one_of(st.none(), values) if version in spec.nullable else values


def _value(wire_type: WireType[Any], version: int, with_ours: bool) -> st.SearchStrategy[Any]:
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return _struct(wire_type.layout, version, with_ours)
    if wire_type.kind == "array":
        assert wire_type.element is not None
        items = _value(wire_type.element, version, with_ours)
        few = st.lists(items, max_size=3)
        if wire_type.element.kind != "fixed":
            return few
        return st.one_of(few, st.sampled_from(LENGTHS_OF_NOTE).map(lambda size: [5] * size))
    if wire_type.kind == "fixed":
        if wire_type.code == "?":
            return st.booleans()
        if wire_type.code == "d":
            return st.floats(allow_nan=False)
        if wire_type.code in "HI":
            return st.integers(0, 0xFFFF if wire_type.code == "H" else 0xFFFF_FFFF)
        half = 1 << (_bits[wire_type.code] - 1)
        return st.integers(-half, half - 1)
    return {"uuid": st.uuids(), "string": _TEXT, "bytes": _BYTES, "records": _BYTES}[wire_type.kind]


def sample(cls: type[Any], version: int, *, with_ours: bool = True) -> Any:
    """The same message in every run: every field it carries is set, each to a value of its own."""
    return _sample_struct(layout_of(cls), version, cls.__name__, with_ours)


def minimal(cls: type[Any], version: int) -> Any:
    """The least that a request says: what has no default is empty, or 9."""
    return _minimal(layout_of(cls), version)


def _minimal(layout: Layout, version: int) -> Any:
    return layout.cls(**{spec.name: _minimal_value(spec, version) for spec in layout.fields})


def _minimal_value(spec: FieldSpec, version: int) -> Any:
    if not spec.is_required:
        default = spec.make_default()
        is_null_refused = default is None and version in spec.versions and version not in spec.nullable
        return [] if is_null_refused and spec.type.kind == "array" else default
    if spec.type.kind == "struct":
        assert spec.type.layout is not None
        return _minimal(spec.type.layout, version)
    return 9 if spec.type.kind == "fixed" else spec.make_default()


def _sample_struct(layout: Layout, version: int, path: str, with_ours: bool) -> Any:
    return layout.cls(
        **{
            spec.name: _sample_value(spec.type, version, f"{path}.{spec.name}", with_ours)
            if _has(spec, version, with_ours)
            else spec.make_default()
            for spec in layout.fields
        }
    )


def _sample_value(wire_type: WireType[Any], version: int, path: str, with_ours: bool) -> Any:
    number = crc32(path.encode())
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return _sample_struct(wire_type.layout, version, path, with_ours)
    if wire_type.kind == "array":
        assert wire_type.element is not None
        return [_sample_value(wire_type.element, version, f"{path}[{index}]", with_ours) for index in range(2)]
    if wire_type.kind == "fixed":
        if wire_type.code == "?":
            return True
        if wire_type.code == "d":
            return number / 8
        if wire_type.code == "H":
            return (number | 0x8000) & 0xFFFF  # as no int16 could be
        return number * 0x1_0000_0001 >> 1 & (1 << (_bits[wire_type.code] - 1)) - 1
    return {
        "uuid": UUID(int=number * 0x1_0000_0001_0000_0001),
        "string": path[-9:],
        "bytes": path.encode(),
        "records": path.encode()[-9:] * 15,
    }[wire_type.kind]
