"""IncrementalAlterConfigs 0-1: change single settings of topics, brokers, all brokers, and levels of loggers (KIP-339).

Behaviour: SET, DELETE (back to the default), and for lists APPEND and SUBTRACT, on top of what is in force. Each
resource on its own; what is unknown, wrong or needs a restart is refused by name, and then nothing of that resource
changes. What was changed is in force at this broker when the answer comes. `validate_only` checks alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller import ConfigChange
from tidelog.server.api.alter_configs import Alteration, alter_configs, looked_at
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi


async def handle(
    node: ServerApi, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [ConfigChange(config.name, config.config_operation, config.value) for config in looked_at(one.configs)],
        )
        for one in request.resources
    ]
    outcomes = await alter_configs(
        node,
        alterations,
        context,
        replaces_all=False,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one, outcome in zip(request.resources, outcomes, strict=True)
        ]
    )
