"""What controllers that are no brokers tell the active one of themselves: where they listen, what they can work at.

```
 starts ──► follows the quorum ──registers──► known to the active controller ──► in the metadata, from its level on
                                     ▲                        │
                                     └── another one leads ───┘ unless the metadata has it
```
Features may be raised only as far as each of them can follow. The metadata keeps what they said where its level has a
record for that; below, each new active controller is told again.

Kafka: `ControllerRegistrationManager`, `ControllerRegistrationsPublisher`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import BrokerId, LeaderEpoch
from tidelog.controller import QuorumControllers
from tidelog.metadata import ControllerImage, MetadataDelta, MetadataImage, RegisteredEndpoint
from tidelog.metadata.features import knows_controllers, own_features
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.quorum.controller import ControllerListener
from tidelog.server.quorum.metadata_quorum import MetadataQuorum

logger = logging.getLogger("tidelog.server.controllers")

TIMEOUT_MS = 5_000
RETRY_MS = 1_000


class ControllerRegistrations(ControllerListener):
    """Those that the active controller at this node was told of, for one leadership."""

    def __init__(self) -> None:
        self._registered: dict[BrokerId, ControllerImage] = {}

    def on_active(self) -> None:
        self._registered.clear()

    def on_resigned(self) -> None:
        self._registered.clear()

    def note(self, controller: ControllerImage) -> None:
        """It registered, and is a member of the quorum: there are never more of them than those."""
        self._registered[controller.controller_id] = controller

    def of(self, quorum: MetadataQuorum) -> QuorumControllers:
        """With the members of the quorum, which is led here."""
        described = quorum.describe()
        return QuorumControllers(
            tuple(one.key.node_id for one in described.voters),
            tuple(one.key.node_id for one in described.observers),
            dict(self._registered),
        )


class ControllerRegistration(BrokerListener):
    """Registers this node, which is a controller and no broker, wherever the active controller is.

    Args:
        endpoints: where other controllers and brokers reach it.
        incarnation_id: of this process.
        image: the metadata that is known already.
    """

    def __init__(
        self,
        node_id: BrokerId,
        incarnation_id: UUID,
        endpoints: Sequence[RegisteredEndpoint],
        *,
        image: MetadataImage,
        quorum: MetadataQuorum,
        channel: ControllerChannel,
    ) -> None:
        self._us = ControllerImage(node_id, incarnation_id, tuple(endpoints), own_features())
        self._quorum = quorum
        self._channel = channel
        self._image = image
        self._was_in_metadata = False
        self._told: LeaderEpoch | None = None
        self._wake = asyncio.Event()

    def on_image_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._image = image
        if delta.are_features_changed or delta.changed_controllers:
            self._wake.set()

    async def run(self) -> None:
        """As long as this node runs: register where that is not known."""
        while True:
            self._wake.clear()
            is_due = self._is_due()
            if is_due:
                await self._register()
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_MS / 1000 if is_due else None):
                    await self._wake.wait()

    async def watch_leader(self) -> None:
        """As long as this node runs: a new active controller may know nothing of it."""
        while True:
            await self._quorum.leader_changed()
            self._wake.set()

    def _is_due(self) -> bool:
        known = self._image.controllers.get(self._us.controller_id)
        if known == self._us:
            self._was_in_metadata = True
            return False
        if known is None:
            self._was_in_metadata = False
        elif self._was_in_metadata:
            if known.incarnation_id != self._us.incarnation_id and self._told is not None:
                self._told = None
                logger.error(
                    "another process registered as controller %d after this one: every node needs a node.id of its own",
                    self._us.controller_id,
                )
            return False
        is_told = self._quorum.leader_epoch is not None and self._told == self._quorum.leader_epoch
        return not is_told or (knows_controllers(self._image.features) and not self._was_in_metadata)

    async def _register(self) -> None:
        from tidelog.wire.messages import api_70_controller_registration as wire

        us, leader_epoch = self._us, self._quorum.leader_epoch
        request = wire.ControllerRegistrationRequest(
            controller_id=us.controller_id,
            incarnation_id=us.incarnation_id,
            listeners=[
                wire.ControllerListener(one.listener_name, one.host, one.port, one.security_protocol)
                for one in us.endpoints
            ],
            features=[wire.ControllerFeature(*one) for one in us.features],
        )
        try:
            answer = await self._channel.request(
                request, wire.ControllerRegistrationResponse, timeout_ms=TIMEOUT_MS, request_class="lifecycle"
            )
        except (KafkaError, TidelogError) as error:  # of a release without this request too, until another one leads
            logger.debug("this controller is not registered: %s", error)
            return
        if answer.error_code:
            code = Code(answer.error_code)
            logger.warning("this controller is not registered: %s: %s", code.name, answer.error_message or code.meaning)
            return
        self._told = leader_epoch
