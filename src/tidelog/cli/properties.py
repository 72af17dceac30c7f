"""The `.properties` format of Kafka's configuration files (Java's): text to pairs and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.base.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = set("0123456789abcdefABCDEF")
_BLANKS = " \t\f"


def parse_properties(text: str, *, source: str) -> dict[str, str]:
    r"""Keys and values of a `.properties` file.

    `#` and `!` start comment lines; `=`, `:` or blanks end a key; a line that ends in an odd number of backslashes
    goes on in the next; `\t \n \r \f \uXXXX` are escapes, and any other escaped character is itself. Blanks at
    the end of a value do not count; of a key that stands twice the last one does, as for Kafka.

    Args:
        text: the file's contents.
        source: its name, for errors.

    Raises:
        ConfigError: a broken `\u` escape, or a line without a key. Names the line.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _end_of_key(line)
        key = _unescaped(line[:end], f"{source}, line {number}")
        if not key:
            raise ConfigError(f"{source}, line {number}: {line!r} has no key; a setting is written key=value")
        rest = line[end:].lstrip(_BLANKS)
        value = rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") else rest
        found[key] = _unescaped(value, f"{source}, line {number}").rstrip()
    return found


def format_properties(pairs: Mapping[str, str], *, comment: str = "") -> str:
    """A `.properties` file that `parse_properties` reads back as the same pairs, but for blanks that end a value."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{_escaped(key, is_key=True)}={_escaped(value, is_key=False)}" for key, value in pairs.items()]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, without blank lines and comments; with the number of the first line."""
    whole, started_at = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(_BLANKS)
        if not whole:
            if not line or line[0] in "#!":
                continue
            started_at = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            whole += line[:-1]
            continue
        yield started_at, whole + line
        whole = ""
    if whole:
        yield started_at, whole


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
            continue
        if line[position] in "=:" or line[position] in _BLANKS:
            return position
        position += 1
    return len(line)


def _unescaped(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    pieces = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            pieces.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not _HEX_DIGITS.issuperset(digits):
                raise ConfigError(f"{where}: \\u{digits} is not a character; \\u takes four hex digits")
            pieces.append(chr(int(digits, 16)))
            position += 4
        else:
            pieces.append(_ESCAPES.get(escaped, escaped))
    return "".join(pieces)


def _escaped(text: str, *, is_key: bool) -> str:
    text = text.replace("\\", "\\\\")
    for letter, character in _ESCAPES.items():
        text = text.replace(character, f"\\{letter}")
    if is_key:
        for character in " =:#!":
            text = text.replace(character, f"\\{character}")
    elif text.startswith(" "):
        text = "\\" + text
    return text
