"""Node processes under one parent: started together, watched, stopped together, never left behind.

```
        up ──┬─ signals ──────────── wakeup pipe ──┐
             ├─ node 1 ── ready pipe: "port=…\n" ──┤── one selector, no polling ("error=…\n" if it cannot start)
             └─ node 2 ── ready pipe ──────────────┘
   each node holds the read end of a pipe whose write end only `up` has: when it ends, so do they
```
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType

from tidelog.base.errors import TidelogError

STOP_SECONDS_MAX = 30.0
"""How long a node may take to stop cleanly before it is killed."""
REPEATED_SECONDS = 1.0
"""A second stop signal kills, unless it comes so soon: `timeout` sends one to the process and one to its group."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class NodeEndedError(TidelogError):
    """A node ended though nobody asked it to. Carries its exit status (negative: the signal that killed it)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NodeChild:
    """One node process, from its start to its end."""

    def __init__(self, node_id: int, process: subprocess.Popen[bytes], ready_fd: int, lifeline_fd: int) -> None:
        self.node_id = node_id
        self.process = process
        self.ready_fd: int | None = ready_fd
        self.lifeline_fd = lifeline_fd
        self.port: int | None = None
        self._error = ""
        self._said = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_port(self) -> None:
        """Take in what the node wrote to its ready pipe: `port=PORT`, or `error=WHY`, and the end."""
        assert self.ready_fd is not None
        piece = os.read(self.ready_fd, 4_096)
        self._said += piece
        if not piece or self._said.endswith(b"\n"):
            os.close(self.ready_fd)
            self.ready_fd = None
            key, _, value = self._said.strip().partition(b"=")
            if key == b"port":
                self.port = int(value)
            elif key == b"error":
                self._error = value.decode(errors="replace")

    @property
    def stopped_cleanly(self) -> bool:
        """Whether it ended as a node that was told to stop should. Before it is ready a signal just ends it."""
        status = self.process.returncode
        return status == 0 or (status in (-signal.SIGTERM, -signal.SIGINT) and self.port is None)

    def ended(self) -> NodeEndedError | None:
        """How it ended, or None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        while self.ready_fd is not None:
            self.read_port()
        if self._error:
            return NodeEndedError(f"node {self.node_id}: {self._error}", status)
        when = "" if self.port is not None else " before it was ready"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}{when}"
        else:
            how = f"ended with status {status}{when}; its own lines above say why" if status else f"ended{when}"
        return NodeEndedError(f"node {self.node_id} (pid {self.pid}) {how}", status)


class Supervision:
    """Use as a context: on leaving it, every node has ended.

    `wait_until_ready` and `wait_until_told` return early when a stop signal comes; nodes then stop on leaving. None is
    started again: a crash is to be seen.
    """

    def __init__(self, *, parent_fd: int | None = None) -> None:
        self.nodes: list[NodeChild] = []
        self._running: list[NodeChild] = []
        self.told_to_stop = False
        self._parent_fd = parent_fd
        self._selector = selectors.DefaultSelector()
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_write, False)
        self._handlers_before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Supervision:
        for number in (*_STOP_SIGNALS, signal.SIGCHLD):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # started by nohup
            self._handlers_before[number] = signal.signal(number, _wake_up_only)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        if self._parent_fd is not None:
            self._selector.register(self._parent_fd, selectors.EVENT_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop_nodes(clean_expected=error is None)
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in self._handlers_before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]
            self._selector.close()
            os.close(self._wakeup_read)
            os.close(self._wakeup_write)

    def start(self, node_id: int, arguments: Sequence[str]) -> NodeChild:
        """Start `python -m tidelog server ARGUMENTS…`; its stderr is ours, its stdin and stdout are nothing."""
        ready_read, ready_write = os.pipe()
        lifeline_read, lifeline_write = os.pipe()
        command = [sys.executable, "-m", "tidelog", "server", *arguments]
        command += ["--ready-fd", str(ready_write), "--parent-fd", str(lifeline_read)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(ready_write, lifeline_read),
            process_group=0,  # Ctrl-C in a terminal is for us alone; we tell the nodes
        )
        os.close(ready_write)
        os.close(lifeline_read)
        node = NodeChild(node_id, process, ready_read, lifeline_write)
        self.nodes.append(node)
        self._running.append(node)
        self._selector.register(ready_read, selectors.EVENT_READ, node)
        return node

    def wait_until_ready(self) -> bool:
        """Wait until every node serves. False if a stop signal came first.

        Raises:
            NodeEndedError: a node ended instead.
        """
        while not self.told_to_stop:
            if all(node.port is not None for node in self.nodes):
                return True
            self._wait(None)
            self._raise_if_one_ended()
        return False

    def wait_until_told(self, on_ended: Callable[[NodeChild, NodeEndedError], None]) -> None:
        """Wait for a stop signal, or for the end of the parent's pipe.

        Args:
            on_ended: called for each node that ends meanwhile, while others run on.

        Raises:
            NodeEndedError: the last node ended.
        """
        while not self.told_to_stop:
            self._wait(None)
            if self.told_to_stop:
                return
            for node in list(self._running):
                ended = node.ended()
                if ended is not None:
                    self._running.remove(node)
                    if not self._running:
                        raise ended
                    on_ended(node, ended)

    def _wait(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, NodeChild):
                key.data.read_port()
                if key.data.ready_fd is None:
                    self._selector.unregister(key.fileobj)
            elif key.fd == self._wakeup_read:
                if any(number != signal.SIGCHLD for number in os.read(self._wakeup_read, 4_096)):
                    self.told_to_stop = True
            elif not os.read(key.fd, 4_096):
                self._selector.unregister(key.fileobj)
                self.told_to_stop = True

    def _raise_if_one_ended(self) -> None:
        if self.told_to_stop:
            return
        for node in self.nodes:
            ended = node.ended()
            if ended is not None:
                raise ended

    def _stop_nodes(self, *, clean_expected: bool) -> None:
        """SIGTERM to all, SIGKILL to what is left at the deadline or at a second stop signal."""
        stopped = list(self._running)
        for node in stopped:
            node.process.terminate()
        self.told_to_stop = False
        began = time.monotonic()
        deadline = began + STOP_SECONDS_MAX
        while any(node.process.poll() is None for node in stopped):
            if time.monotonic() < began + REPEATED_SECONDS:
                self.told_to_stop = False
            if self.told_to_stop or time.monotonic() >= deadline:
                for node in stopped:
                    node.process.kill()
                    node.process.wait()
                break
            self._wait(max(0.0, deadline - time.monotonic()))
        unclean = [node for node in stopped if not node.stopped_cleanly]
        for node in self.nodes:
            os.close(node.lifeline_fd)
            if node.ready_fd is not None:
                os.close(node.ready_fd)
        if unclean and clean_expected:
            node = unclean[0]
            ended = node.ended()
            raise NodeEndedError(f"{ended}, when it was told to stop", node.process.returncode)


def _wake_up_only(_number: int, _frame: FrameType | None) -> None:
    """The signal's number reaches the selector through the wakeup pipe."""
