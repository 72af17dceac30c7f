"""The syntax of RE2, read into a tree.

What RE2 does not have (look-around, references to groups, possessive repetition) is refused. So are `\\C`, and `\\p`
with a script: which script a character is of, Python does not know.

Source: RE2's documentation of its syntax.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache

from tidelog.base.errors import Code, KafkaError, refusal

NESTING_MAX = 100
REPEATS_MAX = 1_000
"""As in RE2, of one repetition."""

CHARACTERS_KEPT = 512

ASCII_COUNT = 128
ASCII_MASK = (1 << ASCII_COUNT) - 1
ASCII = [chr(code) for code in range(ASCII_COUNT)]
CODE_MAX = 0x10FFFF
BEYOND_ASCII = (ASCII_COUNT, CODE_MAX)


class Place(Enum):
    """What a pattern may demand of a position."""

    BEGIN = "the beginning"
    END = "the end"
    WORD_BOUNDARY = "a boundary of a word"
    NO_WORD_BOUNDARY = "no boundary of a word"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a set.

    Attributes:
        mask: of ASCII: bit n for the character of code n.
        ranges: of the others, by their codes, both ends included.
        categories: general categories of Unicode, by the beginnings of their names, and whether they are excluded.
        folds: whether the case does not matter; it is in the mask already.
        is_inverted: whether all but `ranges` and `categories` are in the set; it is in the mask already.
    """

    mask: int
    ranges: tuple[tuple[int, int], ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()
    folds: bool = False
    is_inverted: bool = False

    def has(self, character: str) -> bool:
        """Whether a character is in it."""
        code = ord(character)
        if code < ASCII_COUNT:
            return bool(self.mask >> code & 1)
        if not self.ranges and not self.categories and not self.folds:
            return self.is_inverted
        if self.folds:
            return self.is_inverted != any(map(self._lists, {character, character.lower(), character.upper()}))
        return self.is_inverted != self._lists(character)

    def _lists(self, text: str) -> bool:
        if len(text) > 1:
            return False
        code = ord(text)
        if code < ASCII_COUNT:
            return bool((self.mask >> code & 1) != self.is_inverted)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        category = unicodedata.category(text) if self.categories else ""
        return any(category.startswith(name) != is_excluded for name, is_excluded in self.categories)

    def inverted(self) -> OneOf:
        """All characters that are not in it."""
        return OneOf(ASCII_MASK & ~self.mask, self.ranges, self.categories, self.folds, not self.is_inverted)


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
    """The set of these characters of ASCII."""
    mask = 0
    for character in characters:
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
UNICODE_CATEGORIES = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
"""The second letters of the names of the general categories, by their first."""

ESCAPED = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
PLACES = {"A": Place.BEGIN, "z": Place.END, "b": Place.WORD_BOUNDARY, "B": Place.NO_WORD_BOUNDARY}
OCTAL = "01234567"


def either_case(mask: int) -> int:
    """The set with the letters of the other case."""
    return mask | (mask & LOWER) >> 32 | (mask & UPPER) << 32


def range_of(low: int, high: int, *, folds: bool = False) -> OneOf:
    """The characters from one code to another, both included."""
    ascii_high = min(high, ASCII_COUNT - 1)
    mask = (1 << ascii_high + 1) - (1 << low) if low <= ascii_high else 0
    ranges = ((max(low, ASCII_COUNT), high),) if high >= ASCII_COUNT else ()
    return OneOf(either_case(mask) if folds else mask, ranges, folds=folds and bool(ranges))


@lru_cache(CHARACTERS_KEPT)
def character_of(character: str, *, folds: bool = False) -> OneOf:
    """The set of one character; in either case if that does not matter."""
    found = range_of(ord(character), ord(character), folds=folds)
    if not folds:
        return found
    others = {one for one in (character.lower(), character.upper()) if len(one) == 1}
    return union(found, *(range_of(ord(one), ord(one), folds=True) for one in sorted(others)), folds=True)


def union(*sets: OneOf, folds: bool = False) -> OneOf:
    """What is in any of these sets, of which none is inverted.

    Args:
        folds: whether the case of what is beyond ASCII does not matter.
    """
    mask = 0
    ranges: list[tuple[int, int]] = []
    categories: list[tuple[str, bool]] = []
    for one in sets:
        mask |= one.mask
        ranges += one.ranges
        categories += one.categories
    return OneOf(mask, tuple(ranges), tuple(categories), folds)


@cache
def category_mask(name: str) -> int:
    """The characters of ASCII in the general categories whose names begin so."""
    return mask_of("".join(one for one in ASCII if unicodedata.category(one).startswith(name)))


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
                self._add(self._class())
            case ".":
                mask = ASCII_MASK if self.matches_newlines else ASCII_MASK & ~mask_of("\n")
                self._add(OneOf(mask, is_inverted=True))
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
        self._add(character_of(character, folds=self.ignores_case))

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
        elif (found := self._escaped_class(character)) is not None:
            self._add(found)
        else:
            self._literal(self._escaped_character(character))

    def _escaped_class(self, character: str) -> OneOf | None:
        """The set that a backslash and this character begin, if they do. It is not inverted as such."""
        if character.lower() in PERL_CLASSES:
            mask = PERL_CLASSES[character.lower()]
            return OneOf(ASCII_MASK & ~mask, (BEYOND_ASCII,)) if character.isupper() else OneOf(mask)
        if character not in "pP":
            return None
        name = self._until("}", "a class of characters does not end") if self._take("{") else self._next()
        is_excluded = (character == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name == "Any":
            return OneOf(0) if is_excluded else OneOf(ASCII_MASK, (BEYOND_ASCII,))
        if len(name) not in (1, 2) or name[0] not in UNICODE_CATEGORIES or name[1:] not in UNICODE_CATEGORIES[name[0]]:
            raise self._error(f"the class {name!r} is not known here")
        mask = either_case(category_mask(name)) if self.ignores_case else category_mask(name)
        return OneOf(ASCII_MASK & ~mask if is_excluded else mask, (), ((name, is_excluded),), self.ignores_case)

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
        if (
            not 0 < len(digits) <= 8
            or not all(one in "0123456789abcdefABCDEF" for one in digits)
            or int(digits, 16) > CODE_MAX
        ):
            raise self._error(f"{digits!r} is not the number of a character")
        return chr(int(digits, 16))

    # Classes.

    def _class(self) -> OneOf:
        is_inverted = self._take("^")
        found: list[OneOf] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._take("[:"):
                found.append(self._posix_class())
                continue
            character = self._next()
            if character == "\\":
                escape = self._next()
                escaped = self._escaped_class(escape)
                if escaped is not None:
                    found.append(escaped)
                    continue
                character = self._escaped_character(escape)
            found.append(self._range_from(character))
        self.at += 1
        whole = union(*found, folds=self.ignores_case)
        return whole.inverted() if is_inverted else whole

    def _range_from(self, first: str) -> OneOf:
        if self._peek() != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return character_of(first, folds=self.ignores_case)
        self.at += 1
        last = self._next()
        if last == "\\":
            last = self._escaped_character(self._next())
        if last < first:
            raise self._error(f"the range {first}-{last} is empty")
        return range_of(ord(first), ord(last), folds=self.ignores_case)

    def _posix_class(self) -> OneOf:
        end = self.pattern.find(":]", self.at)
        if end < 0:
            return OneOf(mask_of("[:"))  # they mean themselves
        name = self.pattern[self.at : end]
        mask = POSIX_CLASSES.get(name.removeprefix("^"))
        if mask is None:
            raise self._error(f"the class [:{name}:] is not known")
        self.at = end + 2
        mask = either_case(mask) if self.ignores_case else mask
        return OneOf(ASCII_MASK & ~mask, (BEYOND_ASCII,)) if name.startswith("^") else OneOf(mask)

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
            f"regular expression {self.pattern!r}, character {self.at}: {problem} (RE2 syntax)",
        )


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 9 and text.isascii() and text.isdigit()
