"""ListConfigResources 0-1: the names of what has settings (KIP-1142).

Behaviour: topics, brokers with their loggers, and the groups for which something is set. Subscriptions to clients'
metrics have no settings here: there are none to list, which is what version 0 asks for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.metadata import MetadataImage, ResourceType
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi

ALL_TYPES = [int(kind) for kind in ResourceType if kind != ResourceType.UNKNOWN]
TYPES_FROM_VERSION = 1
LISTED_AT_ONCE_MAX = 1_000
"""Topics, and what has settings, that are looked at on the event loop: a millisecond or two."""


def handle(
    node: MetadataApi, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse]:
    """On another thread, if there is much to list."""
    if context.api_version < TYPES_FROM_VERSION:
        return ListConfigResourcesResponse()
    wanted = dict.fromkeys(request.resource_types or ALL_TYPES)
    if not wanted.keys() <= set(ALL_TYPES):
        return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION)
    image = context.read(node).image
    if len(image.topics_by_name) + len(image.configs) <= LISTED_AT_ONCE_MAX:
        return _listed(image, wanted)
    context.is_long = True
    return node.executor.compute(partial(_listed, image, wanted))


def _listed(image: MetadataImage, wanted: Iterable[int]) -> ListConfigResourcesResponse:
    brokers = [str(broker_id) for broker_id, broker in sorted(image.brokers.items()) if not broker.is_fenced]
    names = {
        int(ResourceType.TOPIC): sorted(image.topics_by_name),
        int(ResourceType.BROKER): brokers,
        int(ResourceType.BROKER_LOGGER): brokers,
        int(ResourceType.GROUP): sorted(name for kind, name in image.configs if kind == ResourceType.GROUP),
    }
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for kind in wanted for name in names.get(kind, ())]
    )
