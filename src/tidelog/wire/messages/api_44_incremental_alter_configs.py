"""IncrementalAlterConfigs (key 44): change single keys of a resource (KIP-339). Version 1 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, message, string, struct

OPERATION_SET = 0
OPERATION_DELETE = 1
OPERATION_APPEND = 2
OPERATION_SUBTRACT = 3


@struct
class AlterableConfig:
    """What is to be done to one key."""

    name: str = field(string, doc="The key.")
    config_operation: int = field(int8, default=OPERATION_SET, doc="OPERATION_SET and so on.")
    value: str | None = field(
        string, nullable="0+", default=None, doc="The value, or the elements to add or take away; None to delete."
    )


@struct
class AlterConfigsResource:
    """A topic or a broker, and what is to be changed of it."""

    resource_type: int = field(int8, doc="2 topic, 4 broker, 8 the loggers of a broker.")
    resource_name: str = field(string, doc="The topic's name, or the broker's id; empty: all brokers.")
    configs: list[AlterableConfig] = field(array(AlterableConfig), doc="The changes.")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Change configurations, each resource on its own: some may be refused."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), doc="Of what.")
    validate_only: bool = field(boolean, default=False, doc="Check, and change nothing.")


@struct(kw_only=True)
class AlterConfigsResourceResponse:
    """What became of one resource."""

    error_code: int = field(int16, default=0, doc="0 if it was changed.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it was not.")
    resource_type: int = field(int8, doc="As in the request.")
    resource_name: str = field(string, doc="As in the request.")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One answer per resource."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse), doc="The resources.")
