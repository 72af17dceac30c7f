"""The limits of connections: Kafka's, and files kept back so that the logs can still roll when everyone comes.

A descriptor is always the lowest that is free. One at or above `limit - reserve` therefore means that so many files
are open, whoever opened them, and nobody needs to count.

Kafka: `ConnectionQuotas`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

from tidelog.base.ports import Clock
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs import broker as keys
from tidelog.metadata.ip_overrides import parse_per_ip_overrides
from tidelog.server.quotas.client_quotas import ClientQuotas
from tidelog.server.quotas.peer_limits import PeerLimits
from tidelog.server.quotas.rates import windows_of
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.settings.log_lines import Seldom
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.server_connection import OnClosed, ServerConnection

logger = logging.getLogger("tidelog.server.connections")
audit = logging.getLogger("tidelog.audit")

WANTED_CONNECTIONS = 10_000
"""What a node should have files for, unless `max.connections` wants fewer."""
FILES_IN_RESERVE_MIN = 64
FILES_IN_RESERVE_MAX = 1_000
LOG_INTERVAL_SECONDS = 10.0


class Refused(StrEnum):
    """Why somebody who connected was hung up on."""

    PER_IP = "per_ip"
    FILES = "files"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`max.connections` and its kin.

    Attributes:
        connections_max: of clients, all listeners together.
        per_ip_max: from one address, but for those in `per_ip_overrides`.
        files_max: the process's limit of open files; None for none.
    """

    connections_max: int
    per_ip_max: int
    per_ip_overrides: Mapping[str, int]
    files_max: int | None

    @staticmethod
    def of(settings: BrokerSettings, files_max: int | None) -> ConnectionLimits:
        """As they are in force at a broker. Raises ConfigError: `max.connections.per.ip.overrides` is misspelt."""
        return ConnectionLimits(
            settings[keys.MAX_CONNECTIONS],
            settings[keys.MAX_CONNECTIONS_PER_IP],
            parse_per_ip_overrides(settings[keys.MAX_CONNECTIONS_PER_IP_OVERRIDES]),
            files_max,
        )

    @property
    def files_in_reserve(self) -> int:
        """For segments that are yet to be made, checkpoints, and whoever looks at the metrics."""
        if self.files_max is None:
            return 0
        return min(max(self.files_max // 10, FILES_IN_RESERVE_MIN), FILES_IN_RESERVE_MAX)

    def room_for_logs(self, open_files: int) -> int | None:
        """How many logs may be made: half of the reserve is left for what there is. None for any number."""
        if self.files_max is None:
            return None
        return self.files_max - self.files_in_reserve // 2 - open_files

    def shortage(self, open_files: int) -> str | None:
        """What to tell the operator where the files that are left are fewer than the connections that are wanted."""
        if self.files_max is None:
            return None
        left = max(self.files_max - self.files_in_reserve - open_files, 0)
        wanted = min(self.connections_max, WANTED_CONNECTIONS)
        if left >= wanted:
            return None
        return (
            f"the file limit is {self.files_max}: {open_files} files are open, {self.files_in_reserve} are kept for "
            f"new segments, which leaves {left} for connections, fewer than {wanted}; others are refused. Raise the "
            f"hard limit to {open_files + wanted + FILES_IN_RESERVE_MAX} or more (ulimit -Hn, LimitNOFILE= of systemd, "
            f"--ulimit nofile= of a container), or set max.connections={left} if so many are enough"
        )


class Listens(Protocol):
    """What `max.connections` holds up (a port that is listened on)."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Connections:
    """The open connections of a node, and the decision about each further one.

    At `max.connections` nobody is accepted until somebody leaves: who connects waits in the system's queue, as at
    Kafka. Above the limit for one address, beyond its quota, or when files run short, the connection is closed at once.

    Attributes:
        quotas: of those who connect.
        peers: what they may do.
    """

    def __init__(self, limits: ConnectionLimits, quotas: ClientQuotas, peers: PeerLimits) -> None:
        self.limits = limits
        self.quotas = quotas
        self.peers = peers
        self.open: dict[ServerConnection, None] = {}  # by age: a set's order would differ from run to run
        self.accepted = 0
        self.refused: Counter[Refused] = Counter()
        self.closed: Counter[Closed] = Counter()
        self._counted = 0
        self._by_ip: Counter[str] = Counter()
        self._held_up: list[Listens] = []
        self._refused_log = Seldom(LOG_INTERVAL_SECONDS)
        self._full_log = Seldom(LOG_INTERVAL_SECONDS)
        self._handshake_log = Seldom(LOG_INTERVAL_SECONDS)
        self._authentication_log = Seldom(LOG_INTERVAL_SECONDS)
        self._trouble_log = Seldom(LOG_INTERVAL_SECONDS)

    @staticmethod
    def of(static: Mapping[str, str], files_max: int | None, clock: Clock) -> Connections:
        """Those of a node. Raises ConfigError: its file, `static`, has an override that is misspelt."""
        settings = BrokerSettings.of(static)
        quotas = ClientQuotas(clock.now_ms, *windows_of(settings))
        return Connections(ConnectionLimits.of(settings, files_max), quotas, PeerLimits(settings, clock))

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Other limits may be in force."""
        self.peers.on_settings(old, new)
        limits = ConnectionLimits.of(new.broker, self.limits.files_max)
        if limits != self.limits:
            self.configure(limits)

    def configure(self, limits: ConnectionLimits) -> None:
        """Other limits, from the next connection on: who is connected stays."""
        self.limits = limits
        if self._counted >= limits.connections_max:
            self._hold_up()
        else:
            self._let_in()

    @property
    def counted(self) -> int:
        """Open connections that `max.connections` is about."""
        return self._counted

    @property
    def of_one_ip_max(self) -> int:
        """The most connections that one address has."""
        return max(self._by_ip.values(), default=0)

    def hold_up(self, listens: Listens) -> None:
        """This one is for clients: `max.connections` is about it. (Controllers are always let in.)"""
        self._held_up.append(listens)
        if self._counted >= self.limits.connections_max:
            listens.pause()

    def forget(self, listens: Listens) -> None:
        """Remove a connection that is closed."""
        self._held_up.remove(listens)

    def admit(
        self,
        make: Callable[[OnClosed], ServerConnection],
        is_counted: bool,
        ip: str,
        descriptor: int,
        *,
        is_rated: bool = False,
    ) -> ServerConnection | None:
        """The connection that was accepted, made by `make`; None if it is to be closed.

        Args:
            is_rated: whether `connection_creation_rate` is about it.
        """
        refused = self._refusal(ip, descriptor, is_counted) or self._excess(ip, is_rated)
        if refused is not None:
            self.refused[refused] += 1
            return None
        self.accepted += 1
        self._by_ip[ip] += is_counted
        self._counted += is_counted
        if is_counted and self._counted >= self.limits.connections_max:
            self._hold_up()
        return make(partial(self._on_closed, ip, is_counted))

    def on_trouble(self, error: OSError) -> None:
        """The system accepts nobody at present."""
        suppressed = self._trouble_log.suppressed()
        if suppressed is not None:
            logger.error("nobody can be accepted at present: %s; it is tried on and on", error.strerror or error)

    def _refusal(self, ip: str, descriptor: int, is_counted: bool) -> Refused | None:
        limits = self.limits
        if limits.files_max is not None and descriptor >= limits.files_max - limits.files_in_reserve:
            self._log_refused_connection(
                ip, f"{descriptor} files are open, and the rest of {limits.files_max} is for the logs: raise the limit"
            )
            return Refused.FILES
        per_ip_max = limits.per_ip_overrides.get(ip, limits.per_ip_max)
        if is_counted and self._by_ip[ip] >= per_ip_max:
            self._log_refused_connection(ip, f"it has {per_ip_max} connections already (max.connections.per.ip)")
            return Refused.PER_IP
        return None

    def _excess(self, ip: str, is_rated: bool) -> Refused | None:
        quotas = self.quotas
        if not is_rated or not quotas.are_connections_limited or quotas.admits_connection(ip):
            return None
        self._log_refused_connection(ip, "more come from it than its quota permits (connection_creation_rate)")
        return Refused.RATE

    def _log_refused_connection(self, ip: str, reason: str) -> None:
        suppressed = self._refused_log.suppressed()
        if suppressed is not None:
            more = f" ({suppressed} more were refused since the last line)" if suppressed else ""
            logger.warning("%s: connection refused: %s%s", ip, reason, more, extra={"peer": ip})

    def _log_handshake(self, ip: str, error: Exception | None) -> None:
        suppressed = self._handshake_log.suppressed()
        if suppressed is not None:
            more = f" ({suppressed} more failed since the last line)" if suppressed else ""
            reason = getattr(error, "reason", None) or str(error) or "the peer hung up"
            logger.warning("%s: the TLS handshake failed: %s%s", ip, reason, more, extra={"peer": ip})

    def _log_authentication(self, ip: str, error: Exception | None) -> None:
        suppressed = self._authentication_log.suppressed()
        if suppressed is not None:
            more = f" ({suppressed} more failed since the last line)" if suppressed else ""
            audit.warning("%s: the authentication failed: %s%s", ip, error, more, extra={"peer": ip})

    def _hold_up(self) -> None:
        if self._full_log.suppressed() is not None:
            logger.warning(
                "%d connections are open: further ones wait until one of them closes (max.connections)", self._counted
            )
        for listens in self._held_up:
            listens.pause()

    def _on_closed(self, ip: str, is_counted: bool, why: Closed, error: Exception | None) -> None:
        self.closed[why] += 1
        if why is Closed.HANDSHAKE:
            self._log_handshake(ip, error)
        elif why is Closed.AUTHENTICATION:
            self._log_authentication(ip, error)
        if is_counted:
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]
            self._counted -= 1
            if self._counted < self.limits.connections_max:
                self._let_in()

    def _let_in(self) -> None:
        for listens in self._held_up:
            listens.resume()
