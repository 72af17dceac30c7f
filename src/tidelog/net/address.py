"""Where a broker listens: `host:port`, `[v6]:port`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.base.errors import ConfigError

PORT_DEFAULT = 9092


class Address(NamedTuple):
    """A host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host`, `host:port`, `[v6]` or `[v6]:port`; the port is 9092 unless it is given.

    Raises:
        ConfigError: it is none of these.
    """
    wrong = ConfigError(f"{text!r} is not an address: host:port is expected, as in 127.0.0.1:9092 or [::1]:9092")
    rest = text.strip()
    if rest.startswith("["):
        host, closed, rest = rest[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise wrong
        port = rest[1:]
    else:
        host, _, port = rest.partition(":")
        if ":" in port:
            raise wrong
    if not host or any(character.isspace() or character in "/@," for character in host):
        raise wrong
    if not port and not text.rstrip().endswith(":"):
        return Address(host, PORT_DEFAULT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise wrong
    return Address(host, int(port))


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Read bootstrap servers: one string with commas, or several strings.

    Raises:
        ConfigError: there is none, or one is no address.
        TypeError: it is something else, as other clients take it.
    """
    if isinstance(servers, Mapping):
        first = servers.get("bootstrap.servers", "host:port")
        others = ", ".join(f"{key.replace('.', '_')}=…" for key in servers if key != "bootstrap.servers")
        raise TypeError(
            f"bootstrap_servers is a dict: write ({first!r}{others and ', '}{others}), not a dict of settings"
        )
    if not isinstance(servers, Iterable):
        raise TypeError(f"bootstrap_servers={servers!r}: host:port is expected, several with commas or as a list")
    texts = servers.split(",") if isinstance(servers, str) else [part for text in servers for part in text.split(",")]
    addresses = tuple(dict.fromkeys(parse_address(text) for text in texts if text.strip()))
    if not addresses:
        raise ConfigError("bootstrap_servers names no server: give host:port, or several with commas between them")
    return addresses
