"""By which streams a node listens and asks others: plain ones, or over TLS, as the protocol of each listener says.

Certificates are renewed while the node runs: when a file has changed, and when a setting has.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from tidelog.base.certificates import Certificates
from tidelog.base.errors import ConfigError, MissingExtraError
from tidelog.base.ports import Executor, Network, SecuredNetwork
from tidelog.metadata.configs.tls import SSL_PRINCIPAL_MAPPING_RULES, TLS_NAMES, certificates_of
from tidelog.metadata.listeners import PROTOCOLS, SSL, has_sasl, has_tls
from tidelog.security.principal_mapping import name_of, parse_mapping_rules
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.transport.server_connection import NameOf

logger = logging.getLogger("tidelog.server.tls")

LOOKED_AT_SECONDS = 2.0
"""How often the files of certificates are looked at."""

_Stamp = tuple[Certificates, tuple[tuple[int, int, int] | None, ...]]


class NodeNetworks:
    """See the module.

    Args:
        config: names the listeners, and what each speaks.
        network: for what is not secured.

    Attributes:
        to_brokers: for what nodes ask brokers.
        to_controllers: for what nodes ask controllers.

    Raises:
        ConfigError: a certificate cannot be used; names its setting.
    """

    def __init__(self, config: NodeConfig, network: Network) -> None:
        self._config = config
        self._network = network
        self._texts: Mapping[str, str] = config.static
        self._secured: dict[tuple[str, bool], SecuredNetwork] = {}
        self._stamps: dict[tuple[str, bool], _Stamp] = {}
        self._changed = asyncio.Event()
        self.to_brokers = self._to(config.inter_broker_listener_name)
        self.to_controllers = self._to(config.controller_listener_name)

    def protocol(self, name: str) -> str:
        """What a listener speaks."""
        return self._config.protocols.get(name, name)

    def protocol_number(self, name: str) -> int:
        """As a registration says it."""
        return PROTOCOLS.index(self.protocol(name))

    def asks_who_connects(self, name: str) -> bool:
        """Whether nobody is let in at a listener who does not say, and prove, who it is."""
        protocol = self.protocol(name)
        return has_sasl(protocol) or (
            protocol == SSL and certificates_of(self._texts, name).client_authentication == "required"
        )

    def of_listener(self, name: str, protocol: str | None = None) -> Network:
        """What a listener listens with.

        Args:
            protocol: what it speaks, if its name came while the node runs.

        Raises:
            ConfigError: its certificate cannot be used.
        """
        if not has_tls(protocol or self.protocol(name)):
            return self._network
        return self._over_tls(name, listens=True)

    def name_of(self, name: str, protocol: str | None = None) -> NameOf | None:
        """Who shows a certificate on a listener; None where that says nothing, as where SASL does.

        Raises:
            ConfigError: `ssl.principal.mapping.rules` is misspelt.
        """
        if (protocol or self.protocol(name)) != SSL:
            return None
        key = f"listener.name.{name.lower()}.{SSL_PRINCIPAL_MAPPING_RULES.name}"
        text = self._texts.get(key, self._texts.get(SSL_PRINCIPAL_MAPPING_RULES.name))
        try:
            rules = parse_mapping_rules(SSL_PRINCIPAL_MAPPING_RULES.fallback if text is None else text)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        return partial(name_of, rules)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """A setting may say something else."""
        texts = {**new.broker.static, **new.broker.dynamic_default, **new.broker.dynamic}
        changed = {name for name in texts.keys() | self._texts.keys() if texts.get(name) != self._texts.get(name)}
        if any(_is_of_tls(name) for name in changed):
            self._texts = texts
            for name, _ in self._secured:
                self.certificates(name)  # the log says what cannot be
            self._changed.set()

    def certificates(self, name: str) -> Certificates | None:
        """What is set for a listener now; None, which the log says, if that cannot be."""
        try:
            return certificates_of(self._texts, name)
        except (ConfigError, MissingExtraError) as error:
            logger.error("listener %s: %s; its certificate stays as it was", name, error)
            return None

    async def watch(self, executor: Executor) -> None:
        """Look at the files now and then, and read anew what has changed. Never returns."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOKED_AT_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            if self._secured:
                await executor.run(self.look)  # to read all authorities of the system takes a tenth of a second

    def look(self) -> None:
        """Look at the files once."""
        for key in list(self._secured):
            try:
                certificates = certificates_of(self._texts, key[0])
            except (ConfigError, MissingExtraError):
                continue  # told of when it was set
            if _stamp(certificates) != self._stamps[key]:
                self._renew(key, certificates)

    def _to(self, name: str) -> Network:
        return self._over_tls(name, listens=False) if has_tls(self.protocol(name)) else self._network

    def _over_tls(self, name: str, *, listens: bool) -> Network:
        key = name, listens
        if key not in self._secured:
            certificates = certificates_of(self._texts, name)
            self._stamps[key] = _stamp(certificates)
            self._secured[key] = self._network.over_tls(certificates, listens=listens)
        return self._secured[key]

    def _renew(self, key: tuple[str, bool], certificates: Certificates) -> None:
        name, listens = key
        stamp = _stamp(certificates)
        whose = f"listener {name}" if listens else f"what this node asks others on {name}"
        try:
            self._secured[key].renew(certificates)
        except (ConfigError, MissingExtraError) as error:
            logger.error("%s: %s; the certificate stays as it was", whose, error)
        else:
            logger.info("%s: the certificate was read anew", whose)
        self._stamps[key] = stamp


def _is_of_tls(name: str) -> bool:
    return any(name == own or name.endswith(f".{own}") for own in TLS_NAMES)


def _stamp(certificates: Certificates) -> _Stamp:
    """What is different when a setting was changed, or a file was written."""
    found: list[tuple[int, int, int] | None] = []
    for path in certificates.paths:
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return certificates, tuple(found)
