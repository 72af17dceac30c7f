"""Java's regular expressions as Python's, for `subscribePattern`. Pure.

Kafka's clients take a `java.util.regex.Pattern`, and match a topic's whole name. Most of it means the same in Python;
some is spelt differently; what cannot be said in Python is refused by its name, never taken for something else.
"""

from __future__ import annotations

import re
import warnings

# POSIX and Java classes of ASCII characters, as they stand within brackets.
_ASCII = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7F",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": r"\x20-~",
    "Blank": r"\x20\t",
    "Cntrl": r"\x00-\x1F\x7F",
    "XDigit": "0-9a-fA-F",
    "Space": r"\x20\t\n\x0B\f\r",
}
# Those of Unicode are the same among the characters that a topic's name may have, which are of ASCII.
_ASCII |= dict.fromkeys(("L", "IsL", "IsAlphabetic", "IsLatin", "javaLetter", "javaAlphabetic"), "a-zA-Z")
_ASCII |= dict.fromkeys(("Lu", "IsLu", "IsUppercase", "javaUpperCase"), "A-Z")
_ASCII |= dict.fromkeys(("Ll", "IsLl", "IsLowercase", "javaLowerCase"), "a-z")
_ASCII |= dict.fromkeys(("N", "IsN", "Nd", "IsNd", "IsDigit", "javaDigit"), "0-9")
_HORIZONTAL = r" \t\xA0\u1680\u180E\u2000-\u200A\u202F\u205F\u3000"
_VERTICAL = r"\n\x0B\f\r\x85\u2028\u2029"
_SPACE = r" \t\n\x0B\f\r"
# What \d, \w and \s are in Java, where they know ASCII alone.
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": _SPACE, "h": _HORIZONTAL, "v": _VERTICAL}
_SAME_ESCAPES = "tnrfa"
_FLAGS_KEPT, _FLAGS_DROPPED = "ims", "ud"
"""Flags of which the latter two change nothing for names of ASCII characters on one line."""


class PatternError(ValueError):
    """A construct that has no counterpart. Names it, and where it stands."""


def python_pattern(java: str) -> re.Pattern[str]:
    """A pattern that matches what `java` matches, of the names that topics can have.

    Raises:
        PatternError: it is none, or has something in it that cannot be said in Python.
    """
    translated = _Translation(java).run()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of a range to or from "-", which may mean more one day
            return re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        if "look-behind" in str(error):
            raise PatternError("a look-behind of variable length has no counterpart in Python") from None
        raise PatternError(f"not a regular expression, or none that Python has ({error})") from None


