"""What came of all rounds: a JSON file that runs add up into, and the table for people.

`python tests/chaos/report.py FILE…` prints the table; with `--into PAGE` it goes between the marks of a page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

COLUMNS = (
    "kind of fault", "hours", "rounds", "faults", "acknowledged", "copied", "lost", "unreported", "readers told",
    "longest pause", "failed rounds",
)  # fmt: skip
MARKS = ("<!-- chaos -->", "<!-- /chaos -->")


@dataclass(slots=True, kw_only=True)
class Struck:
    """A fault as it was played, `at` seconds after the round began."""

    kind: str
    what: str
    at: float


@dataclass(slots=True, kw_only=True)
class Row:
    """What came of one round.

    Attributes:
        seconds: under faults.
        acknowledged: records.
        commits: of the group, acknowledged.
        copied: records, in transactions, each once.
        members_killed: of a group.
        stalls: how often a member of the group had to join again: librdkafka asks for committed offsets only once.
        given_up: records whose producer was told that it failed.
        lost: acknowledged, and not there in the end.
        unreported: how often a reader was not told of what is gone, or was given the wrong thing.
        told_readers, told_producers: how often they were told of a loss.
        findings: all of the checkers, by their names.
        pauses: the longest time in seconds that each producer waited for an acknowledgement.
        packets: what became of them.
        error: what is wrong; empty if nothing is.
    """

    kind: str
    seed: int
    nodes: int
    is_sealed: bool
    commit: str = ""
    seconds: float = 0.0
    faults: list[Struck] = field(default_factory=list)
    acknowledged: int = 0
    commits: int = 0
    copied: int = 0
    members_killed: int = 0
    stalls: int = 0
    given_up: int = 0
    lost: int = 0
    unreported: int = 0
    told_readers: int = 0
    told_producers: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    pauses: dict[str, float] = field(default_factory=dict)
    packets: dict[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def pause(self) -> float:
        """The longest of any producer."""
        return max(self.pauses.values(), default=0.0)

    def summary(self) -> str:
        """One line."""
        verdict = f"WRONG: {self.error.strip().splitlines()[-1]}" if self.error else "nothing wrong"
        stalls = f"librdkafka's members stalled {self.stalls} times, " if self.stalls else ""
        return (
            f"{self.kind}, seed {self.seed}, {self.nodes} nodes: {len(self.faults)} faults in {self.seconds:.0f} s, "
            f"{self.acknowledged} acknowledged, {self.copied} copied, "
            f"{self.members_killed} members killed, {self.lost} lost, {self.unreported} unreported, "
            f"{self.given_up} given up, {stalls}{self.pause:.1f} s the longest pause: {verdict}"
        )

    @staticmethod
    def of(values: Mapping[str, Any]) -> Row:
        """What `asdict` made of one."""
        return Row(**{**values, "faults": [Struck(**one) for one in values["faults"]]})


def read_rows(path: Path) -> list[Row]:
    """Those of all runs before; none if there is no such file."""
    if not path.exists():
        return []
    return [Row.of(one) for one in json.loads(path.read_text())["rounds"]]


def add_row(path: Path, row: Row) -> None:
    """Add it to those that are there. Whoever is killed meanwhile leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [*read_rows(path), row]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"rounds": [asdict(one) for one in rows]}, indent=1) + "\n")
    os.replace(new, path)


def table_of(rows: Iterable[Row]) -> str:
    """A row for each kind of fault, and one for all; hours are those under faults."""
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(row.kind, []).append(row)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [_line(kind, found) for kind, found in sorted(by_kind.items())]
    lines.append(_line("all", [row for found in by_kind.values() for row in found]))
    return "\n".join(lines)


def _line(kind: str, rows: list[Row]) -> str:
    cells = (
        kind,
        f"{sum(row.seconds for row in rows) / 3_600:.2f}",
        len(rows),
        sum(len(row.faults) for row in rows),
        f"{sum(row.acknowledged for row in rows):,}",
        f"{sum(row.copied for row in rows):,}",
        f"{sum(row.lost for row in rows):,}",
        f"{sum(row.unreported for row in rows):,}",
        f"{sum(row.told_readers for row in rows):,}",
        f"{max(row.pause for row in rows):.1f} s" if any(row.pauses for row in rows) else "",
        sum(bool(row.error) for row in rows),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def put_into(page: Path, table: str) -> None:
    """Between the marks. Raises ValueError if the page has none."""
    text = page.read_text()
    before, mark, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise ValueError(f"{page} has no {MARKS[0]} and {MARKS[1]} around a table")
    page.write_text(f"{before}{mark}\n{table}\n{end}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="The table of what all these runs were about.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="reports, which add up")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put it between the marks of a page")
    options = parser.parse_args(arguments)
    table = table_of(row for path in options.files for row in read_rows(path))
    if options.into is None:
        print(table)
    else:
        put_into(options.into, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
