"""Watches the brokers from the active controller: whoever falls silent is fenced when its session ends.

Who was heard of when is nowhere but here, for one leadership of the controller. The next one begins with a full session
for everybody; and so does one that slept itself, for it cannot know who was silent meanwhile.

Whose connection closes is asked whether it is there: see `controller.early_fencing`. Of the controller that led before,
which no broker is heard of by, that is the connection on which this node followed it.

Kafka: `BrokerHeartbeatManager`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.base.ports import Clock, Network
from tidelog.controller import BrokerSessions, EarlyFence, Suspect, Suspicions
from tidelog.metadata import MetadataImage
from tidelog.metadata.image import BrokerImage, MetadataView
from tidelog.server.quorum.controller import ControllerHost, ControllerListener
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.replication_settings import ReplicaFetchSettings
from tidelog.server.tasks import Tasks
from tidelog.server.transport.server_connection import ServerConnection

logger = logging.getLogger("tidelog.server.brokers")

TICKS_PER_SESSION = 20
TICK_MS_MAX = 500
PROBE_BACKOFF_MS_MIN = 20
PROBE_BACKOFF_MS_MAX = 500
ANSWER_MS_MAX = 1_000
"""A machine that refuses says so at once, but for a way that is long or full."""


class Watched(NamedTuple):
    """One leadership of the controller."""

    leader_epoch: LeaderEpoch
    sessions: BrokerSessions
    suspicions: Suspicions


class WatchingNode(ControllerHost, Protocol):
    """The node whose controller watches the brokers."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def image(self) -> MetadataImage: ...


