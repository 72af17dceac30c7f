"""A place in which nothing outlives the run: processes, networks and mounts of its own, gone with its first process.

The first process of a namespace of processes takes all others with it when it dies, stopped ones too, and with the last
process go its networks, devices and mounts. So there is nothing to clear up, however the run ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
PR_SET_PDEATHSIG = 1
STOPS = (signal.SIGINT, signal.SIGTERM)
STOPPED = 130
"""The status of a process that was stopped."""

_libc = ctypes.CDLL(None, use_errno=True)


class StoppedError(Exception):
    """Somebody wants the run to end now."""


def unshare(flags: int) -> None:
    """Go on in namespaces of one's own. Raises OSError if that is not allowed here."""
    _check(_libc.unshare(flags))


def enter_namespace(descriptor: int) -> None:
    """Go on in the namespace that a descriptor stands for. Raises OSError."""
    _check(_libc.setns(descriptor, 0))


def run_apart(work: Callable[[], int], *, is_sealed: bool, is_quiet: bool = False) -> int:
    """Do the work in a process that ends with this one, and is told of SIGINT and SIGTERM; returns its status.

    Args:
        is_sealed: in namespaces of its own; `can_seal` says whether that works here.
        is_quiet: whatever is written to stderr is thrown away.
    """
    if not is_sealed:
        return _run_in_child(lambda: _worked(work))

    def seal() -> int:
        if is_quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        _unshare_all()  # this process stays in its namespace of processes, the next one is the first of a new one
        return _run_in_child(lambda: _worked(work, is_first=True))

    return _run_in_child(seal)


def _run_in_child(work: Callable[[], int]) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
            status = work()
        except StoppedError:
            status = STOPPED
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def forward(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in STOPS}
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def can_seal() -> bool:
    """Whether this machine lets us have namespaces and packet devices of our own. It is tried."""

    def try_out() -> int:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["nsenter", "--version"], check=True, stdout=subprocess.DEVNULL)
            os.close(os.open("/dev/net/tun", os.O_RDWR))
            return 0
        return 1

    return run_apart(try_out, is_sealed=True, is_quiet=True) == 0


def _unshare_all() -> None:
    user, group = os.getuid(), os.getgid()
    unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | (CLONE_NEWUSER if user else 0))
    if user:  # who is not root can be it among their own
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def raise_when_stopped() -> None:
    """From now on SIGINT and SIGTERM raise StoppedError, once."""

    def stop(number: int, _: FrameType | None) -> None:
        for one in STOPS:
            signal.signal(one, signal.SIG_IGN)
        raise StoppedError(signal.Signals(number).name)

    for number in STOPS:
        signal.signal(number, stop)


def _worked(work: Callable[[], int], *, is_first: bool = False) -> int:
    raise_when_stopped()
    if is_first:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return work()


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
