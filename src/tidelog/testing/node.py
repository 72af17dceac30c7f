"""One node of a cluster for tests: a real process, to kill, pause, stop and start."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.testing.errors import ClusterFailedError, ClusterUsageError
from tidelog.testing.fork_server import ForkedProcess, ForkServer

if TYPE_CHECKING:
    from tidelog.testing.forked_node import ForkedNode

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
LOG_END_CHARACTERS = 3_000


class Node:
    """A broker and controller in a process of its own.

    Attributes:
        node_id: its number, from 1.
        log_path: what it logs, over all its starts.
        directories: where its partitions lie, one for each disk.
        settings: Kafka's keys; may be changed before it is started again.
    """

    def __init__(self, launched: ForkedNode, log_path: Path, directories: list[Path], server: ForkServer) -> None:
        self.node_id = launched.node_id
        self.settings = launched.properties
        self.directories = directories
        self.log_path = log_path
        self._launched = launched
        self._server = server
        self._process: ForkedProcess | None = None
        self._is_paused = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"node {self.node_id}"

    @property
    def port(self) -> int:
        """Where clients reach it, at 127.0.0.1. The same after every start."""
        return self._launched.clients_port

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of this node alone, for a client that is to begin here."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of its process. Raises ClusterUsageError: it does not run."""
        return self._of_running("its pid is asked for").pid

    @property
    def is_running(self) -> bool:
        """Whether its process is there, be it paused."""
        return self._process is not None and self._process.is_running

    @property
    def is_paused(self) -> bool:
        return self._is_paused and self.is_running

    @property
    def log(self) -> str:
        """All that it has logged so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start it on the files that it has; return when it serves.

        With less than a majority of the nodes it cannot serve: start the others first, or together by `Cluster.start`.

        Raises:
            ClusterUsageError: it runs already, or the cluster is closed.
            ClusterFailedError: it ended, or does not serve in time; shows the end of its log.
        """
        self.start_soon()
        self.wait_until_serving()

    def start_soon(self) -> None:
        """As `start`, but for the waiting: see `wait_until_serving`."""
        if self._is_closed:
            raise ClusterUsageError("the cluster is closed: use it within its `with` block, or make a new one")
        if self.is_running:
            raise ClusterUsageError(f"{self} runs already: stop or kill it before it is started again")
        self._let_go()
        log_fd = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._process = self._server.start(
                "tidelog.testing.forked_node:run_node", self._launched.to_json(), stdout=log_fd, stderr=log_fd
            )
        except OSError as error:
            raise self._failure(f"{self} cannot be started: {error}") from error
        finally:
            os.close(log_fd)

    def wait_until_serving(self) -> None:
        """After `start_soon`. Raises as `start`."""
        process = self._of_running("it is waited for")
        try:
            if process.wait_until_told(time.monotonic() + START_SECONDS_MAX):
                return
        except TimeoutError:
            self.kill()
            raise self._failure(f"{self} does not serve after {START_SECONDS_MAX:.0f} s, and was killed") from None
        raise self._failure(f"{self} {_how(self._end(process))} before it served")

    def kill(self) -> None:
        """`kill -9`: what it has written stays in its files. Raises ClusterUsageError: it does not run."""
        process = self._of_running("it is to be killed")
        process.signal(signal.SIGKILL)
        self._end(process)

    def stop(self) -> None:
        """SIGTERM: it hands over what it leads, closes its files, and ends.

        Raises:
            ClusterUsageError: it does not run, or is paused.
            ClusterFailedError: it did not end in time (and was killed), or not cleanly; shows the end of its log.
        """
        self.stop_soon()
        self.wait_until_stopped()

    def stop_soon(self) -> None:
        """As `stop`, but for the waiting: see `wait_until_stopped`."""
        process = self._of_running("it is to be stopped")
        if self._is_paused:
            raise ClusterUsageError(f"{self} is paused, and would hear of nothing: resume it first, or kill it")
        process.signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        """After `stop_soon`. Raises as `stop`."""
        process = self._process
        if process is None:
            return
        try:
            status = self._end(process)
        except TimeoutError:
            self.kill()
            raise self._failure(f"{self} did not end within {STOP_SECONDS_MAX:.0f} s, and was killed") from None
        if status not in (0, -signal.SIGTERM):  # the signal itself ends a node that does not serve yet
            raise self._failure(f"{self} {_how(status)} when it was told to stop")

    def restart(self) -> None:
        """Stop it if it runs, and start it again. Raises as `stop` and `start`."""
        if self.is_running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: nothing is heard of it, and nothing that it has open is closed. Raises as `kill`."""
        self._of_running("it is to be paused").signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed. Raises as `kill`."""
        self._of_running("it is to be resumed").signal(signal.SIGCONT)
        self._is_paused = False

    def close(self) -> None:
        """Leave nothing running, whatever state it is in. It cannot be started again."""
        self._is_closed = True
        if self.is_running:
            self.kill()
        self._let_go()

    def _failure(self, what: str) -> ClusterFailedError:
        """An error that shows the end of the log."""
        end = self.log[-LOG_END_CHARACTERS:].strip() or "(nothing was logged)"
        return ClusterFailedError(f"{what}; the end of {self.log_path}:\n{end}", self.log_path)

    def _of_running(self, why: str) -> ForkedProcess:
        if self._process is None or not self._process.is_running:
            raise ClusterUsageError(
                f"{self} does not run, and {why}: start it first, with cluster.nodes[{self.node_id}].start()"
            )
        return self._process

    def _end(self, process: ForkedProcess) -> int:
        status = process.wait(time.monotonic() + STOP_SECONDS_MAX)
        self._process = None
        self._is_paused = False
        return status

    def _let_go(self) -> None:
        """Of a process that ended by itself."""
        if self._process is not None:
            self._end(self._process)


def _how(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
