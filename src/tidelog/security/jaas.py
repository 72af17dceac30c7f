"""`sasl.jaas.config`: who a client is, and whom a listener knows, as Java's login modules are told.

Pure, and never shows what it read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<sign> [=;] )
    | (?P<word> [^\s=;"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


class LoginModule(NamedTuple):
    """One entry.

    Attributes:
        name: of the class, without its package, which may be shaded.
        options: of the module; they hold secrets.
    """

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, options {sorted(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """The one login module of `sasl.jaas.config`.

    Raises:
        ValueError: it is not of the form `Class required name="value" …;`. Says which part, and shows no value.
    """
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("it is empty")
    (kind, name), rest = tokens[0], tokens[1:]
    if kind != "word":
        raise ValueError("it begins with no class of a login module")
    if not rest or rest[0][0] != "word" or rest[0][1].lower() not in _FLAGS:
        raise ValueError("`required` is missing after the class of the login module")
    rest = rest[1:]
    options: dict[str, str] = {}
    while rest and rest[0] != ("sign", ";"):
        if len(rest) < 3 or rest[0][0] == "sign" or rest[1] != ("sign", "=") or rest[2][0] == "sign":
            raise ValueError(f"its option {len(options) + 1} is not of the form name=value")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if not rest:
        raise ValueError("the semicolon at its end is missing")
    if len(rest) > 1:
        raise ValueError("it has more than one login module")
    return LoginModule(name.rsplit(".", maxsplit=1)[-1], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("a quotation mark in it has no counterpart")
        position = found.end()
        kind, token = found.lastgroup or "", found[0]
        if kind == "quoted":
            tokens.append((kind, re.sub(r"\\(.)", lambda part: _ESCAPES.get(part[1], part[1]), token[1:-1])))
        elif kind != "skipped":
            tokens.append((kind, token))
    return tokens
