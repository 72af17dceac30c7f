"""What became of a client, as a row of the tables in docs/compatibility.md."""

from __future__ import annotations

import re

from compat.unclean_elections.story import KEPT, Fates, Reading, Writing

__all__ = ["row_of_producers", "row_of_readers", "words_of"]


def row_of_readers(client: str, version: str, short: Fates, long: Fates) -> str:
    """At position 100, of a log that ends at 80 or at 130; and from a commit, of the latter."""
    readings = (short.read[client], long.read[client], long.resumed[client])
    return _row([_name(client, version), *map(_reading, readings)])


def row_of_producers(client: str, version: str, short: Fates, long: Fates) -> str:
    """Some of whose records were lost; all of whose records were lost, and the log ends at 80 or at 130."""
    writings = (long.early[client], short.late[client], long.late[client])
    return _row([_name(client, version), *map(_writing, writings)])


def words_of(client: str, short: Fates, long: Fates) -> str:
    """Those that a reader at position 100 is given: where the log ends at 130, or else where it ends at 80."""
    told = long.read[client].told or short.read[client].told
    words = "" if told is None else re.sub(r"\bbroker \d+\b", "broker N", told.words)
    return _row([client, f"`{words}`"])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(client: str, version: str) -> str:
    return client if client == "Tidelog" else f"{client} {version.removeprefix('v')}"


def _reading(reading: Reading) -> str:
    told = reading.told
    if told is None:
        return f"**no error**: keeps {reading.kept_count} lost records, skips {reading.skipped_count} new ones"
    where = {"value": f"carries {KEPT}", "words": f"{KEPT} only in its text", None: "no offset"}[told.where]
    said = f"`{told.error}`, {where}"
    return said if reading.went_on_at is None else f"{said}; reads on from {reading.went_on_at}"


def _writing(writing: Writing) -> str:
    called_back = "a callback" if writing.is_called_back else ""
    if writing.told is None:
        return f"{called_back or '**no error**'}; {'writes on' if writing.writes_on else 'stops'}"
    said = f"`{writing.told.error}`{' and ' if called_back else ''}{called_back}"
    return f"{said}; {'writes on' if writing.writes_on else 'stops'}"
