"""Tells brokers that lose a replica so, from the active controller (KIP-570): the quickest way, and not the sure one.

What is pushed is committed already, and the metadata says the same to whoever the push does not reach. So this gives up
early: a broker that does not answer is tried a few times, a broker that registers anew learns all from the metadata
before it serves, and a controller that leads no more is silent. A broker whose only listener is that of clients takes
no such order.

Kafka: `ControllerChannelManager`, before KRaft.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.base.ports import Network, Rng
from tidelog.controller import LostReplica
from tidelog.metadata.image import BrokerImage, MetadataView, RegisteredEndpoint
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import OF_NODES, ConnectionSettings
from tidelog.net.pool import ConnectionPool
from tidelog.net.security import ConnectionSecurity
from tidelog.server.quorum.controller import ControllerListener
from tidelog.server.tasks import Tasks
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_05_stop_replica import (
    DELETED_TOPIC_EPOCH,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)

logger = logging.getLogger("tidelog.server.stops")

REPLICAS_PER_REQUEST_MAX = 10_000
REPLICAS_QUEUED_MAX = 100_000
"""For one broker. What finds no room is left to the metadata."""
ATTEMPTS_MAX = 4
TIMEOUT_MS = 2_000
BACKOFF_MS = 50
BACKOFF_MS_MAX = 1_000
VERSION_MIN = 3
"""Before it there are no leader epochs."""


@dataclass(slots=True)
class _Target:
    """One broker, in one incarnation, and what it is yet to be told."""

    broker_epoch: BrokerEpoch
    queued: deque[tuple[LostReplica, Offset]] = field(default_factory=deque)
    pushing: asyncio.Task[None] | None = None


class ReplicaStops(ControllerListener):
    """See the module. Belongs to the event loop it is used in.

    Args:
        node_id: this node, whose own broker hears of everything without it.
        listener_name: where brokers are asked.
        leader_epoch: in which this node has the active controller; None while it has not.

    Attributes:
        push_listeners: told of each request before it is sent, for whoever wants to send it again.
        dropped: replicas that were left to the metadata, because their broker did not answer or had too many before.
    """

    def __init__(
        self,
        node_id: BrokerId,
        listener_name: str,
        leader_epoch: Callable[[], LeaderEpoch | None],
        *,
        network: Network,
        security: ConnectionSecurity | None = None,
        rng: Rng,
        tasks: Tasks,
    ) -> None:
        self.push_listeners: list[Callable[[BrokerId, StopReplicaRequest], None]] = []
        self.dropped = 0
        self._node_id = node_id
        self._listener_name = listener_name
        self._leader_epoch = leader_epoch
        self._tasks = tasks.branch("stops of replicas")
        self._targets: dict[BrokerId, _Target] = {}
        self._backoff = Backoff(BACKOFF_MS, BACKOFF_MS_MAX, rng)
        self._pool = ConnectionPool(
            network,
            ConnectionSettings(
                f"controller-{node_id}-stops",
                connect_timeout_ms=TIMEOUT_MS,
                security=security,
                protocol_setting=OF_NODES,
            ),
            self._backoff,
            is_node=True,
        )

    def on_replicas_lost(self, lost: Iterable[LostReplica], metadata: MetadataView, metadata_offset: Offset) -> None:
        """Queue StopReplica requests, for each broker on its own.

        Args:
            metadata: as it is committed, the loss included.
            metadata_offset: of it, inclusive.
        """
        self._pool.set_addresses(self._addresses(metadata))
        for one in lost:
            broker = metadata.brokers.get(one.broker_id)
            if broker is None or one.broker_id == self._node_id or self._endpoint(broker) is None:
                continue
            target = self._targets.get(one.broker_id)
            if target is None or target.broker_epoch != broker.broker_epoch:
                self._give_up(one.broker_id)
                target = self._targets[one.broker_id] = _Target(broker.broker_epoch)
            if len(target.queued) >= REPLICAS_QUEUED_MAX:
                self.dropped += 1
                continue
            target.queued.append((one, metadata_offset))
            if target.pushing is None:
                target.pushing = self._tasks.start(self._push_all(one.broker_id, target))

    def on_resigned(self) -> None:
        """Another node has the active controller, or nobody has: what was not sent is not for this one to say."""
        for broker_id in list(self._targets):
            self._give_up(broker_id)

    async def stop(self) -> None:
        """Send no more StopReplica requests."""
        self.on_resigned()
        await self._tasks.end()
        await self._pool.close()

    def _addresses(self, metadata: MetadataView) -> dict[BrokerId, Address]:
        found = {}
        for each in metadata.brokers.values():
            endpoint = self._endpoint(each)
            if endpoint is not None:
                found[each.broker_id] = Address(endpoint.host, endpoint.port)
        return found

    def _endpoint(self, broker: BrokerImage) -> RegisteredEndpoint | None:
        """Where a broker takes such orders; None where clients use the same listener, and it takes none."""
        return broker.endpoint(self._listener_name) if len(broker.endpoints) > 1 else None

    def _give_up(self, broker_id: BrokerId) -> None:
        target = self._targets.pop(broker_id, None)
        if target is not None and target.pushing is not None:
            self.dropped += len(target.queued)
            target.pushing.cancel()

    async def _push_all(self, broker_id: BrokerId, target: _Target) -> None:
        try:
            while target.queued:
                some = list(islice(target.queued, REPLICAS_PER_REQUEST_MAX))
                is_answered = await self._push(broker_id, target.broker_epoch, some)
                for _ in some if is_answered else list(target.queued):
                    target.queued.popleft()
                    self.dropped += not is_answered
        finally:
            target.pushing = None

    async def _push(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch, some: Sequence[tuple[LostReplica, Offset]]
    ) -> bool:
        """Returns whether the broker answered, whatever it did."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            leader_epoch = self._leader_epoch()
            if leader_epoch is None:
                return False
            request = _request(self._node_id, leader_epoch, broker_epoch, some)
            try:
                connection = await self._pool.connection(broker_id)
                version = connection.versions.version(ApiKey.STOP_REPLICA, min_version=VERSION_MIN)
                for listener in self.push_listeners:
                    listener(broker_id, request)
                answer = await connection.request(request, StopReplicaResponse, timeout_ms=TIMEOUT_MS, version=version)
            except KafkaError as error:  # an older release, which has no words for it
                logger.debug("broker %s is not told to stop replicas: %s", broker_id, error)
                return False
            except TidelogError as error:
                logger.debug("broker %s was not told to stop replicas (attempt %d): %s", broker_id, attempt, error)
                if attempt < ATTEMPTS_MAX:
                    await asyncio.sleep(self._backoff.delay_ms(attempt) / 1000)
                continue
            _log_answer(broker_id, answer)
            return True
        return False


