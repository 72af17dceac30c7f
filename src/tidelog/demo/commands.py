"""The `tidelog` commands that the demo runs: those that serve until it ends, and those that an operator types."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import time
from pathlib import Path

from tidelog.base.errors import TidelogError

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 40.0
COMMAND_SECONDS_MAX = 120.0


class CommandFailedError(TidelogError):
    """A command that an operator would type was refused. Carries what it said."""


def run_command(*arguments: str) -> str:
    """Run a `tidelog` command to its end. Returns what it printed.

    Raises:
        CommandFailedError: it ended with another status than 0, or not at all.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CommandFailedError(f"`{as_typed(*arguments)}` did not end within {COMMAND_SECONDS_MAX:.0f} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise CommandFailedError(f"`{as_typed(*arguments)}` ended with status {done.returncode}: {said}")
    return done.stdout


def as_typed(*arguments: str) -> str:
    """A command as a person would type it."""
    return " ".join(("tidelog", *arguments))


class ServingCommand:
    """A `tidelog` command that stops when this process ends, however that comes about."""

    def __init__(self, arguments: tuple[str, ...], log: Path) -> None:
        read_end, self._lifeline = os.pipe()
        with log.open("ab") as stderr:
            # In a group of its own: Ctrl-C is for the demo, which stops its nodes in its own time.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *arguments, "--parent-fd", str(read_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=(read_end,),
                start_new_session=True,
            )
        os.close(read_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_until_ready(self) -> str:
        """What it printed. Raises TimeoutError, or EOFError: it ended instead."""
        deadline = time.monotonic() + START_SECONDS_MAX
        assert self._process.stdout is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not re.search(rb"^ready bootstrap=\S+\n", said, re.MULTILINE):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(self._process.stdout.fileno(), 65_536)
                if not piece:
                    raise EOFError
                said += piece
        return said.decode()

    def wait(self) -> int:
        return self._process.wait(STOP_SECONDS_MAX)

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def close(self) -> None:
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what it started notices that the lifeline is cut
            self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._process.stdout is not None:
            self._process.stdout.close()
