"""Starts processes by forking one that has loaded what they need: the tests' side of `fork_server_main`.

One server starts the nodes of all clusters of a process.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

STOP_SECONDS_MAX = 10.0
_ANSWER_BYTES_MAX = 4_096


class ForkedProcess:
    """A process from its start to its end.

    Attributes:
        pid: its number at the system, which nobody else gets before `wait` has returned.
    """

    def __init__(self, server: ForkServer, pid: int, said_fd: int) -> None:
        self.pid = pid
        self._server = server
        self._said_fd = said_fd  # only the process has the other end, so it reaches its end with the process
        self._said = b""
        self._has_ended = False
        self._status: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        while not self._has_ended and self._listen(0.0):
            pass
        return not self._has_ended

    def wait_until_told(self, deadline: float) -> bool:
        """Wait for a line at its descriptor 3; False if it ended instead. Raises TimeoutError: neither by then."""
        while not self._has_ended and not self._said.endswith(b"\n"):
            self._listen_until(deadline)
        return not self._has_ended

    def wait(self, deadline: float) -> int:
        """Wait for its end; returns its exit status, negative for the signal that killed it. Raises TimeoutError."""
        while not self._has_ended:
            self._listen_until(deadline)
        if self._status is None:
            os.close(self._said_fd)
            self._status = self._server.status_of(self.pid)
        return self._status

    def signal(self, number: int) -> None:
        """Send it a signal. Nothing happens if it has ended."""
        if self._status is None:
            os.kill(self.pid, number)

    def _listen_until(self, deadline: float) -> None:
        if not self._listen(max(0.0, deadline - time.monotonic())):
            raise TimeoutError

    def _listen(self, seconds: float) -> bool:
        """Whether anything was heard, be it the end."""
        poll = select.poll()
        poll.register(self._said_fd, select.POLLIN)
        if not poll.poll(seconds * 1_000):
            return False
        piece = os.read(self._said_fd, _ANSWER_BYTES_MAX)
        self._said += piece
        self._has_ended = not piece
        return True


class ForkServer:
    """See the module.

    Args:
        preload: the modules to load before anything is forked. One that is not there is passed over.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.owner_pid = os.getpid()
        self._is_broken = False
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog.testing.fork_server_main", str(theirs.fileno()), *preload],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # Ctrl-C in a terminal is for the tests alone
            )

    @property
    def is_usable(self) -> bool:
        """Whether it can fork: it runs, is this process's own, and nobody lost track of its answers."""
        return not self._is_broken and self.owner_pid == os.getpid() and self._process.poll() is None

    def start(
        self,
        call: str,
        *arguments: Any,
        stdout: int,
        stderr: int,
        stdin: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ForkedProcess:
        """Fork a process in this one's directory. Does not wait for anything.

        Args:
            call: `module:function`, which returns the exit status.
            arguments: of the function; what JSON can carry.
            stdout: the descriptor that it has for its own.
            stderr: the descriptor that it has for its own.
            stdin: the descriptor that it has for its own; None for nothing to read.
            environment: None for this process's.
        """
        told = dict(os.environ if environment is None else environment)
        request = {"call": call, "arguments": arguments, "environment": told, "directory": os.getcwd()}
        said_fd, theirs = os.pipe()
        try:
            with open(os.devnull, "rb") as nothing:
                pid = self._ask(request, nothing.fileno() if stdin is None else stdin, stdout, stderr, theirs)["pid"]
        except BaseException:
            os.close(said_fd)
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(self, pid, said_fd)

    def status_of(self, pid: int) -> int:
        """Of a process that has ended, or is about to; to be asked once."""
        try:
            return int(self._ask({"status_of": pid})["status"])
        except OSError:
            return -signal.SIGKILL  # whatever was forked is killed when this server ends

    def close(self) -> None:
        """Kill whatever runs."""
        self._channel.close()
        if self.owner_pid == os.getpid():
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _ask(self, request: Mapping[str, Any], *descriptors: int) -> dict[str, Any]:
        with self._lock:
            if self._is_broken:
                raise ConnectionError("the process that others are forked from was given up; make a new cluster")
            try:
                line = json.dumps(request).encode() + b"\n"
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
                sent = self._channel.sendmsg([line], rights)
                self._channel.sendall(memoryview(line)[sent:])  # a signal may have come meanwhile
                answer = b""
                while not answer.endswith(b"\n"):
                    piece = self._channel.recv(_ANSWER_BYTES_MAX)
                    if not piece:
                        raise ConnectionError("the process that others are forked from has ended; its stderr says why")
                    answer += piece
            except BaseException:  # Ctrl-C too: an answer that nobody took would be taken for the next one's
                self._is_broken = True
                self._channel.close()
                raise
        found: dict[str, Any] = json.loads(answer)
        return found


NODE_MODULES = ("tidelog.server.main", "tidelog.testing.forked_node", "tidelog.testing.cut_network", "uvloop")
_shared: ForkServer | None = None
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """The one that starts nodes of this process, which ends with it; started if there is none."""
    global _shared  # noqa: PLW0603
    with _starting:
        if _shared is not None and not _shared.is_usable:
            _shared.close()
            _shared = None
        if _shared is None:
            _shared = ForkServer(NODE_MODULES)
            atexit.register(_shared.close)
        return _shared
