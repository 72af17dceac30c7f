"""Controllers that register: where each listens, and what it can work at, so that features count it (KIP-919).

A node that is a broker too registers as that, and needs no other registration.

Kafka: `ClusterControlManager.registerController`.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId
from tidelog.journal import Decision
from tidelog.metadata.difference import registration_of_controller
from tidelog.metadata.features import knows_controllers, unsupported
from tidelog.metadata.image import ControllerImage, MetadataView


def decide_register_controller(
    metadata: MetadataView, controller: ControllerImage, *, members: Collection[BrokerId]
) -> Decision[None]:
    """Note a controller in the metadata, where its level has words for that; see `CONTROLLERS_SINCE`.

    Args:
        members: of the metadata quorum, as its leader knows them: voters, and whoever fetches the log.

    Raises:
        KafkaError: UNKNOWN_CONTROLLER_ID for one that has nothing to do with the quorum; INVALID_REQUEST for one
            without endpoints; UNSUPPORTED_VERSION for one of a release that does not know what the cluster has been
            upgraded to.
    """
    controller_id = controller.controller_id
    if controller_id not in members:
        raise refusal(
            Code.UNKNOWN_CONTROLLER_ID,
            f"controller {controller_id} is no voter of the metadata quorum, and has fetched nothing of its log: check "
            "node.id, and the addresses of the controllers",
        )
    if not controller.endpoints:
        raise refusal(Code.INVALID_REQUEST, f"controller {controller_id} registers without a listener")
    unfit = unsupported(metadata.features, controller.features)
    if unfit is not None:
        raise refusal(
            Code.UNSUPPORTED_VERSION,
            f"controller {controller_id} cannot join: {unfit}; start it with the release that the others run",
        )
    if not knows_controllers(metadata.features) or metadata.controllers.get(controller_id) == controller:
        return Decision((), None)
    return Decision((registration_of_controller(controller),), None)
