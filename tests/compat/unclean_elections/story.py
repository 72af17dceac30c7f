"""The story: an unclean election loses records 50 to 99 of a log that each client has read, or written, to its end.

    readers             hold position 100, and stand still (SIGSTOP) until the log has grown anew
    readers that commit committed position 100 and ended; they start again when the log has grown anew
    writers             write on when the readers are done: "early" ones have two records below 50 and two above,
                        "late" ones have two above alone, from 87 on

Case "short": 30 records are written after the election, and the log ends at 80. Case "long": 80, and it ends at 130.
All clients of a case live through one and the same election.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from compat.unclean_elections.clients import Client, environment
from support.fixtures.waiting import wait_until
from tidelog import Admin, Producer, TopicPartition
from tidelog.testing import Cluster

__all__ = ["CONFIG", "KEPT", "Fates", "OnTidelog", "Place", "Reading", "Story", "Writing", "commands_of"]

CONFIG = {"group.initial.rebalance.delay.ms": "0"}
KEPT = 50
"""How many records of the old log are left by the election."""
READ = 100
"""How many the readers had."""
WRITTEN_EACH = 2
"""By each producer, below KEPT, and above."""
EARLY, LATE = "early", "late"
NEW = {"short": 30, "long": 80}
"""How many records are written after the election, by case."""
LAST_OLD = "old-last-0"


@dataclass(frozen=True, slots=True)
class Told:
    """An error that a program was given, or a callback.

    Attributes:
        place: the offset to go on at, as it is given to the program, or None.
    """

    error: str
    place: int | None
    words: str

    @property
    def where(self) -> str | None:
        """Where the program finds the offset at which the loss begins: "value", "words" or nowhere."""
        if self.place == KEPT:
            return "value"
        return "words" if re.search(rf"\b{KEPT}\b", self.words) else None


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of a reader.

    Attributes:
        told: the first error that it was given after the election, if any.
        went_on_at: the offset of the first record that it was given after the election, by its client alone.
        kept_count: how many of the lost records it holds without having been told where the loss begins.
        skipped_count: how many of the new records it was not given, though it read on.
    """

    told: Told | None
    went_on_at: int | None
    kept_count: int
    skipped_count: int


@dataclass(frozen=True, slots=True)
class Writing:
    """What became of a writer after the election.

    Attributes:
        told: the error of its next record, if it failed.
        is_called_back: whether a callback for losses, or for errors of the producer as a whole, was called.
        writes_on: whether the record after that was acknowledged.
    """

    told: Told | None
    is_called_back: bool
    writes_on: bool


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of all in one election, by client.

    Attributes:
        resumed: readers that had committed.
        early, late: producers, some or all of whose records were lost.
    """

    read: dict[str, Reading]
    resumed: dict[str, Reading]
    early: dict[str, Writing]
    late: dict[str, Writing]


class Place(Protocol):
    """A cluster that loses records to order."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, topic: str) -> None: ...

    def begin_loss(self, topic: str) -> None:
        """From here on the topic's records will be lost."""

    def lose(self, topic: str) -> None:
        """Lose them, by an unclean election."""


