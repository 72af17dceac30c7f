"""Which story breaks under which of the rules that were replaced, and the README of the stories, which says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.old_rules.reader_rules import OLD_READER_RULES
from support.old_rules.replica_rules import OLD_RULES
from support.stories.datadriven import blocks
from support.stories.reader_story import ReaderStory
from support.stories.story import Story

INTRODUCTION = """# Stories

Each file here is a story on one screen: commands, a line of dashes, and what is the case then.
It ends with the same commands under a rule that was replaced, where a named invariant breaks.
`pytest tests/scenarios --rewrite` writes the output anew; read the difference as a change of behaviour.
This file is written so, too.

Begin with [kip-101-restart-then-lead.txt](kip-101-restart-then-lead.txt).
`m2@0` is record m2 of leader epoch 0; what is left of `|` lies below that broker's high watermark.
`kip-…` tells a proposal, `rule-…` a rule beyond the texts, by its row in [docs/kips.md](../../docs/kips.md);
`consumer-…` and `producer-…` tell what clients make of a log that lost its end.
The rules that were replaced are in `tests/support/old_rules/`; production has today's alone.

## What can happen to replicas

A story that begins with `cluster` is about the replicas of one partition.
(`tests/support/stories/stories.py` says what other first commands there are, and who plays those stories.)
"""

REPLACED = """- `replay rule=NAME`: all of it again, under one of the rules below

## The rules that were replaced

| rule | what it says |
|---|---|
"""
TABLE = """
## Which story needs which rule

Every story of replicas, played under every rule that was replaced.
Its own rule is the one that it is told for; what else breaks it is weaker in the same place, or in more than one.

| story | its own rule | breaks as well under |
|---|---|---|
"""


CLIENTS = """
## What can happen to clients

A story that begins with `topic` is about a consumer and a producer of one partition.
`reader at=2  has [m1@0 m4@1]` is where the consumer goes on, and all that it was given and not told to undo.

"""


class Row(NamedTuple):
    """One story, the rule that it ends with, and all that break it."""

    story: str
    own: str
    breaking: tuple[str, ...]


def rows(directory: Path) -> Iterator[Row]:
    """Of all stories of replicas, by name."""
    for path in sorted(directory.glob("*.txt")):
        *told, (last, _) = blocks(path)
        if told[0][0][0].name != "cluster":
            continue
        story = Story()
        for commands, _ in told:
            story.play(commands)
        breaking = tuple(name for name, old in OLD_RULES.items() if story.breaks_under(old.rules))
        yield Row(path.name, last[0].options["rule"], breaking)


def readme(table: list[Row]) -> str:
    commands = _list_of(usage for usage, _ in Story().table.values())
    clients = _list_of(usage for usage, _ in ReaderStory().table.values())
    lines = ""
    for story, own, breaking in table:
        others = ", ".join(name for name in breaking if name != own)
        lines += f"| [{story.removesuffix('.txt')}]({story}) | {own} | {others} |\n"
    replaced = "".join(f"| {name} | {old.says} |\n" for name, old in OLD_RULES.items())
    of_clients = CLIENTS + clients + REPLACED.replace("rules that", "rules of clients that")
    of_clients += "".join(f"| {name} | {old.says} |\n" for name, old in OLD_READER_RULES.items())
    return f"{INTRODUCTION}\n{commands}{REPLACED}{replaced}{TABLE}{lines}{of_clients}"


def _list_of(usages: Iterable[str]) -> str:
    return "".join(f"- `{call}`{'' if not what else ': ' + what}\n" for call, what in map(_parts, usages))


def _parts(usage: str) -> tuple[str, str]:
    call, _, what = usage.partition(": ")
    return call, what
