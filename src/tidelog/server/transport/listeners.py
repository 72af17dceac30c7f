"""The ports of a node: taken first so that they can be told, opened to each role when it can serve, closed in order.

Kafka: `SocketServer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from tidelog.base.errors import ConfigError, MissingExtraError, NetworkError
from tidelog.base.ports import Clock, Executor, Listening
from tidelog.metadata import RegisteredEndpoint
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs import broker as keys
from tidelog.metadata.listeners import Listener, check_protocols, has_sasl, parse_listeners, parse_protocols
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.transport.authentication import Authentication
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.connections import Connections
from tidelog.server.transport.gathered import Gathered
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER, INTER_BROKER
from tidelog.server.transport.node_networks import NodeNetworks
from tidelog.server.transport.sasl_gate import NewGate
from tidelog.server.transport.server_connection import Answer, NameOf, OnClosed, ServerConnection

logger = logging.getLogger("tidelog.server.node")

STOP_SECONDS_MAX = 5.0
LISTEN_BACKLOG_MIN = 1024
IDLE_CHECKS_PER_LIMIT = 4
IDLE_CHECK_INTERVAL_MS_MIN = 10
IDLE_CHECK_INTERVAL_MS_MAX = 15_000
"""An idle connection lets go of its buffer when it is looked at for the second time."""
SWEPT_AT_ONCE = 500

CLIENTS, NODES = "clients", "nodes"
EARLY = "early"
"""Those listeners of a broker that open before it may lead: `early.start.listeners`."""


class FrameHandler(Protocol):
    """What answers the requests of connections."""

    def on_frame(self, frame: memoryview, connection: ServerConnection) -> Answer | Gathered | Awaitable[Answer]: ...


class Listeners:
    """Where a node listens, and who is connected.

    Args:
        new_dispatcher: makes what answers the requests at the listeners of a role.
        is_timed: whether the arrival of requests is noted.

    Attributes:
        memory: what the connections of clients have together, and those of the cluster's nodes, by CLIENTS and NODES.
    """

    def __init__(
        self,
        config: NodeConfig,
        connections: Connections,
        *,
        networks: NodeNetworks,
        authentication: Authentication,
        clock: Clock,
        executor: Executor,
        new_dispatcher: Callable[[str], FrameHandler],
        is_timed: bool,
    ) -> None:
        self._config = config
        self._connections = connections
        self._networks = networks
        self._authentication = authentication
        self._executor = executor
        self._new_dispatcher = new_dispatcher
        self._is_timed = is_timed
        self.memory = {
            CLIENTS: ConnectionMemory(config.queued_request_bytes_max, config.queued_answer_bytes_max, clock),
            NODES: ConnectionMemory(config.node_queued_request_bytes_max, config.queued_answer_bytes_max, clock),
        }
        self._bound: dict[str, Listener] = {}
        self._acceptors: dict[str, list[Listening]] = {EARLY: [], BROKER: [], CONTROLLER: []}
        self._dispatchers: dict[str, FrameHandler] = {}
        self._beside: dict[str, Listener] = {}  # those that the file does not name
        self._acceptors_beside: dict[str, Listening] = {}
        self._is_accepting = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._bound)

    def advertised(self, name: str) -> Listener:
        """What others are told of a listener, its real port included."""
        bound = self._bound[name]
        advertised = self._config.advertised.get(name, bound)
        return Listener(name, advertised.host or "127.0.0.1", advertised.port or bound.port)

    def endpoints(self, listeners: Sequence[Listener]) -> list[RegisteredEndpoint]:
        """What a registration says of listeners."""
        told = [self.advertised(one.name) for one in listeners]
        numbers = [self._networks.protocol_number(one.name) for one in listeners]
        return [RegisteredEndpoint(one.name, one.host, one.port, of) for one, of in zip(told, numbers, strict=True)]

    @property
    def first(self) -> Listener:
        """What others are told of the first listener for clients; of a node that is no broker, for controllers."""
        return self.advertised((*self._config.broker_listeners, *self._config.controller_listeners)[0].name)

    def bind(self) -> None:
        """Take the ports; nobody is accepted yet. Raises NetworkError: one cannot be taken; says what to do."""
        roles = ((BROKER, self._config.broker_listeners), (CONTROLLER, self._config.controller_listeners))
        for role, listeners in roles:
            for listener in listeners:
                opens = EARLY if listener.name in self._config.early_listeners else role
                self._acceptors[opens].append(self._listen(role, listener))
                port = self._bound[listener.name].port
                if not listener.is_local and not self._networks.asks_who_connects(listener.name):
                    logger.warning(
                        "listener %s: other machines reach port %s, and nobody there is asked who it is: let it listen "
                        "on 127.0.0.1, or give it SASL_SSL in listener.security.protocol.map",
                        *(listener.name, port),
                    )
                if role == BROKER and not listener.host and listener.name not in self._config.advertised:
                    logger.warning(
                        "listener %s: clients are told %s:%s, which is this machine for nobody but itself; "
                        "for others set advertised.listeners=%s://HOST:%s",
                        *(listener.name, self.advertised(listener.name).host, port, listener.name, port),
                    )

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Those that `listeners` names while the node runs come and go."""
        if old is not None and old.broker != new.broker:
            self.listen_beside(
                listeners_beside(new.broker), parse_protocols(new.broker[keys.LISTENER_SECURITY_PROTOCOL_MAP])
            )

    def listen_beside(self, listeners: Sequence[Listener], protocols: Mapping[str, str]) -> None:
        """Have these beside those of the file, from now on: `listeners` changed while the node runs.

        As at Kafka, brokers do not register them: who connects there is told of brokers that registered the name. One
        that cannot be had is told of in the log, and left out.
        """
        wanted = {listener.name: listener for listener in listeners}
        for name in [name for name, listener in self._beside.items() if wanted.get(name) != listener]:
            self._stop_listening(name)
        for name, listener in wanted.items():
            if name in self._beside:
                continue
            try:
                acceptor = self._listen(BROKER, listener, protocols.get(name, name))
            except (NetworkError, ConfigError, MissingExtraError) as error:
                logger.error("%s; it is left out until `listeners` changes", error)
                continue
            self._beside[name] = listener
            self._acceptors_beside[name] = acceptor
            if self._is_accepting:
                acceptor.start()
            logger.info("listener %s: port %s is open", name, acceptor.port)

    def _listen(self, role: str, listener: Listener, protocol: str | None = None) -> Listening:
        role_there = self._role_of(role, listener)
        dispatcher = self._dispatchers.get(role_there)
        if dispatcher is None:
            dispatcher = self._dispatchers[role_there] = self._new_dispatcher(role_there)
        memory = self.memory[CLIENTS if role_there == BROKER else NODES]
        new_gate = None
        if has_sasl(protocol or self._networks.protocol(listener.name)):
            new_gate = self._authentication.listener(
                listener.name, of_controllers=role == CONTROLLER, of_nodes=role_there != BROKER
            ).new_gate
        name_of = self._networks.name_of(listener.name, protocol)
        make = partial(self._new_connection, dispatcher, listener.name, memory, new_gate=new_gate, name_of=name_of)
        try:
            acceptor = self._networks.of_listener(listener.name, protocol).listen(
                listener.host or None,
                listener.port,
                backlog=max(self._config.listen_backlog, LISTEN_BACKLOG_MIN),
                admit=partial(self._connections.admit, make, role == BROKER, is_rated=role_there == BROKER),
                on_trouble=self._connections.on_trouble,
            )
        except NetworkError as error:
            raise NetworkError(
                f"listener {listener.name}: cannot listen on {listener.host}:{listener.port}: {error}"
            ) from error
        if role == BROKER:
            self._connections.hold_up(acceptor)
        self._bound[listener.name] = Listener(listener.name, listener.host, acceptor.port)
        return acceptor

    def _stop_listening(self, name: str) -> None:
        del self._beside[name], self._bound[name]
        acceptor = self._acceptors_beside.pop(name)
        self._connections.forget(acceptor)
        acceptor.close()
        for connection in list(self._connections.open):
            if connection.listener_name == name:
                connection.close_when_answered()
        logger.info("listener %s is closed", name)

    def _role_of(self, role: str, listener: Listener) -> str:
        """Of those of brokers, one is theirs alone if it has the name for that and clients have another.

        Where clients share one with brokers, they share its memory.
        """
        is_shared = len(self._config.broker_listeners) == 1 or listener.name != self._config.inter_broker_listener_name
        return role if role == CONTROLLER or is_shared else INTER_BROKER

    def accept(self, role: str) -> None:
        """Let those in who connect to the listeners of a role, or to those of brokers that open EARLY."""
        for acceptor in self._acceptors[role]:
            acceptor.start()
        if role == BROKER:
            self._is_accepting = True
            for acceptor in self._acceptors_beside.values():
                acceptor.start()

    def close(self) -> None:
        """Let nobody in any more; who is connected stays."""
        for acceptors in (*self._acceptors.values(), self._acceptors_beside.values()):
            for acceptor in acceptors:
                acceptor.close()

    async def close_connections(self) -> None:
        """Answer what is under way, then hang up; who takes too long is hung up on."""
        still_open = self._connections.open
        for connection in list(still_open):
            connection.close_when_answered()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS_MAX
        while still_open and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(still_open):
            connection.close()

    async def close_idle(self) -> None:
        """Close connections on which nothing came to its end for so long (`connections.max.idle.ms`)."""
        idle_ms_max = self._config.connection_idle_ms_max
        interval_ms, sweeps_max = IDLE_CHECK_INTERVAL_MS_MAX, None
        if idle_ms_max is not None:
            interval_ms = min(max(idle_ms_max // IDLE_CHECKS_PER_LIMIT, IDLE_CHECK_INTERVAL_MS_MIN), interval_ms)
            sweeps_max = max(-(-idle_ms_max // interval_ms), IDLE_CHECKS_PER_LIMIT)
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for count, connection in enumerate(list(self._connections.open), start=1):
                connection.sweep(sweeps_max)
                if count % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)  # who has something to ask comes first

    def _new_connection(
        self,
        handler: FrameHandler,
        listener_name: str,
        memory: ConnectionMemory,
        on_closed: OnClosed,
        *,
        new_gate: NewGate | None,
        name_of: NameOf | None,
    ) -> ServerConnection:
        return ServerConnection(
            handler.on_frame,
            listener_name=listener_name,
            frame_size_bytes_max=self._config.request_size_bytes_max,
            connections=self._connections.open,
            executor=self._executor,
            memory=memory,
            on_closed=on_closed,
            new_gate=new_gate,
            name_of=name_of,
            is_timed=self._is_timed,
        )


def listeners_beside(settings: BrokerSettings) -> list[Listener]:
    """What `listeners` names while the broker runs, and its file does not."""
    if keys.LISTENERS.name not in settings.dynamic:
        return []
    of_file, now = (
        parse_listeners(keys.LISTENERS.name, one[keys.LISTENERS])
        for one in (BrokerSettings.of(settings.static), settings)
    )
    there = {one.name: one for one in of_file}
    beside = []
    for listener in now:
        stays = there.get(listener.name)
        try:
            if stays is None:
                check_protocols(parse_protocols(settings[keys.LISTENER_SECURITY_PROTOCOL_MAP]), [listener.name])
                beside.append(listener)
            elif stays != listener:
                logger.warning("listener %s stays at %s:%s, as the file says", stays.name, stays.host, stays.port)
        except ConfigError as error:  # known here alone: the map may be in this node's file
            logger.error("%s; it is left out", error)
    return beside
