"""FindCoordinator 0-6: there are no coordinators yet, and this says so.

Behaviour: a group gets COORDINATOR_NOT_AVAILABLE, which a consumer that assigns its partitions itself never minds. A
transactional id gets INVALID_REQUEST, as InitProducerId does, which ends the attempt at once. It is served because
librdkafka takes a broker without it for one that knows no lz4, and stops compressing without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.server.dispatch import RequestContext
from tidelog.wire.messages.api_10_find_coordinator import (
    KEY_TYPE_GROUP,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node

SEVERAL_KEYS_FROM_VERSION = 4


def handle(node: Node, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if request.key_type == KEY_TYPE_GROUP:
        code, why = Code.COORDINATOR_NOT_AVAILABLE, "this release has no consumer groups; assign partitions instead"
    else:
        code, why = Code.INVALID_REQUEST, "this release has no transactions and no share groups"
    if context.api_version >= SEVERAL_KEYS_FROM_VERSION:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, error_code=code, error_message=why) for key in keys]
        )
    return FindCoordinatorResponse(error_code=code, error_message=why)
