"""Regular expressions whose matching takes time in proportion to the text, whatever the expression: RE2's promise.

A broker matches names by expressions that strangers send. Python's `re` needs exponential time for some of them, and
nothing else runs meanwhile. Here an expression is an automaton without backtracking:

    expression ──parse──► states, one for each character that may come next ──match──► the set of states after each one

RE2's syntax, but for word boundaries (`\\b`), classes of Unicode (`\\p{…}`) and flags other than `i` and `s`, which
are refused. Back-references and look-around are not in RE2 either.

Source: RE2's documentation of its syntax; Thompson's construction.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError, refusal

LENGTH_MAX = 1_000
STATES_MAX = 500
"""Counted repetitions are written out, so `(a{30}){30}` has more."""
REPEATS_MAX = 1_000
DEPTH_MAX = 50
CACHED_MAX = 4_000
STEPS_MAX = 300_000
"""Of one pattern, over all texts: a fraction of a second. Steps that were taken before are cached, and not counted."""

_PERL_CLASSES: dict[str, tuple[tuple[str, str], ...]] = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}
_POSIX_CLASSES: dict[str, tuple[tuple[str, str], ...]] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")


class _Characters(NamedTuple):
    """Which characters may come."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False
    ignores_case: bool = False

    def has(self, character: str) -> bool:
        wanted = {character, character.lower(), character.upper()} if self.ignores_case else {character}
        return self.is_negated != any(low <= one <= high for one in wanted for low, high in self.ranges)


class _Begin(NamedTuple):
    """Nothing came before."""


class _End(NamedTuple):
    """Nothing comes behind."""


class _Sequence(NamedTuple):
    nodes: tuple[_Node, ...]


class _Choice(NamedTuple):
    nodes: tuple[_Node, ...]


class _Repeat(NamedTuple):
    node: _Node
    least: int
    most: int | None


_Node = _Characters | _Begin | _End | _Sequence | _Choice | _Repeat


class _State(NamedTuple):
    """What may come, and where it leads; or, with `test` None, where one may go without a character."""

    test: _Characters | _Begin | _End | None
    leads_to: tuple[int, ...]


