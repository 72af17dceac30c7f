"""DescribeConfigs (key 32): the configuration of topics and brokers, and where each value comes from.

Version 1 answers sources and synonyms (KIP-226), 3 types and documentation (KIP-569), 4 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, message, string, struct

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_GROUP = 32


@struct
class DescribeConfigsResource:
    """A topic or a broker to describe."""

    resource_type: int = field(int8, doc="RESOURCE_TOPIC and so on.")
    resource_name: str = field(string, doc="The topic's name, or the broker's id; empty: what all brokers share.")
    configuration_keys: list[str] | None = field(
        array(string), nullable="0+", default=None, doc="None or empty: all of them."
    )


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Ask for configurations."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource), doc="Of what.")
    include_synonyms: bool = field(boolean, versions="1+", default=False, doc="Whether to list what was overridden.")
    include_documentation: bool = field(boolean, versions="3+", default=False, doc="Whether to say what keys mean.")


@struct
class DescribeConfigsSynonym:
    """A key and value that would hold if those before it did not."""

    name: str = field(string, doc="The key, which may be another one (`log.segment.bytes` for `segment.bytes`).")
    value: str | None = field(string, nullable="0+", default=None, doc="The value.")
    source: int = field(int8, default=0, doc="Where it comes from: a `ConfigSource` of `metadata`.")


@struct
class DescribeConfigsResourceResult:
    """One key of a configuration."""

    name: str = field(string, doc="The key.")
    value: str | None = field(string, nullable="0+", default=None, doc="The value; None if it is sensitive or unset.")
    read_only: bool = field(boolean, default=False, doc="Whether it needs a restart to change.")
    config_source: int = field(int8, versions="1+", default=-1, ignorable=True, doc="A `ConfigSource` of `metadata`.")
    is_sensitive: bool = field(boolean, default=False, doc="Whether the value is kept back.")
    synonyms: list[DescribeConfigsSynonym] = field(
        array(DescribeConfigsSynonym),
        versions="1+",
        default_factory=list,
        ignorable=True,
        doc="In order of precedence.",
    )
    config_type: int = field(int8, versions="3+", default=0, ignorable=True, doc="A `ConfigType` of `metadata`.")
    documentation: str | None = field(
        string, versions="3+", nullable="0+", default=None, ignorable=True, doc="What it means."
    )


@struct(kw_only=True)
class DescribeConfigsResult:
    """The configuration of one resource."""

    error_code: int = field(int16, default=0, doc="0 if it could be described.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not.")
    resource_type: int = field(int8, doc="RESOURCE_TOPIC and so on.")
    resource_name: str = field(string, doc="The topic's name, or the broker's id.")
    configs: list[DescribeConfigsResourceResult] = field(
        array(DescribeConfigsResourceResult), default_factory=list, doc="The keys."
    )


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """One answer per resource."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult), doc="The resources.")
