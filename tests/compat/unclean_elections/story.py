"""The story: an unclean election loses records 50 to 99 of a log that each client has read, or written, to its end.

    readers             hold position 100, and stand still (SIGSTOP) until the log has grown anew
    readers that commit committed position 100 and ended; they start again when the log has grown anew
    writers             have eight records below 50, and eight above; they write on when the readers are done

Case "short": 30 records are written after the election, and the log ends at 80. Case "long": 80, and it ends at 130.
All clients of a case live through one and the same election.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from compat.unclean_elections.clients import Client, environment
from support.fixtures.waiting import wait_until
from tidelog import Producer
from tidelog.testing import Cluster

__all__ = ["CONFIG", "KEPT", "READ", "Reading", "Story", "Writing", "new_story"]

CONFIG = {"group.initial.rebalance.delay.ms": "0"}
KEPT = 50
"""How many records of the old log are left by the election."""
READ = 100
"""How many the readers had."""
WRITTEN_EACH = 8
"""By each writer, below KEPT, and above."""
SHORT, LONG = 30, 80
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
        told: the error of its next record, or a callback.
        acked_at: the offset of that record, if it was acknowledged.
        later_acked_at: the same of the record after it.
    """

    told: Told | None
    acked_at: int | None
    later_acked_at: int | None


@dataclass(frozen=True, slots=True)
class Long:
    """What became of all of case "long", by client."""

    read: dict[str, Reading]
    resumed: dict[str, Reading]
    written: dict[str, Writing]


class Program:
    """A program of a client, whose lines are kept in a file."""

    def __init__(self, name: str, command: list[str], files: Path) -> None:
        self.name = name
        files.mkdir(parents=True, exist_ok=True)
        stem = f"{name}-{len(list(files.iterdir()))}"
        self._said, self._errors = files / f"{stem}.lines", files / f"{stem}.errors"
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
        commands: by client, in the order of the table.
        directory: for what the programs say.

    Attributes:
        versions: of the clients, once they have run.
    """

    def __init__(self, cluster: Cluster, commands: dict[str, list[str]], directory: Path) -> None:
        self._cluster = cluster
        self._commands = commands
        self._directory = directory
        self.versions: dict[str, str] = {}

    def run_short(self) -> dict[str, Reading]:
        """Case "short", with readers."""
        topic, last = "short", f"new-{SHORT - 1}"
        self._cluster.create_topic(topic)
        self._write(topic, [f"old-{number}" for number in range(READ - 1)] + [LAST_OLD])
        with ExitStack() as closing:
            readers = self._paused_readers(topic, last, closing)
            self._lose_and_grow(topic, SHORT)
            return self._resumed(readers, SHORT)

    def run_long(self) -> Long:
        """Case "long", with readers, readers that commit, and writers."""
        topic, last = "long", f"new-{LONG - 1}"
        self._cluster.create_topic(topic)
        with ExitStack() as closing:
            writers = self._start("write", topic, "-", closing)
            for number_of_halves, half in enumerate(("kept", "lost"), start=1):
                filled = KEPT - WRITTEN_EACH * len(writers)
                values = [f"{half}-{number}" for number in range(filled)]
                if half == "lost":
                    values[-1] = LAST_OLD
                for writer in writers.values():
                    writer.tell(f"{half} {WRITTEN_EACH}")
                for writer in writers.values():
                    writer.wait_for("done", number_of_halves, "it has written")
                    assert len(writer.events("acked")) == number_of_halves * WRITTEN_EACH, writer.lines()
                self._write(topic, values)
            committing = self._start("commit", topic, LAST_OLD, closing)
            for program in committing.values():
                program.wait_until_ended()
                assert program.events("committed"), f"{program.name} did not commit: {program.lines()}"
            readers = self._paused_readers(topic, last, closing)
            self._lose_and_grow(topic, LONG)
            read = self._resumed(readers, LONG)
            resuming = self._start("resume", topic, last, closing)
            resumed = {}
            for name, program in resuming.items():
                program.wait_until_ended()
                resumed[name] = reading_of(program.lines(), LONG)
            written = {name: self._written_on(writer) for name, writer in writers.items()}
        return Long(read, resumed, written)

    # Steps.

    def _start(self, role: str, topic: str, last: str, closing: ExitStack) -> dict[str, Program]:
        started = {}
        for name, command in self._commands.items():
            arguments = [role, self._cluster.bootstrap_servers, topic, f"{topic}-{name}", last]
            program = Program(name, [*command, *arguments], self._directory / f"{topic}-{role}")
            closing.callback(program.close)
            started[name] = program
        for name, program in started.items():
            program.wait_for("version", 1, "it starts")
            self.versions[name] = program.events("version")[0][1]
        return started

    def _paused_readers(self, topic: str, last: str, closing: ExitStack) -> dict[str, Program]:
        readers = self._start("read", topic, last, closing)
        for reader in readers.values():
            reader.wait_for("got", READ, "it has read the log")
            reader.pause()
        return readers

    def _lose_and_grow(self, topic: str, count: int) -> None:
        lost = self._cluster.truncate(topic, records=READ - KEPT)
        assert (lost.start_offset, lost.end_offset) == (KEPT, READ)
        self._write(topic, [f"new-{number}" for number in range(count)])

    def _resumed(self, readers: dict[str, Program], new_count: int) -> dict[str, Reading]:
        for reader in readers.values():
            reader.resume()
        for reader in readers.values():
            reader.wait_until_ended()
        return {name: reading_of(reader.lines_after_log(), new_count) for name, reader in readers.items()}

    def _written_on(self, writer: Program) -> Writing:
        before = len(writer.lines())
        done = len(writer.events("done"))
        writer.tell("first 1")
        writer.wait_for("done", done + 1, "the next record has its fate")
        first = writer.lines()[before:]
        writer.tell("second 1")
        writer.wait_for("done", done + 2, "the record after it has its fate")
        second = writer.lines()[before + len(first) :]
        told = [told_of(fields) for event, *fields in first + second if event in ("failed", "lost")]
        acked = [[int(fields[0]) for event, *fields in lines if event == "acked"] for lines in (first, second)]
        return Writing(next(iter(told), None), *(next(iter(offsets), None) for offsets in acked))

    def _write(self, topic: str, values: Iterable[str]) -> None:
        with Producer(self._cluster.bootstrap_servers) as producer:
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


@contextmanager
def new_story(clients: Iterable[Client], directory: Path) -> Iterator[Story]:
    """A story on a cluster of its own."""
    commands = {}
    for client in clients:
        built = directory / "built" / client.name
        built.mkdir(parents=True)
        commands[client.name] = client.build(built)
    with Cluster(config=CONFIG) as cluster:
        yield Story(cluster, commands, directory)
