"""The process that others are forked from: it has loaded all that they need, so that a start costs no more than that.

    the tests' process ── socket ── this process ── fork ── node 1
                                                   └─ fork ── node 2
    one line of JSON a request, with descriptors beside it; one line an answer

When the socket reaches its end, the tests' process is gone: whatever was forked is killed, what is paused as well, and
this process ends. What it forks asks the system (Linux) to be killed when this process ends.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 65_536
DESCRIPTORS_MAX = 16
FAILED = 1
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Load the modules that are named, then fork what is asked for, until the socket reaches its end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _preload(sys.argv[2:])
    running: set[int] = set()
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
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
            answer = {"pid": _fork(channel, asked, descriptors)}
            running.add(answer["pid"])
            for descriptor in descriptors:
                os.close(descriptor)
        channel.sendall(json.dumps(answer).encode() + b"\n")
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _preload(names: Sequence[str]) -> None:
    """As fast as can be: nothing of it is garbage."""
    gc.disable()
    for name in ("ctypes", *names):
        with suppress(ImportError):
            import_module(name)
    gc.freeze()
    gc.enable()


def _fork(channel: socket.socket, asked: dict[str, Any], descriptors: Sequence[int]) -> int:
    """Returns the pid."""
    pid = os.fork()
    if pid == 0:
        _be(channel, asked, descriptors)
    with suppress(OSError):  # it does so itself; whoever comes first
        os.setpgid(pid, pid)
    return pid


def _be(channel: socket.socket, asked: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Call what is asked for, with the descriptors from 0 on, and end with the status that it returns."""
    status = FAILED
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        _die_with_parent()
        channel.close()
        _number_from_0(descriptors)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["directory"])
        module, _, name = asked["call"].partition(":")
        status = getattr(import_module(module), name)(*asked["arguments"])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # whatever it is: this process must not go on as its parent does
        import traceback

        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _number_from_0(descriptors: Sequence[int]) -> None:
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, DESCRIPTORS_MAX) for descriptor in descriptors]
    for number, descriptor in enumerate(aside):
        os.dup2(descriptor, number)
    os.closerange(len(aside), max(*aside, *descriptors) + 1)


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
