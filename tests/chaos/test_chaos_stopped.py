"""Chaos that is stopped midway leaves nothing running, and no files; after a `kill -9` the next run clears up."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.leftovers import PREFIX, UNDO, Home, clear_leftovers, note_undoing
from chaos.sandbox import STOPPED, can_seal
from support.fixtures.waiting import wait_until

RUN = Path(__file__).with_name("run.py")


class Runner:
    """A run whose nodes are under a fault: one of them is stopped (SIGSTOP)."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self._log = home / "run.log"
        command = [
            sys.executable, str(RUN), "--home", str(home), "--report", str(home / "report.json"),
            "--keep", str(home / "kept"), "--seed", "1", "--only", "SIGSTOP", "--round-seconds", "600", "--bare",
            *arguments,
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def directories(self) -> list[Path]:
        return list(self.home.glob(f"{PREFIX}*"))

    def until_hurting(self) -> set[tuple[int, str]]:
        """Until a node is stopped. All processes then, this one not."""
        wait_until(lambda: "SIGSTOP: node" in self.said or self.process.poll() is not None, lambda: self.said)
        assert self.process.poll() is None, self.said
        return descendants(self.process.pid)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        clear_leftovers(self.home)


def descendants(pid: int) -> set[tuple[int, str]]:
    """Everything that a process has started, each with the time when it began."""
    parents = {}
    for one in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(one.parent.name)] = int(one.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {(one, began) for one in found - {pid} if (began := began_at(one)) is not None}


def began_at(pid: int) -> str | None:
    """None for a process that has ended, waited for or not."""
    with suppress(OSError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state == "Z" else rest[18]
    return None


def until_gone(processes: set[tuple[int, str]]) -> None:
    wait_until(lambda: all(began_at(pid) != began for pid, began in processes), "all have ended")


@pytest.fixture(params=["namespaces", "ports"])
def arguments(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.param == "ports":
        return ("--ports",)
    if not can_seal():
        pytest.skip("this machine gives us no namespaces")
    return ()


@pytest.fixture
def home() -> Iterator[Path]:
    """Not below what pytest keeps: it is to be empty in the end."""
    with tempfile.TemporaryDirectory(prefix="chaos-stopped-") as path:
        yield Path(path)


def test_a_run_that_is_told_to_stop_leaves_nothing(home: Path, arguments: tuple[str, ...]) -> None:
    runner = Runner(home, *arguments)
    try:
        processes = runner.until_hurting()
        assert len(processes) > 3
        runner.process.send_signal(signal.SIGTERM if arguments else signal.SIGINT)
        assert runner.process.wait(60) == STOPPED, runner.said
        until_gone(processes)
        assert not runner.directories
        assert "stopped by SIGTERM" in runner.said
    finally:
        runner.close()


def test_what_a_killed_run_leaves_is_cleared_up_by_the_next(home: Path, arguments: tuple[str, ...]) -> None:
    runner = Runner(home, *arguments)
    try:
        processes = runner.until_hurting()
        runner.process.kill()
        runner.process.wait()
        (left,) = runner.directories
        is_sealed = not arguments
        if is_sealed:
            until_gone(processes)  # also the one that is stopped
        following = Runner(home, *arguments, "--rounds", "0")
        assert following.process.wait(60) == 0, following.said
        assert re.search(f"cleared up .*{re.escape(str(left))}", following.said)
        until_gone(processes)
        assert not runner.directories
    finally:
        runner.close()


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert clear_leftovers(tmp_path) == []
    assert home.path.exists()
    home.clear()
    assert list(tmp_path.iterdir()) == []


def test_what_was_noted_is_undone_last_first_and_whatever_fails_is_passed_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    (made / "file").touch()
    below = home.path / "cluster"
    note_undoing(below, "rmdir", str(made))
    note_undoing(below, "false")
    note_undoing(below, "there-is-no-such-command")
    note_undoing(below, "rm", str(made / "file"))
    with (home.path / UNDO).open("a") as file:
        file.write('["half a li')  # killed while it wrote
    home.clear()
    assert list(tmp_path.iterdir()) == []
