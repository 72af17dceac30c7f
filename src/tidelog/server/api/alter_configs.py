"""Changing settings, whoever asks: the controller decides about topics and brokers, the loggers are this node's.

Kafka: `ConfigAdminManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.controller import AlteredConfigs, ConfigChange, ConfigsToAlter, PartitionScan
from tidelog.metadata import ResourceKey, ResourceType
from tidelog.server.api.forwarding import send_to_controller
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.transport.listener_roles import CONTROLLER

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi

T = TypeVar("T")

RESOURCE_TYPES = {int(kind): kind for kind in ResourceType}

CHANGES_MAX = 1_000
"""Of one resource. There are not so many settings: who changes more names some that there are not, or some twice."""


def looked_at(configs: list[T]) -> list[T]:
    """Of what is listed of one resource, no more than it takes to see that it is too much."""
    return configs if len(configs) <= CHANGES_MAX else configs[: CHANGES_MAX + 1]


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is to be changed of one resource, as it was asked: the type may be none that there is."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]


@dataclass(frozen=True, slots=True)
class AlterationOutcome:
    """What became of one alteration."""

    code: Code
    message: str | None


DONE = AlterationOutcome(Code.NONE, None)


async def alter_configs(
    node: ServerApi,
    alterations: Sequence[Alteration],
    context: RequestContext,
    *,
    replaces_all: bool,
    validate_only: bool,
) -> list[AlterationOutcome]:
    """Change settings, each resource on its own; what was changed is in force at this broker when this returns.

    Args:
        context: of the request; where a broker was asked and the active controller is elsewhere, that is asked in turn.
        replaces_all: what is not named goes back to its default.
    """
    outcomes: dict[int, AlterationOutcome] = {}
    to_decide: dict[int, ConfigsToAlter] = {}
    counts = Counter((one.resource_type, one.resource_name) for one in alterations)
    for index, one in enumerate(alterations):
        kind = RESOURCE_TYPES.get(one.resource_type, ResourceType.UNKNOWN)
        try:
            if kind == ResourceType.UNKNOWN:
                raise refusal(Code.INVALID_REQUEST, f"resource type {one.resource_type} has no settings here")
            if len(one.changes) > CHANGES_MAX:
                raise refusal(
                    Code.INVALID_REQUEST, f"more than {CHANGES_MAX} settings of {one.resource_name!r} are named at once"
                )
            if kind == ResourceType.BROKER_LOGGER:
                is_alone = counts[one.resource_type, one.resource_name] == 1
                _alter_loggers(node, one, is_alone=is_alone, replaces_all=replaces_all, validate_only=validate_only)
                outcomes[index] = DONE
            else:
                resource = ResourceKey(kind, one.resource_name)
                to_decide[index] = ConfigsToAlter(resource, one.changes, replaces_all)
        except KafkaError as error:
            outcomes[index] = AlterationOutcome(code_of(error, "AlterConfigs"), str(error))
    if to_decide:
        requested = tuple(to_decide.values())
        try:
            decided = await _decide(node, requested, context, validate_only=validate_only)
            outcomes |= dict(zip(to_decide, decided, strict=True))
        except KafkaError as error:
            refused = AlterationOutcome(code_of(error, "AlterConfigs"), str(error))
            outcomes |= dict.fromkeys(to_decide, refused)
    return [outcomes[index] for index in range(len(alterations))]


async def _decide(
    node: ServerApi, requested: tuple[ConfigsToAlter, ...], context: RequestContext, *, validate_only: bool
) -> list[AlterationOutcome]:
    """Have the controller decide, wherever it is. Raises KafkaError: it cannot be asked."""
    is_forwarded = context.listener_role != CONTROLLER
    if not is_forwarded or node.active_controller is not None:
        try:
            scan = PartitionScan()
            altered: tuple[AlteredConfigs, ...] = await node.controller.request_in_portions(
                lambda state: state.decide_alter_configs(requested, validate_only=validate_only, scan=scan),
                has_more=lambda replies: any(one.has_more for one in replies),
            )
        except KafkaError as error:
            if not is_forwarded or error.code != Code.NOT_CONTROLLER:
                raise
        else:
            await node.caught_up()
            return [AlterationOutcome(one.code, one.message) for one in altered]
    request, response = _as_message(requested, validate_only)
    answer = await send_to_controller(node, request, response, context, version=context.api_version)
    return [AlterationOutcome(Code(one.error_code), one.error_message) for one in answer.responses]


def _as_message(requested: tuple[ConfigsToAlter, ...], validate_only: bool) -> tuple[object, type[Any]]:
    """The request for the controller: either all of it replaces what is set, or all of it changes single keys."""
    if requested[0].replaces_all:
        from tidelog.wire.messages import api_33_alter_configs as replacing

        return replacing.AlterConfigsRequest(
            resources=[
                replacing.AlterConfigsResource(
                    resource_type=int(one.resource.type),
                    resource_name=one.resource.name,
                    configs=[replacing.AlterableConfig(change.name, change.value) for change in one.changes],
                )
                for one in requested
            ],
            validate_only=validate_only,
        ), replacing.AlterConfigsResponse
    from tidelog.wire.messages import api_44_incremental_alter_configs as incremental

    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=int(one.resource.type),
                resource_name=one.resource.name,
                configs=[
                    incremental.AlterableConfig(change.name, change.operation, change.value) for change in one.changes
                ],
            )
            for one in requested
        ],
        validate_only=validate_only,
    ), incremental.IncrementalAlterConfigsResponse


def _alter_loggers(
    node: ServerApi, one: Alteration, *, is_alone: bool, replaces_all: bool, validate_only: bool
) -> None:
    from tidelog.server.settings.loggers import alter_loggers

    if not is_alone:
        raise refusal(Code.INVALID_REQUEST, "the request names the loggers of this broker more than once")
    if replaces_all:
        raise refusal(Code.INVALID_REQUEST, "levels of loggers are changed one by one: use IncrementalAlterConfigs")
    if one.resource_name != str(node.config.node_id):
        raise refusal(
            Code.INVALID_REQUEST,
            f"the loggers of broker {one.resource_name!r} are its own to change; this is broker {node.config.node_id}",
        )
    alter_loggers(one.changes, validate_only=validate_only)