class _Translation:
    """Reads a pattern from left to right, once."""

    def __init__(self, java: str) -> None:
        self._java = java
        self._at = 0
        self._written: list[str] = []
        self._only_flags = True

    def run(self) -> str:
        while self._at < len(self._java):
            is_flags = re.compile(r"\(\?[a-z]+\)").match(self._java, self._at) is not None
            self._written.append(self._one())
            self._only_flags &= is_flags
        return "".join(self._written)

    def _refuse(self, what: str) -> PatternError:
        return PatternError(f"{what} (at character {self._at + 1}) cannot be said in Python's regular expressions")

    def _starts(self, text: str) -> bool:
        return self._java.startswith(text, self._at)

    def _one(self) -> str:
        char = self._java[self._at]
        if char == "\\":
            return self._escape(within_class=False)
        if char == "[":
            return self._class()
        if self._starts("(?"):
            return self._group()
        self._at += 1
        if char == "{" and not re.match(r"\d+(,\d*)?\}", self._java[self._at :]):
            raise PatternError(f"not a regular expression ({{ at character {self._at} begins no repetition)")
        return char

    def _group(self) -> str:
        if found := re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>").match(self._java, self._at):
            self._at = found.end()
            return f"(?P<{found[1]}>"
        for same in ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"):
            if self._starts(same):
                self._at += len(same)
                return same
        found = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])").match(self._java, self._at)
        if found is None:
            raise self._refuse(f"the group {self._java[self._at : self._at + 4]}")
        on, off, end = found[1], found[2] or "", found[3]
        for flag in on + off:
            if flag not in _FLAGS_KEPT + _FLAGS_DROPPED:
                raise self._refuse(f"the flag (?{flag})")
        if end == ")" and (off or not self._only_flags):
            raise self._refuse(f"{found[0]} that is not at the beginning: write (?{on}:…) around what it is for. It")
        self._at = found.end()
        on, off = (flags.translate({ord(flag): None for flag in _FLAGS_DROPPED}) for flags in (on, off))
        flags = on + (f"-{off}" if off else "")
        return f"(?{flags}{end}" if flags or end == ":" else ""

    def _escape(self, *, within_class: bool) -> str:
        rest = self._java[self._at + 1 :]
        if not rest:
            raise PatternError("not a regular expression (it ends with a backslash)")
        char = rest[0]
        if char == "Q":
            quoted, _, _ = rest[1:].partition("\\E")
            self._at += 2 + len(quoted) + (2 if "\\E" in rest[1:] else 0)
            return re.escape(quoted)  # a repetition after it is of its last character, in both
        if char == "E":
            raise PatternError(f"not a regular expression (\\E at character {self._at + 1} ends no \\Q)")
        if char in "pP":
            return self._property(rest, within_class=within_class)
        self._at += 2
        if char.lower() in _CLASSES:
            return self._class_escape(char, within_class=within_class)
        if char in _SAME_ESCAPES or not char.isalnum():
            return f"\\{char}" if char in _SAME_ESCAPES or char.isascii() else char
        if char == "e":
            return r"\x1B"
        if char == "0":
            return self._octal()
        if char == "x" and (found := re.match(r"x\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2})", rest)):
            self._at += found.end() - 1
            return self._code_point(found[1] or found[2])
        if char == "u" and (found := re.match(r"u([0-9a-fA-F]{4})", rest)):
            self._at += found.end() - 1
            return self._code_point(found[1])
        if char == "c" and len(rest) > 1:
            self._at += 1
            return f"\\x{ord(rest[1]) ^ 64:02x}"
        if within_class:
            self._at -= 2
            raise self._refuse(f"\\{char} in a class")
        if char.isdigit():
            if rest[1:2].isdigit():
                self._at -= 2
                raise self._refuse(f"\\{rest[:2]}")
            return f"\\{char}"
        if char == "k" and (found := re.match(r"k<([a-zA-Z][a-zA-Z0-9]*)>", rest)):
            self._at += found.end() - 1
            return f"(?P={found[1]})"
        if char in "bBA":
            return f"\\{char}"
        if char == "z":
            return r"\Z"
        if char == "Z":
            return r"(?=\n?\Z)"
        if char == "R":
            return r"(?:\r\n|[\n\x0B\f\r\x85\u2028\u2029])"
        self._at -= 2
        raise self._refuse(f"\\{char}")

    def _class_escape(self, char: str, *, within_class: bool) -> str:
        members = _CLASSES[char.lower()]
        if char.islower():
            return members if within_class else f"[{members}]"
        if not within_class:
            return f"[^{members}]"
        self._at -= 2
        raise self._refuse(f"\\{char} in a class")

    def _octal(self) -> str:
        found = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?").match(self._java, self._at)
        if found is None:
            raise PatternError("not a regular expression (\\0 without an octal number)")
        self._at = found.end()
        return f"\\x{int(found[0], 8):02x}"

    def _code_point(self, digits: str) -> str:
        number = int(digits, 16)
        if number > 0x10FFFF:
            raise PatternError(f"not a regular expression (there is no character {digits})")
        return f"\\U{number:08x}"

    def _property(self, rest: str, *, within_class: bool) -> str:
        found = re.match(r"[pP](?:\{([^}]*)\}|(\w))", rest)
        if found is None:
            raise PatternError("not a regular expression (\\p without a name)")
        name = found[1] or found[2]
        members = _ASCII.get(name)
        if members is None or (found[0][0] == "P" and within_class):
            raise self._refuse(f"\\{found[0]}" + (" in a class" if members else ""))
        self._at += 1 + found.end()
        if within_class:
            return members
        return f"[{'^' if found[0][0] == 'P' else ''}{members}]"

    def _class(self) -> str:
        """A class in brackets. Unions and intersections of classes are refused."""
        self._at += 1
        written = ["["]
        if self._starts("^"):
            self._at += 1
            written.append("^")
        is_first = True
        while True:
            if self._at >= len(self._java):
                raise PatternError("not a regular expression (a bracket is not closed)")
            char = self._java[self._at]
            if char == "]" and not is_first:
                self._at += 1
                written.append("]")
                return "".join(written)
            if self._starts("&&"):
                raise self._refuse("the intersection && of classes")
            if char == "[":
                raise self._refuse("a class within a class")
            if char == "\\":
                is_set = self._java[self._at + 1 : self._at + 2] in set("dwshvp")
                written.append(self._escape(within_class=True))
                if is_set and self._starts("-"):  # after a set of characters it begins no range
                    self._at += 1
                    written.append("\\-")
            else:
                self._at += 1
                # What Python may take for an operation between sets one day is written as a character.
                written.append(f"\\{char}" if char in "~|&]" else char)
            is_first = False
