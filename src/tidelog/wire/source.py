"""Generated code, and what is needed to tell which field a line of it is about."""

from __future__ import annotations

from typing import Any

from tidelog.wire import primitives


class Source:
    """Lines of generated code, with the field that each line is about, and the objects that the code refers to."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[str] = []
        self.notes: list[tuple[tuple[int, str], ...]] = []
        self.names: dict[str, Any] = {}
        self.depth = 0
        self._counter = 0

    def add(self, line: str, *note: tuple[int, str]) -> None:
        """Append a line. `note`: (bytes from the position at which a field ends, the field's path), in order."""
        self.lines.append(" " * self.depth + line)
        self.notes.append(note)

    def name(self, prefix: str, value: Any = None) -> str:
        """A name that nothing else has; bound to `value` for the code if there is one."""
        self._counter += 1
        made = f"{prefix}{self._counter}"
        if value is not None:
            self.names[made] = value
        return made

    def struct(self, layout: str, method: str) -> str:
        """The name of a method (`pack`, `unpack_from`) of the struct of `layout`."""
        made = f"{method}_{layout.replace('?', '_')}"
        self.names[made] = getattr(primitives.struct_of(layout), method)
        return made

    def compile(self, function: str) -> Any:
        """Run the source, and hand out the function that it defines."""
        exec(compile("\n".join(self.lines), f"<{self.title}>", "exec"), self.names)  # noqa: S102 - written above
        return self.names[function]
