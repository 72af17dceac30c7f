"""`tidelog` command lines in processes forked from one that has loaded Tidelog, which saves most of a start."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import IO, Any

from tidelog.testing.fork_server import ForkedProcess, ForkServer

RUN = "tidelog.cli.app:run"
MODULES = (
    "tidelog.server.main",
    "tidelog.cli.server",
    "tidelog.cli.topics",
    "tidelog.client.admin.admin",
    "tidelog.client.consumer",
    "tidelog.client.producer",
    "uvloop",
)


@cache
def _server_of(_pid: int) -> ForkServer:
    server = ForkServer(MODULES)
    atexit.register(server.close)
    return server


class ForkedCommand:
    """A command, with as much of `subprocess.Popen` as its users need.

    Attributes:
        pid: its number at the system.
        stdout: what it writes to its standard output.
        returncode: None until it is known to have ended.
    """

    def __init__(self, arguments: Sequence[str], *, stderr: IO[bytes]) -> None:
        read_end, write_end = os.pipe()
        self.stdout = os.fdopen(read_end, "rb")
        try:
            self._process = _start(arguments, stdin=None, stdout=write_end, stderr=stderr.fileno())
        finally:
            os.close(write_end)
        self.pid = self._process.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        return None if self.returncode is None and self._process.is_running else self.wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status when it has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            try:
                self.returncode = self._process.wait(time.monotonic() + (1e6 if timeout is None else timeout))
            except TimeoutError:
                raise subprocess.TimeoutExpired("tidelog", timeout or 0.0) from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        self._process.signal(number)

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)


def run_command(
    arguments: Sequence[str], *, stdin: str = "", timeout: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, for `tidelog ARGUMENTS…`. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        given.write(stdin.encode())
        given.seek(0)
        process = _start(
            arguments,
            stdin=given.fileno(),
            stdout=printed.fileno(),
            stderr=complaints.fileno(),
            environment=environment,
        )
        try:
            status = process.wait(time.monotonic() + timeout)
        except TimeoutError:
            process.signal(signal.SIGKILL)
            process.wait(time.monotonic() + timeout)
            raise subprocess.TimeoutExpired(["tidelog", *arguments], timeout) from None
        said = []
        for file in (printed, complaints):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(list(arguments), status, *said)


def _start(arguments: Sequence[str], **settings: Any) -> ForkedProcess:
    return _server_of(os.getpid()).start(RUN, list(arguments), **settings)
