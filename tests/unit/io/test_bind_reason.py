"""A port that cannot be had: what to do about it depends on why."""

from __future__ import annotations

import errno
import socket

import pytest

from tidelog.io.acceptor import bind_reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "Address already in use; give it another port, or stop what uses it"),
        (OSError(errno.EADDRNOTAVAIL, ""), "Cannot assign requested address; name an address of this machine"),
        (PermissionError(errno.EACCES, ""), "Permission denied; give it a port from 1024 on"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "unknown; give a name or an address of this machine"),
        (OSError("something else"), "something else"),
    ],
)
def test_why_nobody_can_listen_and_what_to_do(error: OSError, said: str) -> None:
    assert bind_reason(error) == said
