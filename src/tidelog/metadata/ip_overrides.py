"""`max.connections.per.ip.overrides`: other limits for some addresses, such as `10.0.0.7:100,[::1]:3`."""

from __future__ import annotations

from tidelog.base.errors import ConfigError

PER_IP_OVERRIDES = "max.connections.per.ip.overrides"


def parse_per_ip_overrides(text: str) -> dict[str, int]:
    """The limit of each address, as the system spells it.

    Raises:
        ConfigError: an entry is none.
    """
    limits: dict[str, int] = {}
    if not text.strip():
        return limits
    from ipaddress import ip_address  # for those who need it

    for entry in text.split(","):
        address, colon, limit = entry.strip().rpartition(":")
        try:
            known = str(ip_address(address.strip("[]")))
        except ValueError:
            known = ""
        if not known or not colon or not (limit.isascii() and limit.isdecimal()):
            raise ConfigError(
                f"{PER_IP_OVERRIDES}: {entry.strip()!r} is not of the form ADDRESS:LIMIT, such as 10.0.0.7:100"
            )
        limits[known] = int(limit)
    return limits
