"""The syntax of RE2, in which members write patterns of topics, read into a tree (KIP-848).

Topics have ASCII names, so a set of characters is a mask of 128 bits, and what lies beyond ASCII is in none. What RE2
does not have (look-around, references to groups, possessive repetition) is refused, as are `\\C`, and `\\p` with a
script other than Latin and Common.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import Enum

from tidelog.base.errors import Code, KafkaError, refusal

NESTING_MAX = 100
REPEATS_MAX = 1_000
"""As in RE2, of one repetition."""

ASCII_MASK = (1 << 128) - 1
ASCII = [chr(code) for code in range(128)]


class Place(Enum):
    """What a pattern may demand of a position."""

    BEGIN = "the beginning"
    END = "the end"
    WORD_BOUNDARY = "a boundary of a word"
    NO_WORD_BOUNDARY = "no boundary of a word"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a set: bit n for the character of code n."""

    mask: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of them."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """So often at least, and at most; None for any number."""

    part: Node
    least: int
    most: int | None


Node = OneOf | Sequence | Either | Repeated | Place


def mask_of(characters: str) -> int:
    """The set of these characters, as far as they are ASCII."""
    mask = 0
    for character in characters:
        if ord(character) < 128:
            mask |= 1 << ord(character)
    return mask


DIGITS = mask_of("0123456789")
LOWER = mask_of("abcdefghijklmnopqrstuvwxyz")
UPPER = mask_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORD = DIGITS | LOWER | UPPER | mask_of("_")
PERL_CLASSES = {"d": DIGITS, "s": mask_of("\t\n\f\r "), "w": WORD}
POSIX_CLASSES = {
    "alnum": DIGITS | LOWER | UPPER,
    "alpha": LOWER | UPPER,
    "ascii": ASCII_MASK,
    "blank": mask_of("\t "),
    "cntrl": mask_of("".join(map(chr, range(32))) + "\x7f"),
    "digit": DIGITS,
    "graph": mask_of("".join(map(chr, range(33, 127)))),
    "lower": LOWER,
    "print": mask_of("".join(map(chr, range(32, 127)))),
    "punct": mask_of("".join(one for one in map(chr, range(33, 127)) if not one.isalnum())),
    "space": mask_of("\t\n\v\f\r "),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGITS | mask_of("abcdefABCDEF"),
}
UNICODE_CLASSES = {"Any": ASCII_MASK, "Latin": LOWER | UPPER, "Common": ASCII_MASK & ~(LOWER | UPPER)}
UNICODE_CATEGORIES = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
"""The second letters of the names of the general categories, by their first."""

ESCAPED = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
PLACES = {"A": Place.BEGIN, "z": Place.END, "b": Place.WORD_BOUNDARY, "B": Place.NO_WORD_BOUNDARY}
OCTAL = "01234567"


def either_case(mask: int) -> int:
    """The set with the letters of the other case."""
    return mask | (mask & LOWER) >> 32 | (mask & UPPER) << 32


def parsed(pattern: str) -> Node:
    """The tree of a pattern.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, with the position of what is wrong.
    """
    return _Parser(pattern).parse()


@dataclass(slots=True)
class _Open:
    """A group that is not closed yet, with the flags that are in force again behind it."""

    ignores_case: bool
    matches_newlines: bool
    options: list[list[Node]]


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.ignores_case = False
        self.matches_newlines = False
        self.open: list[_Open] = []
        self.options: list[list[Node]] = [[]]
        self.is_repeated = False  # whether what was read last is a repetition
        self.names: set[str] = set()

    def parse(self) -> Node:
        while self.at < len(self.pattern):
            self._read()
        if self.open:
            raise self._error("a parenthesis is not closed")
        return self._tree()

    # One element.

    def _read(self) -> None:
        was_repeated, self.is_repeated = self.is_repeated, False
        character = self._next()
        match character:
            case "(":
                self._begin_group()
            case ")":
                self._end_group()
            case "|":
                self.options.append([])
            case "[":
                self._add(OneOf(self._class()))
            case ".":
                self._add(OneOf(ASCII_MASK if self.matches_newlines else ASCII_MASK & ~mask_of("\n")))
            case "^":
                self._add(Place.BEGIN)  # a name is one line
            case "$":
                self._add(Place.END)
            case "*":
                self._repeat(0, None, was_repeated)
            case "+":
                self._repeat(1, None, was_repeated)
            case "?":
                self._repeat(0, 1, was_repeated)
            case "{":
                counts = self._counts()
                if counts is None:
                    self._literal(character)
                else:
                    self._repeat(*counts, was_repeated)
            case "\\":
                self._escape()
            case _:
                self._literal(character)

    def _literal(self, character: str) -> None:
        self._add(OneOf(self._folded(character)))

    def _folded(self, character: str) -> int:
        if not self.ignores_case:
            return mask_of(character)
        return either_case(mask_of(character + character.lower() + character.upper()))

    def _add(self, node: Node) -> None:
        self.options[-1].append(node)

    def _tree(self) -> Node:
        options = tuple(Sequence(tuple(one)) if len(one) != 1 else one[0] for one in self.options)
        return options[0] if len(options) == 1 else Either(options)

    # Groups.

    def _begin_group(self) -> None:
        outer = _Open(self.ignores_case, self.matches_newlines, self.options)
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._name()
            elif not self._flags():
                return  # they hold until the group around them ends
        if len(self.open) == NESTING_MAX:
            raise self._error(f"more than {NESTING_MAX} groups are inside each other")
        self.open.append(outer)
        self.options = [[]]

    def _end_group(self) -> None:
        if not self.open:
            raise self._error("a parenthesis is closed that was not opened")
        group = self._tree()
        outer = self.open.pop()
        self.ignores_case, self.matches_newlines = outer.ignores_case, outer.matches_newlines
        self.options = outer.options
        self._add(group)

    def _name(self) -> None:
        name = self._until(">", "the name of a group does not end")
        if not name or not all(one.isascii() and (one.isalnum() or one == "_") for one in name):
            raise self._error(f"{name!r} is not the name of a group")
        if name in self.names:
            raise self._error(f"two groups are named {name!r}")
        self.names.add(name)

    def _flags(self) -> bool:
        """Read flags. Returns whether a group begins with them."""
        is_set, has_flag = True, True
        while True:
            character = self._next()
            match character:
                case "i":
                    self.ignores_case = is_set
                case "s":
                    self.matches_newlines = is_set
                case "m" | "U":
                    pass  # of several lines, and of which of several matches is found: neither matters here
                case "-" if is_set:
                    is_set = has_flag = False
                    continue
                case ":" | ")" if has_flag:
                    return character == ":"
                case _:
                    raise self._error("RE2 has no such group")
            has_flag = True

    # Repetition.

    def _repeat(self, least: int, most: int | None, was_repeated: bool) -> None:
        if was_repeated:
            raise self._error("a repetition is repeated")
        if not self.options[-1]:
            raise self._error("there is nothing to repeat")
        if least > REPEATS_MAX or (most is not None and (most > REPEATS_MAX or most < least)):
            raise self._error(f"a number of repetitions is above {REPEATS_MAX}, or above the one behind it")
        self._take("?")  # which of several matches is found does not matter
        self._add(Repeated(self.options[-1].pop(), least, most))
        self.is_repeated = True

    def _counts(self) -> tuple[int, int | None] | None:
        """The numbers in braces; None if these mean themselves."""
        end = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at : end].partition(",") if end >= 0 else ("", "", "")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        self.at = end + 1
        return int(least), int(most) if most else None if comma else int(least)

    # Escapes.

    def _escape(self) -> None:
        character = self._next()
        if character in PLACES:
            self._add(PLACES[character])
        elif character == "Q":
            end = self.pattern.find("\\E", self.at)
            literal = self.pattern[self.at : end if end >= 0 else None]
            self.at += len(literal) + (2 if end >= 0 else 0)
            for one in literal:
                self._literal(one)
        elif (mask := self._escaped_class(character)) is not None:
            self._add(OneOf(mask))
        else:
            self._literal(self._escaped_character(character))

    def _escaped_class(self, character: str) -> int | None:
        """The set that a backslash and this character begin, if they do."""
        if character.lower() in PERL_CLASSES:
            mask = PERL_CLASSES[character.lower()]
            return ASCII_MASK & ~mask if character.isupper() else mask
        if character not in "pP":
            return None
        name = self._until("}", "a class of characters does not end") if self._take("{") else self._next()
        is_inverted = (character == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if len(name) in (1, 2) and name[0] in UNICODE_CATEGORIES and name[1:] in UNICODE_CATEGORIES[name[0]]:
            mask = mask_of("".join(one for one in ASCII if unicodedata.category(one).startswith(name)))
        elif name in UNICODE_CLASSES:
            mask = UNICODE_CLASSES[name]
        else:
            raise self._error(f"the class {name!r} is not known here")
        mask = either_case(mask) if self.ignores_case else mask
        return ASCII_MASK & ~mask if is_inverted else mask

    def _escaped_character(self, character: str) -> str:
        if character in ESCAPED:
            return ESCAPED[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in OCTAL and self._peek() in OCTAL):
            digits = character
            while len(digits) < 3 and self._peek() in OCTAL:
                digits += self._next()
            return chr(int(digits, 8))
        if character.isascii() and not character.isalnum():
            return character
        raise self._error(f"RE2 has no escape \\{character}")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits = self._until("}", "a number of a character does not end")
        else:
            digits = self._next() + self._next()
        if not digits or not all(one in "0123456789abcdefABCDEF" for one in digits) or int(digits, 16) > 0x10FFFF:
            raise self._error(f"{digits!r} is not the number of a character")
        return chr(int(digits, 16))

    # Classes.

    def _class(self) -> int:
        is_inverted = self._take("^")
        mask = 0
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._take("[:"):
                mask |= self._posix_class()
                continue
            character = self._next()
            if character == "\\":
                escape = self._next()
                found = self._escaped_class(escape)
                if found is not None:
                    mask |= found
                    continue
                character = self._escaped_character(escape)
            mask |= self._range_from(character)
        self.at += 1
        return ASCII_MASK & ~mask if is_inverted else mask

    def _range_from(self, first: str) -> int:
        if self._peek() != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return self._folded(first)
        self.at += 1
        last = self._next()
        if last == "\\":
            last = self._escaped_character(self._next())
        if last < first:
            raise self._error(f"the range {first}-{last} is empty")
        mask = mask_of("".join(map(chr, range(ord(first), min(ord(last), 127) + 1))))
        return either_case(mask) if self.ignores_case else mask

    def _posix_class(self) -> int:
        end = self.pattern.find(":]", self.at)
        if end < 0:
            return self._folded("[") | self._folded(":")  # they mean themselves
        name = self.pattern[self.at : end]
        mask = POSIX_CLASSES.get(name.removeprefix("^"))
        if mask is None:
            raise self._error(f"the class [:{name}:] is not known")
        self.at = end + 2
        mask = either_case(mask) if self.ignores_case else mask
        return ASCII_MASK & ~mask if name.startswith("^") else mask

    # Characters.

    def _next(self) -> str:
        if self.at == len(self.pattern):
            raise self._error("the pattern ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def _peek(self) -> str:
        """The next character; NUL at the end, which is in none of the sets that are asked."""
        return self.pattern[self.at] if self.at < len(self.pattern) else "\0"

    def _take(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _until(self, end: str, otherwise: str) -> str:
        found = self.pattern.find(end, self.at)
        if found < 0:
            raise self._error(otherwise)
        text = self.pattern[self.at : found]
        self.at = found + len(end)
        return text

    def _error(self, problem: str) -> KafkaError:
        return refusal(
            Code.INVALID_REGULAR_EXPRESSION,
            f"the pattern {self.pattern!r}, character {self.at}: {problem} (RE2 syntax)",
        )


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 9 and text.isascii() and text.isdigit()
