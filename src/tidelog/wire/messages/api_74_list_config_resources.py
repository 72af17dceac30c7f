"""ListConfigResources (key 74): which resources have configurations.

Version 0 asks for client metrics subscriptions (KIP-1000), 1 for any kind of resource (KIP-1142).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct

RESOURCE_CLIENT_METRICS = 16


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Ask for the names of resources."""

    resource_types: list[int] = field(
        array(int8), versions="1+", default_factory=list, doc="Of which types; empty: of all there are."
    )


@struct
class ConfigResource:
    """A topic, a broker and so on."""

    resource_name: str = field(string, doc="Its name.")
    resource_type: int = field(
        int8, versions="1+", default=RESOURCE_CLIENT_METRICS, ignorable=True, doc="2 topic, 4 broker and so on."
    )


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources of the types asked for."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if they are listed.")
    config_resources: list[ConfigResource] = field(array(ConfigResource), default_factory=list, doc="The resources.")
