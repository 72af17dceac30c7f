"""The Python source of an encoder, specialised for one message in one version.

Stretches of fixed-size fields, with the length or the empty tag section that follows, are one `struct.pack`; small
parts are gathered in a list and joined once. Record batches are never copied: they go into the list of pieces.
"""

from __future__ import annotations

import struct
from typing import Any

from tidelog.base.errors import Code, refusal
from tidelog.wire import primitives
from tidelog.wire.schema import FieldSpec, Layout, WireType, records
from tidelog.wire.source import Source


class EncoderSource:
    """Writes `encode(m, parts, pieces)`.

    It appends small bytes to `parts`; before a `records` value it moves what is in `parts` to `pieces` as one, then the
    value itself. `_run` collects fixed-size fields that are still to be packed; format "x" is a zero byte.
    """

    def __init__(self, layout: Layout, version: int) -> None:
        self._name = layout.name
        self._version = version
        self._flexible = version in layout.flexible
        self._sink = "w"
        self._run: list[tuple[str, str, str]] = []  # format, value, path
        self._path = ""
        self.source = Source(f"encoder of {layout.name} v{version}")
        self.source.names.update(
            uvarint=primitives.uvarint,
            one_byte=primitives.ONE_BYTE,
            pack=struct.pack,
            join=b"".join,
            refuse=refuse_field,
        )
        self._add("def encode(m, parts, pieces):")
        self.source.depth += 1
        self._add("w = parts.append")
        self._struct(layout, "m", "")
        self._flush()

    def compile(self) -> Any:
        return self.source.compile("encode")

    def _add(self, line: str) -> None:
        self.source.add(line, (0, self._path))

    # Fixed-size fields, gathered.

    def _flush(self, compact_length: str | None = None) -> None:
        """Pack what was gathered, and behind it a varint (one byte, nearly always) if there is one."""
        path = self._path
        last = [("B", compact_length, path)] if compact_length else []
        short = _packed_source(self.source, [*self._run, *last])
        if not short:
            return
        note = [(0, path) for code, _, path in self._run if code != "x"] or [(0, path)]
        if compact_length:
            if self._run:
                long = f"{_packed_source(self.source, self._run)} + uvarint({compact_length})"
                self.source.add(f"{self._sink}({short} if {compact_length} < 128 else {long})", *note)
            else:
                n = compact_length
                self._add(f"{self._sink}(one_byte[{n}] if {n} < 128 else uvarint({n}))")
        else:
            self.source.add(f"{self._sink}({short})", *note)
        self._run.clear()

    # Values.

    def _struct(self, layout: Layout, owner: str, path: str) -> None:
        tagged = []
        for spec in layout.fields:
            if spec.is_tagged_in(self._version):
                tagged.append(spec)
            elif self._version in spec.versions:
                self._value(spec.type, f"{owner}.{spec.name}", f"{path}.{spec.name}", self._version in spec.nullable)
            elif not spec.ignorable:
                self._path = f"{path}.{spec.name}"
                is_set = self._is_set(spec, f"{owner}.{spec.name}")
                self._add(f"if {is_set}: refuse({self._name!r}, {self._version}, {self._path[1:]!r})")
        if self._flexible:
            self._path = f"{path} (tagged fields)"
            self._tags(sorted(tagged, key=lambda spec: spec.tag or 0), owner, path)

    def _is_set(self, spec: FieldSpec, value: str) -> str:
        """An expression: whether a field holds something else than its default."""
        default = spec.make_default()
        if default is None:
            return f"{value} is not None"
        if default == [] and not spec.nullable:
            return value
        if isinstance(default, bool):
            return f"not {value}" if default else value
        plain = type(default) in (int, str, list)  # an enum prints as no literal
        literal = repr(default) if plain else self.source.name("D", default)
        return f"{value} != {literal}"

    def _value(self, wire_type: WireType[Any], value: str, path: str, nullable: bool) -> None:
        self._path = path
        if wire_type.kind == "fixed":
            self._run.append((wire_type.code, value, path))
        elif wire_type.kind == "uuid":
            self._run.append((wire_type.code, f"{value}.int.to_bytes(16)", path))
        elif wire_type.kind == "struct":
            self._inner_struct(wire_type, value, path, nullable)
        elif wire_type.kind == "array":
            self._array(wire_type, value, path, nullable)
        elif wire_type.kind == "records":
            self._records(value, nullable)
        else:
            self._text_or_bytes(wire_type, value, nullable)

    def _inner_struct(
        self, wire_type: WireType[Any], value: str, path: str, nullable: bool, null: bytes = b"\xff"
    ) -> None:
        assert wire_type.layout is not None
        inner = self.source.name("o")
        self._add(f"{inner} = {value}")
        if not nullable:
            self._struct(wire_type.layout, inner, path)
            return
        self._flush()
        self._add(f"if {inner} is None: {self._sink}({null!r})")
        self._add("else:")
        self.source.depth += 1
        self._run.append(("b", "1", path))
        self._struct(wire_type.layout, inner, path)
        self._flush()
        self.source.depth -= 1

    def _length(self, wire_type: WireType[Any], expression: str, null: str | None) -> None:
        """Pack the length behind what was gathered. `null`: the condition under which the value is null."""
        n = self.source.name("n")
        if self._flexible:
            self._add(f"{n} = {expression} + 1" if null is None else f"{n} = 0 if {null} else {expression} + 1")
            self._flush(n)
        else:
            self._add(f"{n} = {expression}" if null is None else f"{n} = -1 if {null} else {expression}")
            self._run.append(("h" if wire_type.kind == "string" else "i", n, self._path))
            self._flush()

    def _text_or_bytes(self, wire_type: WireType[Any], value: str, nullable: bool) -> None:
        raw = self.source.name("b")
        encoded = f"{value}.encode()" if wire_type.kind == "string" else value
        if not nullable:
            self._add(f"{raw} = {encoded}")
            self._length(wire_type, f"len({raw})", None)
            self._add(f"{self._sink}({raw})")
            return
        if wire_type.kind == "string":
            self._add(f"{raw} = {value}")
            self._add(f"if {raw} is not None: {raw} = {raw}.encode()")
        else:
            self._add(f"{raw} = {value}")
        self._length(wire_type, f"len({raw})", f"{raw} is None")
        self._add(f"if {raw}: {self._sink}({raw})")

    def _records(self, value: str, nullable: bool) -> None:
        if self._sink != "w":
            raise TypeError(f"{self._path[1:]}: records in a tagged field are not supported")
        held = self.source.name("r")
        self._add(f"{held} = {value}")
        self._length(records, f"len({held})", f"{held} is None" if nullable else None)
        self._add(f"if {held} is not None and len({held}):")
        self._add(f" pieces.append(join(parts)); parts.clear(); pieces.append({held})")

    def _array(self, wire_type: WireType[Any], value: str, path: str, nullable: bool) -> None:
        element = wire_type.element
        assert element is not None
        items = self.source.name("a")
        self._add(f"{items} = {value}")
        self._length(wire_type, f"len({items})", f"{items} is None" if nullable else None)
        if element.kind == "fixed":
            pack = f"pack(f'>{{len({items})}}{element.code}', *{items})"
            self._add(f"if {items}: {self._sink}({pack})")
            return
        item = self.source.name("e")
        self._add(f"for {item} in {items} or ():" if nullable else f"for {item} in {items}:")
        self.source.depth += 1
        if element.kind == "struct":
            assert element.layout is not None
            self._struct(element.layout, item, f"{path}[]")
        else:
            self._value(element, item, f"{path}[]", nullable=False)
        self._flush()
        self._add("pass")
        self.source.depth -= 1
        self._path = path

    def _tags(self, tagged: list[FieldSpec], owner: str, path: str) -> None:
        """The common case, no tagged field set, is one zero byte behind what was gathered."""
        if not tagged:
            self._run.append(("x", "", path))
            return
        conditions = [self._is_set(spec, f"{owner}.{spec.name}") for spec in tagged]
        before = list(self._run)
        self._add(f"if {' or '.join(conditions)}:")
        self.source.depth += 1
        self._flush()
        outer, tags = self._sink, self.source.name("t")
        self._add(f"{tags} = []")
        for spec, condition in zip(tagged, conditions, strict=True):
            self._add(f"if {condition}:")
            self.source.depth += 1
            parts, self._sink = self.source.name("t"), self.source.name("w")
            self._add(f"{parts} = []; {self._sink} = {parts}.append")
            nullable = self._version in spec.nullable
            value, inner = f"{owner}.{spec.name}", f"{path}.{spec.name}"
            if spec.type.kind == "struct":  # null is 0 here, and -1 elsewhere
                self._inner_struct(spec.type, value, inner, nullable, null=b"\0")
            else:
                self._value(spec.type, value, inner, nullable)
            self._flush()
            raw = self.source.name("b")
            tag = repr(primitives.uvarint(spec.tag or 0))
            self._add(f"{raw} = join({parts}); {tags}.append({tag} + uvarint(len({raw})) + {raw})")
            self.source.depth -= 1
        self._sink = outer
        self._add(f"{outer}(uvarint(len({tags})) + join({tags}))")
        self.source.depth -= 1
        self._add("else:")
        self.source.depth += 1
        self._run = [*before, ("x", "", path)]
        self._flush()
        self.source.depth -= 1


def _packed_source(source: Source, run: list[tuple[str, str, str]]) -> str:
    """An expression for the bytes of a stretch of fields."""
    layout = "".join(code for code, _, _ in run)
    if not layout.strip("x"):
        return repr(bytes(len(layout))) if layout else ""
    values = ", ".join(value for _, value, _ in run if value)
    return f"{source.struct(layout, 'pack')}({values})"


def refuse_field(message: str, version: int, path: str) -> None:
    """Raise for a field that the version cannot carry, and that must not be dropped."""
    advice = "use a newer version or leave it out"
    raise refusal(Code.UNSUPPORTED_VERSION, f"{message} v{version} cannot carry {path}; {advice}")
