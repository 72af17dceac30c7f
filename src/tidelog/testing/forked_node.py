"""The process that nodes are forked from: it has loaded all that a node needs, so that a start costs no more than that.

    the tests' process ── socket ── this process ── fork ── node 1
                                                   └─ fork ── node 2
    one line of JSON a request, with descriptors beside it; one line an answer

When the socket reaches its end, the tests' process is gone: every node is killed, paused ones as well, and this process
ends. A node asks the system (Linux) to be killed when this process ends.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tidelog.base.errors import TidelogError
from tidelog.testing.links import Links

REQUEST_BYTES_MAX = 65_536
FAILED = 1
PR_SET_PDEATHSIG = 1
PRELOADED = ("tidelog.server.main", "tidelog.testing.cut_network", "uvloop")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedNode:
    """What a node is told.

    Attributes:
        properties: its settings, by Kafka's keys.
        links_file: which ways are cut.
        node_id: its number.
        node_count: how many the cluster has.
        brokers: the nodes by the ports of their listeners for brokers.
        controllers: the nodes by the ports of their listeners for controllers.
        clients_port: where clients reach it.
    """

    properties: dict[str, str]
    links_file: str
    node_id: int
    node_count: int
    brokers: dict[int, int]
    controllers: dict[int, int]
    clients_port: int

    def run(self, ready_fd: int) -> int:
        """Be the node; returns its exit status. `port=PORT` is written when it serves."""
        from tidelog.server.main import run
        from tidelog.testing.cut_network import CutNetwork

        def on_ready(port: int, _address: str) -> None:
            os.write(ready_fd, f"port={port}\n".encode())

        links = Links(Path(self.links_file), self.node_count)
        network = CutNetwork(
            links,
            self.node_id,
            brokers=self.brokers,
            controllers=self.controllers,
            clients_port=self.clients_port,
        )
        try:
            return run(self.properties, on_ready=on_ready, network=network)
        except TidelogError as error:
            print(f"tidelog: {error}", file=sys.stderr)
            return FAILED


def main() -> None:
    """Load, then fork what is asked for, until the socket reaches its end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    running: set[int] = set()
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, 2)
        while request and not request.endswith(b"\n"):
            request += channel.recv(REQUEST_BYTES_MAX) or b"\n"
        if not request.strip():
            break
        asked = json.loads(request)
        if "status_of" in asked:
            pid = asked["status_of"]
            answer = {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}
            running.discard(pid)
        else:
            answer = {"pid": _fork(channel, _node(asked), *descriptors)}
            running.add(answer["pid"])
            for descriptor in descriptors:
                os.close(descriptor)
        channel.sendall(json.dumps(answer).encode() + b"\n")
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _preload() -> None:
    """As fast as can be: nothing of it is garbage."""
    gc.disable()
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    gc.freeze()
    gc.enable()


def _node(asked: dict[str, Any]) -> ForkedNode:
    for ports in ("brokers", "controllers"):  # JSON's keys are text
        asked[ports] = {int(port): node_id for port, node_id in asked[ports].items()}
    return ForkedNode(**asked)


def _fork(channel: socket.socket, node: ForkedNode, ready_fd: int, log_fd: int) -> int:
    """Returns the pid."""
    pid = os.fork()
    if pid == 0:
        _be(channel, node, ready_fd, log_fd)
    with suppress(OSError):  # it does so itself; whoever comes first
        os.setpgid(pid, pid)
    return pid


def _be(channel: socket.socket, node: ForkedNode, ready_fd: int, log_fd: int) -> NoReturn:
    status = FAILED
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        _die_with_parent()
        channel.close()
        nothing_fd = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing_fd, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        for descriptor in (nothing_fd, log_fd):
            os.close(descriptor)
        status = node.run(ready_fd)
    except BaseException:  # whatever it is: this process must not go on as its parent does
        import traceback

        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _die_with_parent() -> None:
    """Have Linux kill this process when its parent dies. Elsewhere the parent does it, unless it is killed itself."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(FAILED)


if __name__ == "__main__":
    main()