def _request(
    node_id: BrokerId, leader_epoch: LeaderEpoch, broker_epoch: BrokerEpoch, some: Sequence[tuple[LostReplica, Offset]]
) -> StopReplicaRequest:
    """Of what came at several offsets, the last one counts: what was assigned again by then goes on."""
    topics: dict[object, StopReplicaTopicState] = {}
    for one, _ in some:
        name, index = one.topic_partition
        topic = topics.setdefault(one.topic_id, StopReplicaTopicState(name, [], one.topic_id))
        epoch = DELETED_TOPIC_EPOCH if one.leader_epoch is None else one.leader_epoch
        topic.partition_states.append(StopReplicaPartitionState(index, epoch, delete_partition=True))
    return StopReplicaRequest(
        controller_id=node_id,
        is_kraft_controller=True,
        controller_epoch=leader_epoch,
        broker_epoch=broker_epoch,
        topic_states=list(topics.values()),
        metadata_offset=max(offset for _, offset in some),
    )


def _log_answer(broker_id: BrokerId, answer: StopReplicaResponse) -> None:
    """A refusal says that the broker knows better: there is nothing to be done about it."""
    refused = {Code(one.error_code) for one in answer.partition_errors if one.error_code}
    if answer.error_code:
        refused.add(Code(answer.error_code))
    if refused:
        names = ", ".join(sorted(code.name for code in refused))
        logger.info("broker %s, told to stop replicas, knows better: %s", broker_id, names)
