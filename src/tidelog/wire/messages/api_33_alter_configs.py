"""AlterConfigs (key 33): replace all that is set for a resource. Version 2 is flexible.

What is not named goes back to its default; IncrementalAlterConfigs (44) changes single keys.
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, message, string, struct


@struct
class AlterableConfig:
    """One key and its value."""

    name: str = field(string, doc="The key.")
    value: str | None = field(string, nullable="0+", default=None, doc="The value; None is refused.")


@struct
class AlterConfigsResource:
    """A topic or a broker, and all that is to be set for it."""

    resource_type: int = field(int8, doc="2 topic, 4 broker.")
    resource_name: str = field(string, doc="The topic's name, or the broker's id; empty: all brokers.")
    configs: list[AlterableConfig] = field(array(AlterableConfig), doc="All that is to be set.")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Set configurations, each resource on its own: some may be refused."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), doc="Of what.")
    validate_only: bool = field(boolean, default=False, doc="Check, and change nothing.")


@struct(kw_only=True)
class AlterConfigsResourceResponse:
    """What became of one resource."""

    error_code: int = field(int16, default=0, doc="0 if it was changed.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it was not.")
    resource_type: int = field(int8, doc="As in the request.")
    resource_name: str = field(string, doc="As in the request.")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One answer per resource."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse), doc="The resources.")
