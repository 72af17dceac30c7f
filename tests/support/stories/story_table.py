"""Which story breaks under which of the rules that were replaced, and the README of the stories, which says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.old_rules.reader_rules import OLD_READER_RULES
from support.old_rules.replica_rules import OLD_RULES
from support.stories.datadriven import blocks
from support.stories.reader_story import ReaderStory
from support.stories.replica_story import ReplicaStory

INTRODUCTION = """# Scenarios

Each file in this folder is a scenario that fits on one screen: commands, a line of dashes, and the resulting state.
It ends with the same commands under a rule that was replaced; there a named invariant breaks.
`pytest tests/scenarios --rewrite` writes the output again. Read the difference as a change of behaviour.
The same command writes this file.

Begin with [kip-101-restart-then-lead.txt](kip-101-restart-then-lead.txt).
`m2@0` is record m2 of leader epoch 0. Records to the left of `|` are below that broker's high watermark.
`kip-…` shows a rule of a KIP, and `rule-…` a rule beyond the KIPs, by its row in [docs/kips.md](../../docs/kips.md).
`consumer-…` and `producer-…` show the behaviour of clients when a log lost its end.
The replaced rules are in `tests/support/old_rules/`; production code contains only the current ones.

## Commands for replicas

A scenario that begins with `cluster` concerns the replicas of one partition.
(`tests/support/stories/stories.py` lists the other first commands and the interpreters of those scenarios.)
"""

REPLACED = """- `replay rule=NAME`: the whole scenario again, under one of the rules below

## Replaced rules

| rule | meaning |
|---|---|
"""
TABLE = """
## Scenarios and the rules that they need

The test plays every scenario of replicas under every replaced rule.
The second column is the rule that the scenario was written for.
The third column lists other rules that break it, because they are weaker in the same place or in several.

| scenario | its rule | other rules that break it |
|---|---|---|
"""


CLIENTS = """
## Commands for clients

A scenario that begins with `topic` concerns a consumer and a producer of one partition.
`reader at=2  has [m1@0 m4@1]` shows the consumer's position, and the records that it got and was not asked to undo.

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
        story = ReplicaStory()
        for commands, _ in told:
            story.play(commands)
        breaking = tuple(name for name, old in OLD_RULES.items() if story.breaks_under(old.rules))
        yield Row(path.name, last[0].options["rule"], breaking)


def readme(table: list[Row]) -> str:
    commands = _list_of(usage for usage, _ in ReplicaStory().table.values())
    clients = _list_of(usage for usage, _ in ReaderStory().table.values())
    lines = ""
    for story, own, breaking in table:
        others = ", ".join(name for name in breaking if name != own)
        lines += f"| [{story.removesuffix('.txt')}]({story}) | {own} | {others} |\n"
    replaced = "".join(f"| {name} | {old.says} |\n" for name, old in OLD_RULES.items())
    of_clients = CLIENTS + clients + REPLACED.replace("Replaced rules", "Replaced rules of clients")
    of_clients += "".join(f"| {name} | {old.says} |\n" for name, old in OLD_READER_RULES.items())
    return f"{INTRODUCTION}\n{commands}{REPLACED}{replaced}{TABLE}{lines}{of_clients}"


def _list_of(usages: Iterable[str]) -> str:
    return "".join(f"- `{call}`{'' if not what else ': ' + what}\n" for call, what in map(_parts, usages))


def _parts(usage: str) -> tuple[str, str]:
    call, _, what = usage.partition(": ")
    return call, what
