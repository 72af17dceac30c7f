"""AlterConfigs 0-2: replace all that is set for topics and brokers; what is not named goes back to its default.

Behaviour: each resource on its own; what is unknown, wrong or needs a restart is refused by name, and then nothing of
that resource changes. What was changed is in force at this broker when the answer comes. `validate_only` checks alone.
IncrementalAlterConfigs changes single keys, and is what to use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller import ConfigChange, ConfigOperation
from tidelog.server.api.alter_configs import Alteration, alter_configs, looked_at
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi


async def handle(node: ServerApi, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    alterations = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [ConfigChange(config.name, ConfigOperation.SET, config.value) for config in looked_at(one.configs)],
        )
        for one in request.resources
    ]
    outcomes = await alter_configs(
        node,
        alterations,
        context,
        replaces_all=True,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(
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
