"""The way to the other nodes of the metadata quorum: what the machine asks goes out, what they answer comes back.

Each node has two connections, so that a vote never waits behind a fetch that is parked. A connection that ends is news
by itself: of the leader's, that it is gone.

Kafka: `KafkaNetworkChannel`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from tidelog.base.errors import Code, ConfigError, KafkaError, NetworkError, TidelogError
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch
from tidelog.base.ports import Network, Rng
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import OF_NODES, Connection, ConnectionSettings
from tidelog.net.pool import CONTROL_REQUESTS, ConnectionPool
from tidelog.net.security import ConnectionSecurity
from tidelog.quorum.values import Answer, EpochEnded, QuorumFetch, QuorumRequest, QuorumSettings, VoterSet
from tidelog.server.settings.quorum_config import Endpoints, QuorumConfig
from tidelog.server.tasks import Tasks
from tidelog.wire.api import ApiKey

logger = logging.getLogger("tidelog.server.quorum")

FETCH_REQUESTS = "fetch"
CONNECT_BACKOFF_MS_MAX = 200
REFUSAL_LOG_SECONDS = 60.0
FAREWELL_SECONDS_MAX = 0.2


class PeersHost(Protocol):
    """The driver of the quorum, whose requests these are."""

    def on_answered(self, number: int, answer: Answer, records: bytes) -> None: ...

    def on_unanswered(self, number: int) -> None: ...

    def on_hung_up(self, node_id: BrokerId) -> None: ...


class QuorumPeers:
    """See the module. Belongs to the event loop it is used in.

    Args:
        endpoints: where this node listens for controllers, for the others to know.
        tasks: own the requests; to be ended before these are closed.

    Attributes:
        fetch_version_max: of Fetch; for those who want to see what an older peer does.
        unanswered: whoever did not answer the last request, with what was in the way.
        answering: whoever did.
    """

    def __init__(
        self,
        node_id: BrokerId,
        cluster_id: ClusterId,
        endpoints: Endpoints,
        config: QuorumConfig,
        host: PeersHost,
        *,
        network: Network,
        security: ConnectionSecurity | None = None,
        rng: Rng,
        tasks: Tasks,
    ) -> None:
        self.fetch_version_max: int | None = None
        self.unanswered: dict[BrokerId, str] = {}
        self.answering: set[BrokerId] = set()
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._endpoints = endpoints
        self._listener_name = config.listener_name
        self._settings = settings = config.settings
        self._host = host
        self._voters: VoterSet | None = None
        self._addresses: dict[BrokerId, Address] = {}
        self._pool = ConnectionPool(
            network,
            ConnectionSettings(
                f"node-{node_id}",
                connect_timeout_ms=settings.request_timeout_ms,
                security=security,
                protocol_setting=OF_NODES,
            ),
            Backoff(max(settings.retry_backoff_ms, 1), CONNECT_BACKOFF_MS_MAX, rng),
            is_node=True,
        )
        self._tasks = tasks
        self._farewells: set[asyncio.Task[None]] = set()
        self._logged_at: dict[tuple[BrokerId, Code], float] = {}
        self._has_answer = False
        self._is_refused = False

    @property
    def are_foreign(self) -> bool:
        """Whether all that answered so far are of another cluster than this node."""
        return self._is_refused and not self._has_answer

    def address_of(self, node_id: BrokerId) -> Address | None:
        """Of a node's controller listener, this one's included, if it is known."""
        if node_id == self._node_id and self._endpoints:
            return self._address(self._endpoints)
        return self._addresses.get(node_id)

    def endpoint_of(self, node_id: BrokerId | None, listener_name: str) -> tuple[BrokerId, Address] | None:
        """Where a leader that is named in an answer listens, if it is known.

        Args:
            listener_name: of the listener on which the answer goes out: whoever asks there goes on there. It may be
                another one than this node asks on, as long as the cluster moves from one to the other.
        """
        if node_id is None:
            return None
        if node_id == self._node_id:
            endpoints = self._endpoints
        else:
            voter = None if self._voters is None else self._voters.voter(node_id)
            endpoints = () if voter is None else voter.endpoints
        address = named(listener_name, endpoints)
        if address is None and listener_name == self._listener_name:
            address = self.address_of(node_id)
        return None if address is None else (node_id, address)

    def set_voters(self, voters: VoterSet) -> None:
        """The set of voters says where they listen."""
        self._voters = voters
        for voter in voters.voters:
            if voter.endpoints and voter.key.node_id != self._node_id:
                self._set_address(voter.key.node_id, self._address(voter.endpoints))

    def on_endpoints(self, node_id: BrokerId, endpoints: Endpoints) -> None:
        """A leader said where it listens, by names."""
        address = named(self._listener_name, endpoints)
        if address is not None:
            self.on_address(node_id, address)

    def on_address(self, node_id: BrokerId, address: Address) -> None:
        """A leader said where it listens. Of a voter, the set of voters says so."""
        if self._voters is None or self._voters.voter(node_id) is None:
            self._set_address(node_id, address)

    def _address(self, endpoints: Endpoints) -> Address:
        """By name; where none has the name, as of those to ask first, or after a listener got another name, the first.

        Kafka: `VoterSet.voterAddress`, which knows of none then.
        """
        return named(self._listener_name, endpoints) or Address(*endpoints[0][1:])

    def _set_address(self, node_id: BrokerId, address: Address) -> None:
        """Where a node is now; connections to where it was are closed."""
        if self._addresses.get(node_id) != address:
            self._addresses[node_id] = address
            self._pool.set_addresses(self._addresses)

    def send(self, request: QuorumRequest) -> None:
        """Send a request; `host` gets the answer, or learns that there is none."""
        task = self._tasks.start(self._send(request), on_bug=lambda _: self._host.on_unanswered(request.number))
        if isinstance(request.message, EpochEnded):
            self._farewells.add(task)
            task.add_done_callback(self._farewells.discard)

    async def say_farewell(self) -> None:
        """Return once the others know that this node leads no more, or take too long to say so."""
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=FAREWELL_SECONDS_MAX)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def connection(self, node_id: BrokerId, request_class: str = CONTROL_REQUESTS) -> Connection:
        """Raises NetworkError: it cannot be reached, in the time that a request may take."""
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                connection = await self._pool.connection(node_id, request_class)
        except TimeoutError:
            raise NetworkError(f"node {node_id} cannot be reached") from None
        # The connection for fetches from the leader is always in use; the other may be closed for being idle.
        if request_class == FETCH_REQUESTS:
            connection.on_hung_up = partial(self._host.on_hung_up, node_id)
        return connection

    async def _send(self, request: QuorumRequest) -> None:
        from tidelog.server.quorum.quorum_messages import FETCH_VERSION_MIN, answer_of, request_of

        number, target, peer_request = request
        request_class, version = CONTROL_REQUESTS, None
        timeout_ms = self._settings.request_timeout_ms
        try:
            message, response_type = request_of(peer_request, self._cluster_id, target, self._endpoints)
            if isinstance(peer_request, QuorumFetch):
                request_class, timeout_ms = FETCH_REQUESTS, timeout_ms + peer_request.wait_ms_max
            connection = await self.connection(target, request_class)
            if request_class == FETCH_REQUESTS:
                version = connection.versions.version(
                    ApiKey.FETCH, min_version=FETCH_VERSION_MIN, max_version=self.fetch_version_max
                )
            response = await connection.request(message, response_type, timeout_ms=timeout_ms, version=version)
            answered = answer_of(peer_request, response)
        except TidelogError as error:
            self.unanswered[target] = str(error)
            self.answering.discard(target)
            self._is_refused |= isinstance(error, KafkaError) and error.code == Code.INCONSISTENT_CLUSTER_ID
            self._log_refusal(target, error)
            self._host.on_unanswered(number)
            return
        self._has_answer = True
        self.unanswered.pop(target, None)
        self.answering.add(target)
        for node_id, address in answered.addresses.items():
            self.on_address(node_id, address)
        self._host.on_answered(number, answered.answer, answered.records)

    def _log_refusal(self, target: BrokerId, error: TidelogError) -> None:
        """Log a refusal once in a while: it is a mistake of somebody's. That a node is away is not logged."""
        if not isinstance(error, KafkaError):
            logger.debug("node %s does not answer: %s", target, error)
            return
        now = asyncio.get_running_loop().time()
        if now < self._logged_at.get((target, error.code), now):
            return
        self._logged_at[target, error.code] = now + REFUSAL_LOG_SECONDS
        if error.code == Code.INCONSISTENT_CLUSTER_ID:
            logger.error(
                "node %s at %s is of another cluster than this node, which is of %s: correct %s, or format the "
                "directory of one of them with the cluster id of the other",
                target,
                self.address_of(target),
                self._cluster_id,
                "controller.quorum.voters",
            )
        else:
            logger.warning("node %s at %s: %s: %s", target, self.address_of(target), error.code.name, error)


