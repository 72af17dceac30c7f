"""DescribeConfigs 1-4: the settings of topics and brokers, with where each value comes from.

Behaviour: the one table of settings answers (`metadata/configs/`): value, source, and on request what it overrides
and what it means. To name no key asks for all. A broker is described by the node that runs it, with an empty name: what
all brokers share and was set while they ran. The levels of a broker's loggers (type 8) are described likewise. Of a
group (type 32) those of consumer groups are told, whether or not there is such a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.metadata import ResourceType
from tidelog.metadata.configs import (
    BrokerSettings,
    ConfigSource,
    ConfigType,
    EffectiveConfig,
    broker_entries,
    group_entries,
    topic_entries,
)
from tidelog.server.api.request_context import AsOf, RequestContext, code_of
from tidelog.wire.messages.api_32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi


def handle(node: MetadataApi, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    results = []
    # Each once, however often it is named: five bytes of a request ask for kilobytes.
    for resource in {(one.resource_type, one.resource_name): one for one in request.resources}.values():
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if resource.resource_type == ResourceType.BROKER_LOGGER:
                rows = _loggers(node, resource)
            else:
                rows = [_row(entry, request) for entry in _entries(node, context.read(node), resource)]
        except KafkaError as error:
            result.error_code = code_of(error, "DescribeConfigs")
            result.error_message = str(error)
        else:
            wanted = resource.configuration_keys
            result.configs = [row for row in rows if not wanted or row.name in wanted]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(node: MetadataApi, as_of: AsOf, resource: DescribeConfigsResource) -> Sequence[EffectiveConfig]:
    name = resource.resource_name
    image, settings, _ = as_of
    if resource.resource_type == ResourceType.TOPIC:
        if image.topic(name) is None:
            raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic_entries(image.topic_configs(name), settings)
    if resource.resource_type == ResourceType.BROKER:
        if name == str(node.config.node_id):
            return broker_entries(settings)
        if name == "":
            shared = image.cluster_configs()
            return [entry for entry in broker_entries(BrokerSettings({}, {}, shared)) if entry.name in shared]
        raise _not_this_broker(node, name)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise refusal(Code.INVALID_REQUEST, "a group is described by its name")
        return group_entries(image.group_configs(name), settings)
    raise refusal(Code.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings here")


def _loggers(node: MetadataApi, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    from tidelog.server.settings.loggers import logger_levels

    if resource.resource_name != str(node.config.node_id):
        raise _not_this_broker(node, resource.resource_name)
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER, config_type=ConfigType.STRING
        )
        for name, level in logger_levels().items()
    ]


def _not_this_broker(node: MetadataApi, name: str) -> KafkaError:
    return refusal(Code.INVALID_REQUEST, f"broker {name!r} must be asked itself; this is broker {node.config.node_id}")


def _row(entry: EffectiveConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(one.name, one.value, one.source) for one in entry.synonyms]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.key.is_sensitive,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=entry.type,
        documentation=entry.key.doc if request.include_documentation else None,
    )
