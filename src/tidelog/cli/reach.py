"""Where clients reach the nodes of a local cluster: this machine alone, or others too.

Nodes ask each other on loopback in any case: all of them are on this machine.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from tidelog.cli.command import UsageError
from tidelog.cli.local_certificates import LOOPBACK

EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - what a user may ask for


class Reach(NamedTuple):
    """Where the listeners for clients are.

    Attributes:
        host: the name or address that they listen on.
        advertised_host: what clients are told to connect to.
        is_local: whether other machines do not reach them.
    """

    host: str
    advertised_host: str
    is_local: bool


AT_LOOPBACK = Reach(LOOPBACK, LOOPBACK, is_local=True)


def reach_of(host: str, advertised_host: str | None) -> Reach:
    """What `--host` and `--advertised-host` mean.

    Raises:
        UsageError: there is no such host, or clients cannot be told it.
    """
    if host == LOOPBACK and advertised_host is None:
        return AT_LOOPBACK
    told = advertised_host
    if told is None:
        told = socket.gethostname() if host in EVERY_ADDRESS else host
    for flag, given in (("--host", host), ("--advertised-host", told)):
        if not given or not given.isascii() or any(character.isspace() or character in "/,@[]" for character in given):
            raise UsageError(
                f"{flag} {given!r} is no name or address of a host, such as 192.168.1.7 or log.example.org"
            )
    if told in EVERY_ADDRESS:
        raise UsageError(f"--advertised-host {told}: no client can connect to it; name this machine as others call it")
    try:
        found = {str(row[4][0]) for row in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name"
        raise UsageError(
            f"--host {host}: no address is known for it ({reason}); give an address of this machine, or "
            "0.0.0.0 for all of them"
        ) from None
    return Reach(host, told, is_local=all(ipaddress.ip_address(one.split("%")[0]).is_loopback for one in found))
