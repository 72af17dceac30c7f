"""What a node has once it takes part in its cluster: a share in the metadata quorum, and the way to its controller.

Kafka: `SharedServer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import BrokerEpoch
from tidelog.server.membership.broker_lifecycle import BrokerLifecycle
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.membership.controller_registrations import ControllerRegistration
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
    """

    quorum: MetadataQuorum
    controller: Controller
    voter_requests: VoterRequests
    channel: ControllerChannel
    producer_ids: ProducerIds
    lifecycle: BrokerLifecycle | None
    registration: ControllerRegistration | None

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """Of the broker's present incarnation; None before it is registered, and where there is no broker."""
        return None if self.lifecycle is None else self.lifecycle.broker_epoch

    @property
    def active_controller(self) -> Controller | None:
        """The controller, while it is active."""
        return self.controller if self.controller.is_active else None
