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


def blocks(path: Path) -> Iterator[tuple[list[Command], list[str]]]:
    """The commands of each block, and the output that is written there."""
    commands: list[Command] = []
    output: list[str] | None = None
    for number, line in enumerate([*path.read_text().splitlines(), ""], start=1):
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
