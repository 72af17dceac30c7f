"""Files of commands and the output that they must give: `pytest --rewrite` writes the output that they do give.

A file is a comment, then blocks apart by empty lines. A block is commands, a line of dashes, and their output:

    crash B
    elect A
    ----
    A leader   epoch=1  [m1@0 | m2@0]
    B down
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path

DASHES = "----"
NUMBERS = ("OFFSET", "COUNT")


class StoryError(Exception):
    """A line that cannot be played: names the file, the line, and what is possible."""


@dataclass(frozen=True)
class Command:
    """One line: words, then options as `name=value`, or a bare word for yes.

    Attributes:
        place: of the line, for errors.
    """

    place: str
    text: str
    name: str
    words: tuple[str, ...]
    options: dict[str, str]

    def refuse(self, why: str) -> StoryError:
        return StoryError(f"{self.place}: {self.text!r}: {why}")


def parse(line: str, place: str) -> Command:
    name, *rest = line.split()
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    return Command(place, line, name, tuple(word for word in rest if "=" not in word), options)


def fits(command: Command, usage: str) -> bool:
    """Whether a command is used as `name WORD... [word] option=N [option=this|that]: what it does` says.

    A word in capitals stands for any (OFFSET and COUNT for a number), one in small letters for itself; brackets are
    around what may be left out.
    """
    grammar = usage.split(": ", maxsplit=1)[0].removesuffix(":").split()[1:]
    literals = {word.strip("[]") for word in grammar if word.startswith("[") and word.strip("[]").islower()}
    literals = {word for word in literals if "=" not in word}
    places = [word for word in grammar if "=" not in word and word.strip("[]") not in literals]
    words = [word for word in command.words if word not in literals]
    most = len(words) if any("..." in word for word in places) else len(places)
    if not sum(not word.startswith("[") for word in places) <= len(words) <= most:
        return False
    if any(place.strip("[]") in NUMBERS and not word.isdecimal() for place, word in zip(places, words, strict=False)):
        return False
    options = {word.strip("[]").split("=")[0]: word for word in grammar if "=" in word}
    if not command.options.keys() <= options.keys():
        return False
    return all(_may_be(command.options.get(name), word) for name, word in options.items())


def _may_be(given: str | None, word: str) -> bool:
    """Whether an option may have a value; `word` is it in the usage."""
    if given is None:
        return word.startswith("[")
    value = word.strip("[]").split("=")[1]
    if value.islower():
        return given in value.split("|")
    return bool(given) if "..." in value else given.isdecimal()


def blocks(path: Path) -> Iterator[tuple[list[Command], list[str]]]:
    """The commands of each block, and the output that is written there."""
    commands: list[Command] = []
    output: list[str] | None = None
    for number, text in enumerate([*path.read_text().splitlines(), ""], start=1):
        line = text.rstrip()
        if line == DASHES and output is None:
            output = []
        elif line and output is not None:
            output.append(line)
        elif line and not line.startswith("#"):
            commands.append(parse(line, f"{path.name}:{number}"))
        elif not line and commands:
            if output is None:
                raise StoryError(f"{path.name}:{number}: the commands above end without {DASHES} and their output")
            yield commands, output
            commands, output = [], None
        elif not line and output is not None:
            raise StoryError(f"{path.name}:{number}: there are no commands above {DASHES}")


def check_file(path: Path, play: Callable[[list[Command]], list[str]], *, is_rewriting: bool) -> None:
    """Play the blocks of a file in order; fail where the output differs, or write it anew."""
    head = [line for line in path.read_text().split("\n\n")[0].splitlines() if line.startswith("#")]
    written = [head] if head else []
    for commands, expected in blocks(path):
        found = play(commands)
        written.append([*(command.text for command in commands), DASHES, *found])
        if not is_rewriting:
            difference = "\n".join(ndiff(expected, found))
            assert found == expected, f"{commands[0].place}: it goes otherwise (--rewrite to accept):\n{difference}"
    if is_rewriting:
        path.write_text("\n\n".join("\n".join(lines) for lines in written) + "\n")
