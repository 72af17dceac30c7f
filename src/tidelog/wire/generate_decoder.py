"""The Python source of a decoder, specialised for one message in one version.

What makes it fast: structs are decoded in line, every stretch of fixed-size fields (with the length that follows it) is
one `struct.unpack_from`, and no step keeps book of where it is. If a step fails, the line it stands on says which field
that was: `Source.notes` holds the field's path for every line.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tidelog.base.errors import MalformedMessageError, TooManyElementsError
from tidelog.base.ports import Buffer
from tidelog.wire import primitives
from tidelog.wire.schema import FieldSpec, Layout, WireType
from tidelog.wire.source import Source


def size_bytes_min(wire_type: WireType[Any], version: int, flexible: bool) -> int:
    """The least that a value can take, in bytes: what a count is checked against."""
    if wire_type.kind in ("fixed", "uuid"):
        return wire_type.size_bytes_min
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return struct_size_bytes_min(wire_type.layout, version, flexible)
    if flexible:
        return 1
    return 2 if wire_type.kind == "string" else 4


def struct_size_bytes_min(layout: Layout, version: int, flexible: bool) -> int:
    size = 1 if flexible else 0
    for spec in layout.fields:
        if version in spec.versions and not spec.is_tagged_in(version):
            is_nullable_struct = spec.type.kind == "struct" and version in spec.nullable
            size += 1 if is_nullable_struct else size_bytes_min(spec.type, version, flexible)
    return size


class DecoderSource:
    """Writes `decode(data, p, end, left)`, which returns the message and the position after it.

    In the code, `data` is a memoryview of the whole frame, `p` the position, `end` the frame's length, `left` how many
    more elements of arrays and tagged fields are read; answers, which are no stranger's, count none. `_run` collects
    fixed-size fields that are still to be read by one `unpack_from`.
    """

    def __init__(self, layout: Layout, version: int, text: Callable[[Buffer, str], str] = str) -> None:
        """`text` reads strings: `str` is the fastest, and raises where the bytes are not UTF-8."""
        self._version = version
        self._flexible = version in layout.flexible
        self.source = Source(f"decoder of {layout.name} v{version}")
        self.source.names.update(
            new=object.__new__,
            text=text,
            uuid_of=primitives.uuid_of,
            read_uvarint=primitives.read_uvarint,
            uvarint_rest=primitives.uvarint_rest,
            skip_tagged_fields=primitives.skip_tagged_fields,
            check_tagged_fields=primitives.check_tagged_fields,
            unpack_from=struct.unpack_from,
            Malformed=MalformedMessageError,
            TooMany=TooManyElementsError,
        )
        self._run: list[tuple[str, str, str]] = []  # code, target, path
        self._after_run: list[str] = []
        self._counts_elements = layout.kind == "request"
        self._add("def decode(data, p, end, left):")
        self.source.depth += 1
        self._struct(layout, "m", "")
        self._flush()
        self._add("return m, p")

    def compile(self) -> Any:
        return self.source.compile("decode")

    def _add(self, line: str, path: str | None = None) -> None:
        if path is None:
            self.source.add(line)
        else:
            self.source.add(line, (0, path))

    # Fixed-size fields, gathered.

    def _read(self, code: str, target: str, path: str) -> None:
        self._run.append((code, target, path))

    def _flush(self) -> None:
        if not self._run:
            return
        layout = "".join(code for code, _, _ in self._run)
        size = struct.calcsize(f">{layout}")
        if layout == "B":
            self._add(f"{self._run[0][1]} = data[p]; p += 1", self._run[0][2])
        else:
            note, at = [], 0
            for code, _, path in self._run:
                at += struct.calcsize(f">{code}")
                note.append((at, path))
            targets = "".join(f"{target}, " for _, target, _ in self._run)
            self.source.add(f"{targets}= {self.source.struct(layout, 'unpack_from')}(data, p); p += {size}", *note)
        for line in self._after_run:
            self._add(line)
        self._run.clear()
        self._after_run.clear()

    def _read_uvarint(self, path: str) -> str:
        """Read a varint at the end of the run; nearly all are one byte, so the first travels with the run."""
        n = self.source.name("n")
        self._read("B", n, path)
        self._flush()
        self._add(f"if {n} > 127: {n}, p = uvarint_rest(data, p, {n})", path)
        return n

    # Values.

    def _struct(self, layout: Layout, target: str, path: str) -> None:
        made = target if target.isidentifier() else self.source.name("o")
        self._add(f"{made} = new({self.source.name('C', layout.cls)})")
        if made != target:
            self._add(f"{target} = {made}")
        tagged = []
        for spec in layout.fields:
            if spec.is_tagged_in(self._version):
                tagged.append(spec)
                self._default(spec, made)
            elif self._version in spec.versions:
                self._value(spec.type, f"{made}.{spec.name}", f"{path}.{spec.name}", self._version in spec.nullable)
            else:
                self._default(spec, made)
        if self._flexible:
            self._tags(sorted(tagged, key=lambda spec: spec.tag or 0), made, path)

    def _default(self, spec: FieldSpec, owner: str) -> None:
        default = spec.make_default()
        if spec.default_factory is list or default == []:
            text = "[]"
        elif spec.default_factory is not None:
            text = f"{self.source.name('F', spec.default_factory)}()"
        elif default is None or type(default) in (bool, int, str):  # an enum prints as no literal
            text = repr(default)
        else:
            text = self.source.name("D", default)
        self._add(f"{owner}.{spec.name} = {text}")

    def _value(self, wire_type: WireType[Any], target: str, path: str, nullable: bool) -> None:
        if wire_type.kind == "fixed":
            self._read(wire_type.code, target, path)
        elif wire_type.kind == "uuid":
            raw = self.source.name("u")
            self._read(wire_type.code, raw, path)
            self._after_run.append(f"{target} = uuid_of({raw})")
        elif wire_type.kind == "struct":
            self._nullable_struct(wire_type, target, path, -1) if nullable else self._inner_struct(
                wire_type, target, path
            )
        else:
            self._sized(wire_type, target, path, nullable)

    def _inner_struct(self, wire_type: WireType[Any], target: str, path: str) -> None:
        assert wire_type.layout is not None
        self._struct(wire_type.layout, target, path)

    def _nullable_struct(self, wire_type: WireType[Any], target: str, path: str, null: int) -> None:
        sign = self.source.name("n")
        self._read("b", sign, path)
        self._flush()
        self._add(f"if {sign} <= {null}: {target} = None")
        self._add("else:")
        self.source.depth += 1
        self._inner_struct(wire_type, target, path)
        self._flush()
        self.source.depth -= 1

    def _sized(self, wire_type: WireType[Any], target: str, path: str, nullable: bool) -> None:
        """Values with a length or count in front; compact ones carry it plus one, and 0 for null."""
        if self._flexible:
            n = self._read_uvarint(path)
            self._add(f"{n} -= 1", path)
        else:
            n = self.source.name("n")
            self._read("h" if wire_type.kind == "string" else "i", n, path)
            self._flush()
        self._add(f"if {n} < 0:", path)
        self.source.depth += 1
        if nullable:
            if not self._flexible:
                self._add(f"if {n} != -1: raise Malformed(f'its length is {{{n}}}')", path)
            self._add(f"{target} = None")
        else:
            self._add(f"raise Malformed(f'its length is {{{n}}}, and it may not be null')", path)
        self.source.depth -= 1
        if nullable:
            self._add("else:")
            self.source.depth += 1
        if wire_type.kind == "array":
            assert wire_type.element is not None
            self._array(wire_type.element, target, path, n)
        else:
            q = self.source.name("q")
            self._add(f"{q} = p + {n}")
            self._check(f"{q} > end", n, path)
            if wire_type.kind == "string" and self._flexible and self._counts_elements:
                too_long = f"f'its {{{n}}} bytes are more than a string may have, {primitives.STRING_SIZE_BYTES_MAX}'"
                self._add(f"if {n} > {primitives.STRING_SIZE_BYTES_MAX}: raise Malformed({too_long})", path)
            if wire_type.kind == "string" and self._counts_elements:
                self._add(f"if {n} >= {primitives.TEXT_ELEMENT_BYTES}:")
                self.source.depth += 1
                self._count(f"{n} // {primitives.TEXT_ELEMENT_BYTES}", path)
                self.source.depth -= 1
            whole = f"data[p:{q}]"
            made = {"string": f"text({whole}, 'utf-8')", "bytes": f"bytes({whole})", "records": whole}[wire_type.kind]
            self._add(f"{target} = {made}; p = {q}", path)
        if nullable:
            self.source.depth -= 1

    def _check(self, too_long: str, n: str, path: str) -> None:
        self._add(
            f"if {too_long}: raise Malformed(f'its length is {{{n}}}, but only {{end - p}} bytes are left')", path
        )

    def _array(self, element: WireType[Any], target: str, path: str, n: str) -> None:
        size = max(1, size_bytes_min(element, self._version, self._flexible))
        self._check(f"{n} > end - p" if size == 1 else f"{n} * {size} > end - p", n, path)
        self._count(n, path)
        if element.kind == "fixed":
            unpack = f"unpack_from(f'>{{{n}}}{element.code}', data, p)"
            self._add(f"{target} = list({unpack}) if {n} else []; p += {n} * {size}", path)
            return
        items = self.source.name("a")
        self._add(f"{items} = []")
        self._add(f"for _ in range({n}):")
        self.source.depth += 1
        item = self.source.name("e")
        self._value(element, item, f"{path}[{{{items}}}]", nullable=False)
        self._flush()
        self._add(f"{items}.append({item})")
        self.source.depth -= 1
        self._add(f"{target} = {items}")

    def _count(self, n: str, path: str) -> None:
        if self._counts_elements:
            self._add(f"left -= {n}")
            self._add("if left < 0: raise TooMany", path)

    def _tags(self, tagged: list[FieldSpec], owner: str, path: str) -> None:
        n = self.source.name("n")
        self._read("B", n, f"{path} (tagged fields)")
        self._flush()
        self._add(f"if {n}:")
        self.source.depth += 1
        note = f"{path} (tagged fields)"
        self._add(f"if {n} > 127: {n}, p = uvarint_rest(data, p, {n})", note)
        self._count(n, note)
        if tagged:
            self._known_tags(tagged, owner, path, n)
        else:
            self._add(f"p = skip_tagged_fields(data, p, end, {n})", note)
        self.source.depth -= 1

    def _known_tags(self, tagged: list[FieldSpec], owner: str, path: str, n: str) -> None:
        note = f"{path} (tagged fields)"
        tag, size, last, stop = (self.source.name(prefix) for prefix in ("k", "z", "l", "s"))
        self._add(f"check_tagged_fields({n}, end - p)", note)
        self._add(f"{last} = -1")
        self._add(f"for _ in range({n}):")
        self.source.depth += 1
        self._add(f"{tag}, p = read_uvarint(data, p)", note)
        self._add(f"{size}, p = read_uvarint(data, p)", note)
        self._add(f"{stop} = p + {size}")
        self._check(f"{stop} > end", size, note)
        ascend = f"f'tag {{{tag}}} comes after tag {{{last}}}: tags must ascend, each at most once'"
        self._add(f"if {tag} <= {last}: raise Malformed({ascend})", note)
        self._add(f"{last} = {tag}")
        word = "if"
        for spec in tagged:
            inner = f"{path}.{spec.name}"
            self._add(f"{word} {tag} == {spec.tag}:")
            word = "elif"
            self.source.depth += 1
            nullable = self._version in spec.nullable
            if spec.type.kind == "struct" and nullable:
                self._nullable_struct(spec.type, f"{owner}.{spec.name}", inner, 0)
            else:
                self._value(spec.type, f"{owner}.{spec.name}", inner, nullable)
            self._flush()
            sizes = f"f'its tag announces {{{size}}} bytes, but it takes {{{size} + p - {stop}}}'"
            self._add(f"if p != {stop}: raise Malformed({sizes})", inner)
            self.source.depth -= 1
        self._add(f"else: p = {stop}")
        self.source.depth -= 1
