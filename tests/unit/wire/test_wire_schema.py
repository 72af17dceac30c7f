"""Declarations: the classes they make, and what they refuse."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import ClassVar

import pytest

import tidelog
from tidelog.base.errors import Code, KafkaError
from tidelog.wire import APIS, ApiKey, api, decode, encode
from tidelog.wire.messages.api_00_produce import NodeEndpoint, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_01_fetch import FetchPartition
from tidelog.wire.schema import (
    array,
    boolean,
    bytes_,
    field,
    float64,
    int8,
    int32,
    layout_of,
    message,
    parse_versions,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Level(IntEnum):
    HIGH = 3


@struct
class Point:
    """Two numbers, and a third from version 2."""

    x: int = field(int8)
    y: int = field(int8, default=7)
    z: int = field(int8, versions="2+", default=0)


@message(api_key=1, versions="0-2", flexible="1+", kind="record")
class Drawing:
    """What the protocol allows and none of the first messages has."""

    LIMIT: ClassVar[int] = 9

    points: list[list[Point]] = field(array(array(Point)), default_factory=list)
    origin: Point | None = field(Point, nullable="0+", default=None)
    names: list[str] = field(array(string), default_factory=list)
    small: int = field(uint16, default=0)
    large: int = field(uint32, default=0)
    scale: float = field(float64, default=1.0)
    raw: bytes = field(bytes_, default=b"")
    maybe_raw: bytes | None = field(bytes_, nullable="0+", default=None)
    level: int = field(int8, versions="2+", default=Level.HIGH)
    visible: bool = field(boolean, versions="1+", tag=3, default=True)
    title: str | None = field(string, versions="1+", nullable="1+", tag=9, default="untitled")
    labels: list[str] | None = field(array(string), versions="1+", nullable="1+", tag=10, default_factory=list)
    corner: Point | None = field(Point, versions="1+", tag=200, default=None)
    margin: Point | None = field(Point, versions="1+", nullable="1+", tag=201, default_factory=lambda: Point(0))

    def count(self) -> int:
        return sum(map(len, self.points))


def drawing() -> Drawing:
    return Drawing(
        points=[[Point(1, 2), Point(-3)], []],
        origin=Point(4),
        names=["a", ""],
        small=65_535,
        large=2**32 - 1,
        scale=-0.5,
        raw=b"raw",
        maybe_raw=b"",
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_kind_of_value_survives(version: int) -> None:
    assert decode(Drawing, encode(drawing(), version), version) == drawing()
    assert decode(Drawing, encode(Drawing(), version), version) == Drawing()


@pytest.mark.parametrize("version", [1, 2])
def test_every_kind_of_tagged_value_survives(version: int) -> None:
    value = drawing()
    value.visible, value.title, value.labels, value.corner = False, None, None, Point(1)
    assert decode(Drawing, encode(value, version), version) == value
    value.labels, value.margin = ["x" * 200], None
    assert decode(Drawing, encode(value, version), version) == value
    value.margin = Point(1)
    assert decode(Drawing, encode(value, version), version) == value


def test_a_nullable_struct_has_a_byte_that_says_whether_it_is_there() -> None:
    there, absent = encode(Drawing(origin=Point(4)), 0), encode(Drawing(), 0)
    assert there[4:7] == b"\1\4\7"
    assert absent[4:5] == b"\xff"
    assert len(there) == len(absent) + 2


def test_a_record_type_is_known_by_its_class_not_by_its_key() -> None:
    layout = layout_of(Drawing)
    assert (layout.api_key, layout.kind, layout.versions) == (1, "record", range(3))
    assert api(1).request is not Drawing


def test_positional_and_keyword_arguments() -> None:
    assert NodeEndpoint(1, "host", 9092) == NodeEndpoint(node_id=1, host="host", port=9092, rack=None)
    assert FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3).current_leader_epoch == -1
    with pytest.raises(TypeError):
        FetchPartition(1, 2, 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="port"):
        NodeEndpoint(1, "host")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="prot"):
        NodeEndpoint(1, "host", prot=9092)  # type: ignore[call-arg]


def test_a_default_list_is_not_shared() -> None:
    first, second = Drawing(), Drawing()
    first.names.append("mine")
    assert second.names == []
    assert decode(Drawing, encode(second, 0), 0).labels is not second.labels


def test_messages_are_compared_by_value_and_print_themselves() -> None:
    assert Point(1) != Point(2)
    other: object = (1, 7, 0)
    assert Point(1) != other
    assert repr(Point(1)) == "Point(x=1, y=7, z=0)"
    data = PartitionProduceData(0, memoryview(b"abc"))
    assert repr(data) == "PartitionProduceData(index=0, records=<3 bytes>)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_messages_have_no_room_for_misspelled_fields() -> None:
    with pytest.raises(AttributeError):
        Point(1).w = 5  # type: ignore[attr-defined]


def test_messages_can_be_copied_and_pickled() -> None:
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[])])
    other = copy.deepcopy(request)
    other.topic_data[0].name = "u"
    assert request.topic_data[0].name == "t"
    assert pickle.loads(pickle.dumps(request)) == request


def test_methods_and_class_variables_stay() -> None:
    assert drawing().count() == 2
    assert Drawing.LIMIT == 9
    assert Drawing.__doc__ == "What the protocol allows and none of the first messages has."


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", range(3, 4)), ("3-13", range(3, 14)), ("9+", range(9, 1 << 15)), ("none", range(0)), ("", range(0))],
)
def test_versions_are_written_as_kafka_writes_them(text: str, versions: range) -> None:
    assert parse_versions(text) == versions


def test_a_required_field_behind_an_optional_one_needs_keywords() -> None:
    with pytest.raises(TypeError, match=r"Late\.second is required, but stands after first"):

        @struct
        class Late:
            first: int = field(int32, default=0)
            second: int = field(int32)  # type: ignore[misc]  # mypy sees it too


def test_a_tagged_field_needs_a_default() -> None:
    with pytest.raises(TypeError, match=r"Tagless\.first: a tagged field needs a default"):

        @struct
        class Tagless:
            first: int = field(int32, tag=0)


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(TypeError, match="use default_factory"):

        @struct
        class Shared:
            first: list[int] = field(array(int32), default=[])


def test_only_declared_classes_can_be_parts() -> None:
    with pytest.raises(TypeError, match="neither a @message nor a @struct"):
        array(int)


@pytest.mark.parametrize("declared", APIS.values(), ids=lambda declared: declared.name)
def test_the_table_of_apis_agrees_with_the_messages(declared: object) -> None:
    assert isinstance(declared, type(api(0)))
    for cls, kind in ((declared.request, "request"), (declared.response, "response")):
        layout = layout_of(cls)
        assert layout.kind == kind
        assert layout.api_key == declared.key
        assert layout.versions == range(declared.min_version, declared.declared_max_version + 1)
        assert declared.max_version in layout.versions
        for version in layout.versions:
            assert declared.is_flexible(version) == (version in layout.flexible)
    assert declared.name.upper() == declared.key.name.replace("_", "")


def test_the_directory_lists_the_apis_that_are_declared() -> None:
    directory = Path(tidelog.__path__[0]) / "wire" / "messages"
    files = {path.stem for path in directory.glob("api_*.py")}
    assert files == {declared.module.rpartition(".")[2] for declared in APIS.values()}


def test_an_api_that_is_not_declared_is_refused() -> None:
    with pytest.raises(KafkaError, match="API key 9999 is not known here") as caught:
        api(9999)
    assert caught.value.code is Code.UNSUPPORTED_VERSION
    assert ApiKey(0) is ApiKey.PRODUCE


def test_message_modules_load_on_first_use() -> None:
    check = "import sys, tidelog.wire; sys.exit(any(m.startswith('tidelog.wire.messages.') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=30).returncode == 0


def test_every_field_says_what_it_means() -> None:
    def undocumented(cls: type[object]) -> list[str]:
        found = []
        for spec in layout_of(cls).fields:
            if not spec.doc:
                found.append(f"{cls.__name__}.{spec.name}")
            element = spec.type.element or spec.type
            if element.layout is not None:
                found += undocumented(element.layout.cls)
        return found

    missing = [name for declared in APIS.values() for name in undocumented(declared.request)]
    missing += [name for declared in APIS.values() for name in undocumented(declared.response)]
    assert missing == []
    assert uuid.name == "uuid"