class BrokerWatch(ControllerListener):
    """The sessions of brokers, at the node whose controller is active.

    Args:
        network: on which brokers are asked whether they are there.
    """

    def __init__(self, node: WatchingNode, *, clock: Clock, network: Network, tasks: Tasks) -> None:
        self._node = node
        self._clock = clock
        self._network = network
        self._session_timeout_ms = node.config.broker_session_timeout_ms
        self._tick_ms = min(max(self._session_timeout_ms // TICKS_PER_SESSION, 1), TICK_MS_MAX)
        self._listener_name = ReplicaFetchSettings.from_properties(node.config.static).listener_name
        self._ticked_ms: int | None = None
        self._of: Watched | None = None
        self._contacts: dict[BrokerId, tuple[BrokerEpoch, ServerConnection]] = {}
        self._former_leader: tuple[BrokerId, BrokerEpoch] | None = None
        self._probes = tasks.branch("probes of brokers")
        self._contact_count = 0  # of somebody anew
        self._changed = asyncio.Event()

    @property
    def sessions(self) -> BrokerSessions:
        """Of the present leadership.

        Raises:
            KafkaError: NOT_CONTROLLER: the active controller is not here.
        """
        return self._watched.sessions

    @property
    def _watched(self) -> Watched:
        """Raises KafkaError: NOT_CONTROLLER."""
        controller = self._node.controller
        journal = controller.journal
        metadata = journal.speculative.metadata  # which only the active one has
        leader_epoch = journal.leader_epoch
        assert leader_epoch is not None
        if self._of is None or self._of.leader_epoch != leader_epoch:
            sessions = self._new_sessions(metadata, journal.next_offset)
            self._of = Watched(leader_epoch, sessions, Suspicions(sessions))
        return self._of

    # What happened.

    def on_contact(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, connection: ServerConnection) -> None:
        """What the registered incarnation of a broker asks on this connection was granted."""
        if self._contacts.get(broker_id) != (broker_epoch, connection):
            self._contacts[broker_id] = broker_epoch, connection
            connection.on_disconnected = partial(self._on_disconnected, broker_id, connection)
            self._contact_count += 1
            self._changed.set()
            self._changed.clear()

    def on_leader_disconnected(self, node_id: BrokerId) -> None:
        """The connection closed on which this node followed the active controller."""
        broker = self._node.image.brokers.get(node_id)
        self._former_leader = None if broker is None else (node_id, broker.broker_epoch)

    def on_active(self) -> None:
        """The active controller is here from now on."""
        former_leader, self._former_leader = self._former_leader, None
        if former_leader is not None:
            self._suspect(*former_leader)

    def _on_disconnected(self, broker_id: BrokerId, connection: ServerConnection) -> None:
        broker_epoch, contact = self._contacts.get(broker_id, (None, None))
        if contact is connection and broker_epoch is not None:
            del self._contacts[broker_id]
            self._suspect(broker_id, broker_epoch)

    async def run(self) -> None:
        """Fence who is silent, for as long as this node runs."""
        try:
            while True:
                self._ticked_ms = self._clock.now_ms()
                await asyncio.sleep(self._tick_ms / 1000)
                await self._tick(self._clock.now_ms())
        finally:
            self._ticked_ms = None
            await self._probes.end()

    async def _tick(self, now_ms: int) -> None:
        if self._node.active_controller is None:
            self._of = None
            return
        if self._has_slept(now_ms) and self._of is not None:
            logger.warning(
                "this node did nothing for %s ms: every broker is given time", now_ms - (self._ticked_ms or 0)
            )
            self._of = None
        try:
            await self._fence_expired(now_ms)
        except KafkaError as error:
            logger.debug("nobody is fenced by this node: %s", error)  # another controller sees to it

    def _has_slept(self, now_ms: int) -> bool:
        """Whether this node did nothing for so long that it cannot know who was silent meanwhile."""
        ticked_ms = self._ticked_ms
        return ticked_ms is None or now_ms - ticked_ms > self._tick_ms + self._session_timeout_ms // 2

    async def _fence_expired(self, now_ms: int) -> None:
        sessions = self.sessions
        deadline_ms = sessions.next_deadline_ms()
        if deadline_ms is None or now_ms < deadline_ms:
            return
        fenced = await self._node.controller.request(lambda state: state.decide_fence_expired(sessions, now_ms=now_ms))
        for broker_id in fenced:
            logger.warning(
                "broker %s was not heard of for %s ms (broker.session.timeout.ms): it is fenced, and others lead",
                broker_id,
                self._session_timeout_ms,
            )

    # Who may be gone.

    def _suspect(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        if self._node.active_controller is None or not self._node.config.broker_early_fencing_enable:
            return
        if self._ticked_ms is None:
            return  # this node stops, and hangs up on itself
        suspect = self._watched.suspicions.on_closed(broker_id, broker_epoch, self._clock.now_ms())
        if suspect is not None:
            self._probes.start(self._probe(suspect))

    async def _probe(self, suspect: Suspect) -> None:
        """Probe the port of a suspected broker, until there is nothing left to find out."""
        watched = self._of
        pause_ms = PROBE_BACKOFF_MS_MIN
        while watched is not None and self._of is watched:
            contact_count = self._contact_count
            try:
                metadata = self._node.controller.journal.speculative.metadata
                doubt = watched.suspicions.doubt(suspect, metadata, self._clock.now_ms())
                if doubt is not None and not doubt.may_pass:
                    return
                refuses = await self._refuses(metadata.brokers[suspect.broker_id])
                if self._watched is not watched:
                    return  # it may have been heard of since, in a leadership that began meanwhile
                if refuses and not self._has_slept(self._clock.now_ms()):
                    outcome = await self._fence_early(watched, suspect)
                    if outcome.doubt is None or not outcome.doubt.may_pass:
                        self._log_outcome(suspect, outcome)
                        return
            except KafkaError as error:
                logger.debug("nobody is fenced by this node: %s", error)
                return
            if self._contact_count == contact_count:  # else a doubt may have passed
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_ms / 1000):
                        await self._changed.wait()
            pause_ms = min(2 * pause_ms, PROBE_BACKOFF_MS_MAX)

    async def _refuses(self, broker: BrokerImage) -> bool:
        endpoint = broker.endpoint(self._listener_name) or next(iter(broker.endpoints), None)
        if endpoint is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1000):
                return await self._network.refuses(endpoint.host, endpoint.port)
        except TimeoutError:
            return False

    async def _fence_early(self, watched: Watched, suspect: Suspect) -> EarlyFence:
        """Until nothing more can be moved, or there is a doubt."""
        return await self._node.controller.request_in_portions(
            lambda state: state.decide_fence_early(watched.suspicions, suspect, now_ms=self._clock.now_ms()),
            has_more=lambda outcome: outcome.has_more,
        )

    def _log_outcome(self, suspect: Suspect, outcome: EarlyFence) -> None:
        broker_id = suspect.broker_id
        if outcome.is_fenced:
            logger.warning(
                "broker %s hung up, and its port refuses connections: it is fenced, and others lead", broker_id
            )
        elif outcome.moved:
            logger.warning(
                "broker %s hung up, and its port refuses connections: others lead %d partitions in its place; what it "
                "leads beyond that nobody else could, and it is fenced when its session ends",
                broker_id,
                outcome.moved,
            )
        else:
            logger.info("broker %s hung up, and its session goes on: %s", broker_id, outcome.doubt)

    def _new_sessions(self, metadata: MetadataView, end_offset: Offset) -> BrokerSessions:
        return BrokerSessions(
            metadata,
            end_offset=end_offset,
            now_ms=self._clock.now_ms(),
            session_timeout_ms=self._session_timeout_ms,
        )
