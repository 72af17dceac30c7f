"""What is known of mutants: which functions hold a named rule, and which mutants change no behaviour, and why."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import Mutant


class StaleError(Exception):
    """An entry names what is not there any more."""


class Known(NamedTuple):
    """What `known.toml` says.

    Attributes:
        rules: by function, as mutants name their place: the rules of docs/kips.md that it holds.
        equivalents: why, by the key of each mutant that changes no behaviour.
    """

    rules: Mapping[str, tuple[str, ...]]
    equivalents: Mapping[tuple[str, str, str, int], str]

    def rules_of(self, mutant: Mutant) -> tuple[str, ...]:
        """The named rules that the mutant changes; none where it changes what is about no rule."""
        return self.rules.get(mutant.place, ())


def load_known(path: Path, rows: Path, mutants: Iterable[Mutant]) -> Known:
    """Read the file, and hold it against what there is.

    Args:
        rows: the table of rules, docs/kips.md.
        mutants: all that there are.

    Raises:
        StaleError: it names a rule, a function or a mutant that is not there. Correct the file.
    """
    text = tomllib.loads(path.read_text())
    there = list(mutants)
    table = rows.read_text()
    rules: dict[str, tuple[str, ...]] = {}
    for rule, places in text["rules"].items():
        if f"\n| {rule} |" not in table:
            raise StaleError(f"{path.name}: {rows.name} has no rule {rule}")
        for place in places:
            if not any(mutant.place == place for mutant in there):
                raise StaleError(f"{path.name}: rule {rule} names {place!r}, of which there is no mutant")
            rules[place] = (*rules.get(place, ()), rule)
    equivalents = {
        (entry["place"], entry["before"], entry["after"], entry.get("number", 1)): " ".join(entry["why"].split())
        for entry in text.get("equivalent", [])
    }
    for key in equivalents.keys() - {mutant.key for mutant in there}:
        raise StaleError(f"{path.name}: there is no such mutant any more: {key}")
    return Known(rules, equivalents)