class LinearPattern:
    """An expression that whole texts are matched against.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION: it is none, or too large; says where and why.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._states: list[_State] = [_State(None, ())]  # the last one: all came
        start = self._build(_Parser(expression).parsed(), 0)
        self._first = self._reached({start}, at_begin=True, at_end=False)
        self._matches_nothing = 0 in self._reached({start}, at_begin=True, at_end=True)
        self._next: dict[tuple[frozenset[int], str, bool], frozenset[int]] = {}
        self._steps = 0

    def matches(self, text: str) -> bool:
        """Whether the whole of a text matches.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION: this pattern has taken too much time in all.
        """
        if not text:
            return self._matches_nothing
        states = self._first
        last = len(text) - 1
        for index, character in enumerate(text):
            key = states, character, index == last
            following = self._next.get(key)
            if following is None:
                following = self._step(states, character, at_end=index == last)
                if len(self._next) >= CACHED_MAX:
                    self._next.clear()
                self._next[key] = following
            if not following:
                return False
            states = following
        return 0 in states

    def _step(self, states: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        self._steps += len(states)
        if self._steps > STEPS_MAX:
            raise _refused(self.expression, "it takes too long; use a simpler one")
        following: set[int] = set()
        for number in states:
            test, leads_to = self._states[number]
            if isinstance(test, _Characters) and test.has(character):
                following.update(leads_to)
        return self._reached(following, at_begin=False, at_end=at_end)

    def _reached(self, states: set[int], *, at_begin: bool, at_end: bool) -> frozenset[int]:
        """These states, and those that are reached without a character."""
        found, left = set(states), list(states)
        while left:
            test, leads_to = self._states[left.pop()]
            is_passed = test is None or (isinstance(test, _Begin) and at_begin) or (isinstance(test, _End) and at_end)
            if is_passed and not isinstance(test, _Characters):
                left += [one for one in leads_to if one not in found]
                found.update(leads_to)
        return frozenset(found)

    # From the end to the beginning: each node is built with the state behind it, and gives the one to enter it by.

    def _build(self, node: _Node, behind: int) -> int:
        if isinstance(node, _Sequence):
            for one in reversed(node.nodes):
                behind = self._build(one, behind)
            return behind
        if isinstance(node, _Choice):
            return self._add(None, *(self._build(one, behind) for one in node.nodes))
        if isinstance(node, _Repeat):
            return self._build_repeat(node, behind)
        return self._add(node, behind)

    def _build_repeat(self, node: _Repeat, behind: int) -> int:
        entry = behind
        if node.most is None:
            entry = self._add(None)  # where one comes back to
            again = self._build(node.node, entry)
            self._states[entry] = _State(None, (again, behind))
        else:
            for _ in range(node.most - node.least):
                entry = self._add(None, self._build(node.node, entry), behind)
        for _ in range(node.least):
            entry = self._build(node.node, entry)
        return entry

    def _add(self, test: _Characters | _Begin | _End | None, *leads_to: int) -> int:
        if len(self._states) >= STATES_MAX:
            raise _refused(self.expression, "it is too large")
        self._states.append(_State(test, leads_to))
        return len(self._states) - 1


class _Parser:
    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._depth = 0
        self._ignores_case = self._dot_is_any = False
        if len(expression) > LENGTH_MAX:
            raise _refused(f"{expression[:40]}…", f"it has more than {LENGTH_MAX} characters")

    def parsed(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._wrong("a ) without its (")
        return node

    # The grammar, from the outside to the inside.

    def _choice(self) -> _Node:
        flags = self._ignores_case, self._dot_is_any  # which are in force to the end of the group
        nodes = [self._sequence()]
        while self._taken("|"):
            nodes.append(self._sequence())
        self._ignores_case, self._dot_is_any = flags
        return nodes[0] if len(nodes) == 1 else _Choice(tuple(nodes))

    def _sequence(self) -> _Node:
        nodes: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            node = self._atom()
            if node is not None:
                nodes.append(self._repeated(node))
        return _Sequence(tuple(nodes))

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._taken("?")  # lazy or not, the same texts match
        if self._bounds() is not None:
            raise self._wrong("a repetition of a repetition")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._taken(sign):
                return bounds
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low.isascii() and low.isdecimal()) or (high and not (high.isascii() and high.isdecimal())):
            return None  # then the brace stands for itself
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > REPEATS_MAX or (most is not None and most < least):
            raise self._wrong(f"a repetition that is not of 0 to {REPEATS_MAX} times")
        self._at = end + 1
        return least, most

    def _atom(self) -> _Node | None:
        """The next one; None for flags, which match nothing by themselves."""
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case ".":
                return _Characters(() if self._dot_is_any else (("\n", "\n"),), is_negated=True)
            case "^":
                return _Begin()
            case "$":
                return _End()
            case "*" | "+" | "?":
                raise self._wrong(f"a {character} that repeats nothing")
        return self._one(character)

    def _group(self) -> _Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"groups more than {DEPTH_MAX} deep")
        before = self._ignores_case, self._dot_is_any
        if self._taken("?"):
            if self._taken("P<") or (self._peek() == "<" and self._text[self._at + 1 : self._at + 2] not in ("=", "!")):
                self._skip_name()
            elif self._flags_only():
                self._depth -= 1
                return None
        node = self._choice()
        if not self._taken(")"):
            raise self._wrong("a ( without its )")
        self._ignores_case, self._dot_is_any = before
        self._depth -= 1
        return node

    def _skip_name(self) -> None:
        self._taken("<")
        end = self._text.find(">", self._at)
        if end < 0 or not self._text[self._at : end].isidentifier():
            raise self._wrong("a group whose name does not end, or is none")
        self._at = end + 1

    def _flags_only(self) -> bool:
        """Take `i-s)` or `i-s:`. Returns whether that was all of the group."""
        value = True
        while (character := self._take()) not in ":)":
            match character:
                case "-":
                    value = False
                case "i":
                    self._ignores_case = value
                case "s":
                    self._dot_is_any = value
                case _:
                    raise self._wrong(f"(?{character}, which is not supported here")
        return character == ")"

    def _class(self) -> _Characters:
        is_negated = self._taken("^")
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._taken("[:"):
                ranges += self._posix()
                continue
            low = self._class_member()
            if isinstance(low, tuple):
                ranges += low
                continue
            high: str | tuple[tuple[str, str], ...] = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._class_member()
            if isinstance(high, tuple) or high < low:
                raise self._wrong("a range that ends before it begins")
            ranges.append((low, high))
        self._at += 1
        return _Characters(tuple(ranges), is_negated, self._ignores_case)

    def _class_member(self) -> str | tuple[tuple[str, str], ...]:
        """A character, or the ranges of a class within the class."""
        character = self._take()
        if character != "\\":
            return character
        found = self._escape()
        if not isinstance(found, _Characters):
            raise self._wrong("what cannot stand in a class")
        if not found.is_negated:
            return found.ranges[0][0] if len(found.ranges) == 1 and len({*found.ranges[0]}) == 1 else found.ranges
        return _complement(found.ranges)

    def _posix(self) -> tuple[tuple[str, str], ...]:
        end = self._text.find(":]", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        ranges = _POSIX_CLASSES.get(name.removeprefix("^"))
        if ranges is None:
            raise self._wrong("a class [:…:] that there is not")
        self._at = end + 2
        return _complement(ranges) if name.startswith("^") else ranges

    def _escape(self) -> _Node:
        character = self._take()
        if character.lower() in _PERL_CLASSES:
            return _Characters(_PERL_CLASSES[character.lower()], is_negated=character.isupper())
        if character in _ESCAPED:
            return self._one(_ESCAPED[character])
        match character:
            case "A":
                return _Begin()
            case "z":
                return _End()
            case "x":
                return self._one(self._hexadecimal())
            case "Q":
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
                self._at = len(self._text) if end < 0 else end + 2
                return _Sequence(tuple(map(self._one, quoted)))
        if character not in _PUNCTUATION:
            raise self._wrong(f"\\{character}, which is not supported here")
        return self._one(character)

    def _hexadecimal(self) -> str:
        if self._taken("{"):
            end = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : max(end, self._at)], end + 1
        else:
            digits, self._at = self._text[self._at : self._at + 2], self._at + 2
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self._wrong("a \\x without the number of a character") from None

    def _one(self, character: str) -> _Characters:
        return _Characters(((character, character),), ignores_case=self._ignores_case)

    # The text.

    def _peek(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("its end, where more is expected")
        return self._text[self._at]

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _taken(self, expected: str) -> bool:
        is_next = self._text.startswith(expected, self._at)
        self._at += len(expected) * is_next
        return is_next

    def _wrong(self, what: str) -> KafkaError:
        return _refused(self._text, f"at character {min(self._at, len(self._text))} there is {what}")


def _complement(ranges: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    found, start = [], 0
    for low, high in sorted(ranges):
        if ord(low) > start:
            found.append((chr(start), chr(ord(low) - 1)))
        start = ord(high) + 1
    return (*found, (chr(start), chr(0x10FFFF)))


def _refused(expression: str, why: str) -> KafkaError:
    return refusal(Code.INVALID_REGULAR_EXPRESSION, f"regular expression {expression!r}: {why}")
