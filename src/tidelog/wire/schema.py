"""Messages as declarations: the class is the type (PEP 681), and codecs are compiled from it per version.

    @message(api_key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = field(string, doc="The group.")
        generation_id: int = field(int32, doc="The generation the member believes is current.")
        group_instance_id: str | None = field(string, versions="3+", nullable="3+", default=None, doc="(KIP-345)")

Fields stand in wire order. A message takes keyword arguments only; a struct positional ones too, unless it is declared
`@struct(kw_only=True)` because optional fields stand before required ones. Versions are written as Kafka does: "3",
"3-13", "9+", "none".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, dataclass_transform, overload
from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID

T = TypeVar("T")
C = TypeVar("C")

_VERSION_END = 1 << 15  # versions are int16
_MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<missing>"})()
Kind = Literal["request", "response", "record", "data"]


class WireType(Generic[T]):
    """How one value lies on the wire; `T` is what it is in Python."""

    __slots__ = ("code", "element", "kind", "layout", "name", "size_bytes_min", "zero")

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        code: str = "",
        size_bytes_min: int = 0,
        zero: Any = None,
        element: WireType[Any] | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.code = code  # the format of `struct`, for kinds "fixed" and "uuid"
        self.size_bytes_min = size_bytes_min  # of kinds "fixed" and "uuid"
        self.zero = zero  # the default that Kafka gives it, for immutable values
        self.element = element
        self.layout = layout

    def __repr__(self) -> str:
        return self.name


int8 = WireType[int]("fixed", "int8", code="b", size_bytes_min=1, zero=0)
int16 = WireType[int]("fixed", "int16", code="h", size_bytes_min=2, zero=0)
int32 = WireType[int]("fixed", "int32", code="i", size_bytes_min=4, zero=0)
int64 = WireType[int]("fixed", "int64", code="q", size_bytes_min=8, zero=0)
uint16 = WireType[int]("fixed", "uint16", code="H", size_bytes_min=2, zero=0)
uint32 = WireType[int]("fixed", "uint32", code="I", size_bytes_min=4, zero=0)
float64 = WireType[float]("fixed", "float64", code="d", size_bytes_min=8, zero=0.0)
boolean = WireType[bool]("fixed", "boolean", code="?", size_bytes_min=1, zero=False)
uuid = WireType[UUID]("uuid", "uuid", code="16s", size_bytes_min=16, zero=ZERO_UUID)
string = WireType[str]("string", "string", zero="")
bytes_ = WireType[bytes]("bytes", "bytes", zero=b"")
records = WireType[Any]("records", "records", zero=None)
"""Record batches, never copied: decoded to a `memoryview` of the frame, encoded from anything with a length."""


@overload
def array(element: WireType[T]) -> WireType[list[T]]: ...
@overload
def array(element: type[T]) -> WireType[list[T]]: ...
def array(element: Any) -> Any:
    """A list of values of a wire type or of a `@struct` class."""
    inner = _wire_type(element)
    return WireType("array", f"array({inner.name})", element=inner)


class FieldSpec:
    """One declared field: where it lies, in which versions, and what it is when absent."""

    __slots__ = (
        "default", "default_factory", "doc", "ignorable", "name", "nullable", "tag", "tagged", "type", "versions",
    )  # fmt: skip

    def __init__(
        self,
        wire_type: WireType[Any],
        *,
        versions: range,
        nullable: range,
        tag: int | None,
        tagged: range,
        default: Any,
        default_factory: Callable[[], Any] | None,
        ignorable: bool,
        doc: str,
    ) -> None:
        self.name = ""
        self.type = wire_type
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.default = default
        self.default_factory = default_factory
        self.ignorable = ignorable
        self.doc = doc

    @property
    def is_required(self) -> bool:
        """Whether who builds the message must give a value."""
        return self.default is _MISSING and self.default_factory is None

    def is_tagged_in(self, version: int) -> bool:
        """Whether this version carries the field, and does so as a tagged one."""
        return version in self.versions and version in self.tagged

    def make_default(self) -> Any:
        """What the field holds when the version at hand does not carry it (a new list each time)."""
        if self.default_factory is not None:
            return self.default_factory()
        if self.default is not _MISSING:
            return self.default
        return [] if self.type.kind == "array" else self.type.zero


class Layout:
    """What a declared class looks like on the wire; for messages also its key, its versions and its compiled codecs."""

    __slots__ = (
        "api_key",
        "cls",
        "codecs",
        "decoders",
        "encoders",
        "fields",
        "flexible",
        "kind",
        "lossy_decoders",
        "name",
        "sources",
        "versions",
    )

    def __init__(self, cls: type[Any], fields: tuple[FieldSpec, ...]) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.fields = fields
        self.api_key = -1
        self.versions = range(0)
        self.flexible = range(0)
        self.kind: Kind | None = None  # None: a struct, which lives inside messages only
        self.codecs: dict[int, Any] = {}  # of the compiled kernel, by version as those below
        self.encoders: dict[int, Any] = {}
        self.decoders: dict[int, Any] = {}
        self.lossy_decoders: dict[int, Any] = {}  # for strings that are not UTF-8
        self.sources: dict[Any, Any] = {}  # of each codec, to name the field at which it failed


def parse_versions(text: str) -> range:
    """The versions that "3", "3-13", "9+" or "none" name. Raises ValueError for other texts."""
    if text in ("", "none"):
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _VERSION_END)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


@overload
def field(
    wire_type: WireType[T] | type[T],
    *,
    versions: str = ...,
    tag: int | None = ...,
    tagged: str = ...,
    default: T = ...,
    default_factory: Callable[[], T] = ...,
    ignorable: bool = ...,
    doc: str = ...,
) -> T: ...
@overload
def field(
    wire_type: WireType[T] | type[T],
    *,
    versions: str = ...,
    nullable: str = ...,
    tag: int | None = ...,
    tagged: str = ...,
    default: None,
    ignorable: bool = ...,
    doc: str = ...,
) -> T | None: ...
@overload
def field(
    wire_type: WireType[T] | type[T],
    *,
    versions: str = ...,
    nullable: str,
    tag: int | None = ...,
    tagged: str = ...,
    default: T = ...,
    default_factory: Callable[[], T] = ...,
    ignorable: bool = ...,
    doc: str = ...,
) -> T | None: ...
def field(
    wire_type: Any,
    *,
    versions: str = "0+",
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
    ignorable: bool = False,
    doc: str = "",
) -> Any:
    """Declare a field.

    Args:
        wire_type: a wire type, `array(...)`, or a `@struct` class.
        versions: the versions that carry it; in others it holds its default.
        nullable: the versions in which it may be None on the wire.
        tag: its number if it is a tagged field; then it is left out while it holds its default.
        tagged: the versions in which it is tagged, if not in all of `versions`.
        default: its value when it is not given and not carried; without one it is required. A tagged struct has None
            here: absent.
        default_factory: makes the default, for lists; and for a tagged struct that may be None on the wire: absent
            is then what it makes.
        ignorable: dropped without a word by versions that do not carry it; other fields refuse to be dropped unless
            they hold their default.
        doc: what it means.
    """
    carried = parse_versions(versions)
    in_tags = range(0) if tag is None else parse_versions(tagged) if tagged else carried
    return FieldSpec(
        _wire_type(wire_type),
        versions=carried,
        nullable=parse_versions(nullable),
        tag=tag,
        tagged=in_tags,
        default=default,
        default_factory=default_factory,
        ignorable=ignorable,
        doc=doc,
    )


@dataclass_transform(field_specifiers=(field,), kw_only_default=True)
def message(
    *, api_key: int, versions: str, flexible: str = "none", kind: Kind | None = None
) -> Callable[[type[C]], type[C]]:
    """Declare a message: a request, a response, a metadata record, or data of another kind.

    Args:
        api_key: the API's key, or the type of a metadata record; unique within its kind only.
        versions: all versions there are.
        flexible: those with compact lengths and tagged fields (KIP-482).
        kind: by default "request" or "response" as the class's name ends, else "data".
    """

    def declare(cls: type[C]) -> type[C]:
        declared = _declare(cls, kw_only=True)
        layout = layout_of(declared)
        layout.api_key = api_key
        layout.versions = parse_versions(versions)
        layout.flexible = parse_versions(flexible)
        name = cls.__name__
        layout.kind = kind or (
            "request" if name.endswith("Request") else "response" if name.endswith("Response") else "data"
        )
        return declared

    return declare


@overload
@dataclass_transform(field_specifiers=(field,))
def struct(cls: type[C], /) -> type[C]: ...
@overload
def struct(*, kw_only: bool = False) -> Callable[[type[C]], type[C]]: ...
def struct(cls: type[C] | None = None, /, *, kw_only: bool = False) -> Any:
    """Declare a part of messages, with versions those of the message that it is in."""
    if cls is None:
        return lambda cls: _declare(cls, kw_only=kw_only)
    return _declare(cls, kw_only=kw_only)


def layout_of(cls: type[Any]) -> Layout:
    """The layout of a declared class. Raises TypeError for others."""
    layout = getattr(cls, "__layout__", None)
    if not isinstance(layout, Layout):
        raise TypeError(f"{cls!r} is neither a @message nor a @struct")
    return layout


def _wire_type(declared: Any) -> WireType[Any]:
    if isinstance(declared, WireType):
        return declared
    layout = layout_of(declared)
    return WireType("struct", layout.name, layout=layout)


def _declare(cls: type[C], *, kw_only: bool) -> type[C]:
    """Rebuild `cls` with slots for its fields, and with __init__, __eq__ and __repr__."""
    namespace = {key: value for key, value in vars(cls).items() if key not in ("__dict__", "__weakref__")}
    fields = []
    for name in cls.__annotations__:
        spec = namespace.get(name)
        if not isinstance(spec, FieldSpec):
            continue  # a ClassVar, for instance
        del namespace[name]
        spec.name = name
        _check_field(cls.__name__, spec)
        fields.append(spec)
    namespace["__slots__"] = tuple(spec.name for spec in fields)
    namespace["__init__"] = _make_init(cls.__name__, fields, kw_only)
    namespace["__eq__"] = _equal
    namespace["__hash__"] = None
    namespace.setdefault("__repr__", _repr)  # a message with a secret has one that does not show it
    metaclass: Any = type(cls)
    declared = metaclass(cls.__name__, cls.__bases__, namespace)
    declared.__qualname__ = cls.__qualname__
    declared.__layout__ = Layout(declared, tuple(fields))
    return declared  # type: ignore[no-any-return]


def _check_field(owner: str, spec: FieldSpec) -> None:
    where = f"{owner}.{spec.name}"
    if spec.tag is not None and spec.is_required:
        raise TypeError(f"{where}: a tagged field needs a default, for when it is absent")
    may_be_left_out = spec.tag is not None or spec.versions.start > 0
    has_null_beside_default = spec.tag is not None and spec.nullable and spec.default_factory is not None
    if spec.type.kind == "struct" and spec.default is not None and may_be_left_out and not has_null_beside_default:
        raise TypeError(f"{where}: a struct that some messages leave out needs default=None")
    if isinstance(spec.default, list | dict | set | bytearray):
        raise TypeError(f"{where}: a mutable default would be shared; use default_factory")


def _make_init(owner: str, fields: list[FieldSpec], kw_only: bool) -> Any:
    parameters = ["self"] + (["*"] if kw_only and fields else [])
    body = []
    values: dict[str, Any] = {"_MISSING": _MISSING}
    optional_seen = ""
    for number, spec in enumerate(fields):
        name = spec.name
        if spec.default_factory is not None:
            values[f"_f{number}"] = spec.default_factory
            parameters.append(f"{name}=_MISSING")
            body.append(f" self.{name} = _f{number}() if {name} is _MISSING else {name}")
            optional_seen = optional_seen or name
            continue
        if spec.is_required:
            if optional_seen and not kw_only:
                raise TypeError(
                    f"{owner}.{name} is required, but stands after {optional_seen}, which is not: "
                    "give it a default or declare @struct(kw_only=True)"
                )
            parameters.append(name)
        else:
            values[f"_d{number}"] = spec.default
            parameters.append(f"{name}=_d{number}")
            optional_seen = optional_seen or name
        body.append(f" self.{name} = {name}")
    source = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass")
    exec(source, values)  # noqa: S102 - of names that the declaration holds, as dataclasses do
    return values["__init__"]


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _repr(self: Any) -> str:
    parts = []
    for name in self.__slots__:
        value = getattr(self, name, "<unset>")
        text = f"<{len(value)} bytes>" if isinstance(value, memoryview) else repr(value)
        parts.append(f"{name}={text}")
    return f"{type(self).__name__}({', '.join(parts)})"
