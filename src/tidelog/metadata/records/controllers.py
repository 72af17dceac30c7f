"""Records of controllers: where each listens, and what it can work at (KIP-919)."""

from __future__ import annotations

from uuid import UUID

from tidelog.metadata.records.brokers import BrokerEndpoint, BrokerFeature
from tidelog.wire.schema import array, boolean, field, int32, message, uuid


@message(api_key=27, versions="0", flexible="0+", kind="record")
class RegisterControllerRecord:
    """A controller registered: a new incarnation, or the same one with new facts."""

    controller_id: int = field(int32, doc="The controller's id.")
    incarnation_id: UUID = field(uuid, doc="Drawn anew by each process of the controller.")
    zk_migration_ready: bool = field(boolean, default=False, doc="Always false here.")
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint), doc="Its listeners for controllers.")
    features: list[BrokerFeature] = field(array(BrokerFeature), doc="What it supports.")