class OnTidelog:
    """Three nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    def create_topic(self, topic: str) -> None:
        self._cluster.create_topic(topic)

    def begin_loss(self, topic: str) -> None:
        """The cluster takes the last records, when they are there."""

    def lose(self, topic: str) -> None:
        self._cluster.truncate(topic, records=READ - KEPT)


class Program:
    """A program of a client. A file keeps what it says."""

    def __init__(self, name: str, command: list[str], files: Path) -> None:
        self.name = name
        files.mkdir(parents=True, exist_ok=True)
        stem = f"{name}-{len(list(files.iterdir()))}"
        self._said, self._errors = files / f"{stem}.lines", files / f"{stem}.errors"
        if (setpriv := shutil.which("setpriv")) is not None:  # a killed test run leaves no suspended program behind
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self._said.open("wb") as said, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=errors, env=environment()
            )

    def lines(self) -> list[list[str]]:
        """All that it said so far, a list of fields a line."""
        said = self._said.read_text()
        return [line.split("\t") for line in said[: said.rfind("\n") + 1].splitlines()]

    def lines_after_log(self) -> list[list[str]]:
        """What it said after the last record of the log as it was before the election."""
        lines = self.lines()
        return lines[1 + next(at for at, line in enumerate(lines) if line[0] == "got" and line[2] == LAST_OLD) :]

    def events(self, kind: str) -> list[list[str]]:
        return [fields for event, *fields in self.lines() if event == kind]

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def wait_for(self, kind: str, count: int, what: str) -> None:
        """So many events. Raises as `wait`."""
        self.wait(lambda: len(self.events(kind)) >= count, what)

    def wait(self, is_so: Callable[[], object], what: str) -> None:
        """Raises AssertionError: it was not so in time, or the program ended before with another status than 0."""

        def came() -> bool:
            status = self._process.poll()
            return bool(is_so()) or bool(status)

        wait_until(came, lambda: f"{self.name}: {what}:\n{self._report()}")
        assert is_so(), f"{self.name} ended with status {self._process.poll()}: {what}\n{self._report()}"

    def wait_until_ended(self) -> None:
        self.wait(lambda: self._process.poll() is not None, "it ends")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _report(self) -> str:
        return f"{self._said.read_text()[-2_000:]}{self._errors.read_text(errors='replace')[-2_000:]}"


class Story:
    """The story on a cluster, for some clients.

    Args:
        place: where.
        commands: by client, in the order of the table.
        directory: for what the programs say.

    Attributes:
        versions: of the clients, once they have run.
    """

    def __init__(self, place: Place, commands: dict[str, list[str]], directory: Path) -> None:
        self._place = place
        self._commands = commands
        self._directory = directory
        self.versions: dict[str, str] = {}

    def run(self, case: str, *, commits: bool) -> Fates:
        """A case of NEW.

        Args:
            commits: whether readers that commit are there as well.
        """
        last = f"new-{NEW[case] - 1}"
        resumed = {}
        self._place.create_topic(case)
        with ExitStack() as closing:
            writers = self._start("write", case, "-", closing)
            self._fill(case, writers)
            if commits:
                for program in self._start("commit", case, LAST_OLD, closing).values():
                    program.wait_until_ended()
                    assert program.events("committed"), f"{program.name} did not commit: {program.lines()}"
            readers = self._start("read", case, last, closing)
            for reader in readers.values():
                reader.wait_for("got", READ, "it has read the log")
                reader.pause()
            self._lose_and_grow(case)
            for reader in readers.values():
                reader.resume()
            for reader in readers.values():
                reader.wait_until_ended()
            read = {name: reading_of(reader.lines_after_log(), NEW[case]) for name, reader in readers.items()}
            if commits:
                for name, program in self._start("resume", case, last, closing).items():
                    program.wait_until_ended()
                    resumed[name] = reading_of(program.lines(), NEW[case])
            late = {name: self._written_on(writer, LATE) for name, writer in writers.items()}
            early = {name: self._written_on(writer, EARLY) for name, writer in writers.items()}
        return Fates(read, resumed, early, late)

    # Steps.

    def _start(self, role: str, topic: str, last: str, closing: ExitStack) -> dict[str, Program]:
        started = {}
        for name, command in self._commands.items():
            arguments = [role, self._place.bootstrap_servers, topic, f"{topic}-{name}", last]
            program = Program(name, [*command, *arguments], self._directory / f"{topic}-{role}")
            closing.callback(program.close)
            started[name] = program
        for name, program in started.items():
            program.wait_for("version", 1, "it starts")
            self.versions[name] = program.events("version")[0][1]
        return started

    def _fill(self, topic: str, writers: dict[str, Program]) -> None:
        """The log as it is before the election: the last record is LAST_OLD."""
        each = WRITTEN_EACH * len(writers)
        self._have_write(writers, EARLY, "kept")
        self._write(topic, [f"kept-{number}" for number in range(KEPT - each)])
        self._place.begin_loss(topic)
        self._have_write(writers, EARLY, "lost")
        self._write(topic, [f"lost-{number}" for number in range(READ - KEPT - 2 * each - 1)])
        self._have_write(writers, LATE, "lost")
        self._write(topic, [LAST_OLD])

    @staticmethod
    def _have_write(writers: dict[str, Program], producer: str, half: str) -> None:
        before = {name: (len(writer.events("done")), len(writer.events("acked"))) for name, writer in writers.items()}
        for writer in writers.values():
            writer.tell(f"{producer} {half} {WRITTEN_EACH}")
        for name, writer in writers.items():
            done, acked = before[name]
            writer.wait_for("done", done + 1, "it has written")
            assert len(writer.events("acked")) == acked + WRITTEN_EACH, writer.lines()

    def _lose_and_grow(self, case: str) -> None:
        assert self._end_offset(case) == READ
        self._place.lose(case)
        assert self._end_offset(case) == KEPT
        self._write(case, [f"new-{number}" for number in range(NEW[case])])

    @staticmethod
    def _written_on(writer: Program, producer: str) -> Writing:
        before = len(writer.lines())
        done = len(writer.events("done"))
        for number, value in enumerate(("first", "second"), start=1):
            writer.tell(f"{producer} {value} 1")
            writer.wait_for("done", done + number, "the record has its fate")
        lines = writer.lines()[before:]
        first = lines[: lines.index(["done"])]
        return Writing(
            next((told_of(fields) for event, *fields in first if event == "failed"), None),
            is_called_back=any(event == "lost" for event, *_ in lines),
            writes_on=any(event == "acked" and fields[1] == "second-0" for event, *fields in lines),
        )

    def _end_offset(self, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        with Admin(self._place.bootstrap_servers) as admin:
            found = admin.list_offsets({partition: "latest"})[partition]
        assert found is not None, f"{partition} has no end"
        return found.offset

    def _write(self, topic: str, values: Iterable[str]) -> None:
        with Producer(self._place.bootstrap_servers) as producer:
            for value in values:
                producer.send(topic, value.encode(), partition=0)


def told_of(fields: list[str]) -> Told:
    error, place, words = fields
    return Told(error, None if place == "-" else int(place), words)


def reading_of(lines: list[list[str]], new_count: int) -> Reading:
    """What became of a reader, by what it said after the election."""
    told = next((told_of(fields) for event, *fields in lines if event == "told"), None)
    got = [(int(fields[0]), fields[1]) for event, *fields in lines if event == "got"]
    new = {value for _, value in got if value.startswith("new-")}
    is_placed = told is not None and told.where is not None
    went_on_at = got[0][0] if got else None
    sees_all_again = went_on_at is not None and went_on_at <= KEPT
    return Reading(
        told,
        went_on_at,
        kept_count=0 if is_placed or sees_all_again else READ - KEPT,
        skipped_count=new_count - len(new) if got else 0,
    )


def commands_of(clients: Iterable[Client], directory: Path) -> dict[str, list[str]]:
    """How to start each of them; what has to be built for that is built below `directory`."""
    commands = {}
    for client in clients:
        built = directory / "built" / client.name
        built.mkdir(parents=True)
        commands[client.name] = client.build(built)
    return commands
