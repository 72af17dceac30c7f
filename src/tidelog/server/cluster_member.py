"""What a node has once it takes part in its cluster: a share in the metadata quorum, and the way to its controller.

Kafka: `SharedServer`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.base.ids import BrokerEpoch
from tidelog.server.membership.broker_lifecycle import BrokerLifecycle
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.membership.controller_registrations import ControllerRegistration
from tidelog.server.membership.loss_reports import LossReports
from tidelog.server.membership.producer_ids import ProducerIds
from tidelog.server.quorum.controller import Controller
from tidelog.server.quorum.metadata_quorum import MetadataQuorum
from tidelog.server.quorum.voter_requests import VoterRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMember:
    """Made when the files are open and the ports are bound; started after that.

    Attributes:
        controller: of this node; at most one of a cluster's is active.
        channel: to the active controller, wherever it is.
        lifecycle: of the broker; None where the node is a controller alone.
        registration: of a controller alone; a broker registers as that.
        losses: of the broker, as the lifecycle.
    """

    quorum: MetadataQuorum
    controller: Controller
    voter_requests: VoterRequests
    channel: ControllerChannel
    producer_ids: ProducerIds
    lifecycle: BrokerLifecycle | None
    registration: ControllerRegistration | None
    losses: LossReports | None

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """Of the broker's present incarnation; None before it is registered, and where there is no broker."""
        return None if self.lifecycle is None else self.lifecycle.broker_epoch

    @property
    def active_controller(self) -> Controller | None:
        """The controller, while it is active."""
        return self.controller if self.controller.is_active else None

    def why_uncontrolled(self, silent_ms_max: int) -> str | None:
        """Why no controller counts on this node: none has answered its broker for so long, or none was heard of.

        None while there is one. What a broker leads, it may serve for longer; a new controller may give it to others.
        """
        if self.lifecycle is None:
            silent_ms = self.quorum.leaderless_ms
        else:
            silent_ms = int((asyncio.get_running_loop().time() - self.lifecycle.heard_at) * 1000)
        if silent_ms <= silent_ms_max:
            return None
        return f"no active controller has been heard of for {silent_ms // 1000} s: {self.quorum.voters_heard}"