def named(listener_name: str, endpoints: Endpoints) -> Address | None:
    """Of the endpoints of a node, the address of the listener with that name."""
    return next((Address(host, port) for name, host, port in endpoints if name == listener_name), None)


class Namesake:
    """Notices another process that leads the quorum as the node that this one is.

    A leader that lost its directory, and is back, is named as well: until those who followed it notice that it leads no
    more, which takes them less than `patience_ms`. A node that is no controller never led.
    """

    def __init__(self, node_id: BrokerId, settings: QuorumSettings, *, is_controller: bool) -> None:
        self.patience_ms = 3 * settings.fetch_timeout_ms + 2 * settings.election_timeout_ms if is_controller else 0
        self._node_id = node_id
        self._named_in: LeaderEpoch | None = None
        self._since_ms = 0

    def is_seen(self, answer: Answer, *, leads: bool, now_ms: int) -> bool:
        """Whether the answer shows it: others go on naming us for the leader of an epoch that we do not lead in."""
        if answer.leader_id != self._node_id or leads:
            return False
        if answer.leader_epoch != self._named_in:
            self._named_in, self._since_ms = answer.leader_epoch, now_ms
        return now_ms >= self._since_ms + self.patience_ms

    def error(self) -> ConfigError:
        """The error that this process ends with."""
        return ConfigError(
            f"another process leads the metadata quorum as node {self._node_id}, and this one does not: "
            "every node needs a node.id of its own; give this one another"
        )
