"""UpdateFeatures 0-2: set the levels of features, all that are named or none of them (KIP-584).

Behaviour: a level goes up only as far as every registered broker and controller can work at it, and down only where
that is asked for. Versions 0 and 1 answer for each feature, version 2 for all at once: with the first refusal that is
about a feature itself, and the text of them all. Where a release is asked for (`metadata.version` and what comes with
it), a feature of it that is not served stays off; the answer says so in its text, without an error, and so does the
log. `kraft.version` 1 puts the voters into the metadata log, before the other levels change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.controller import ControllerState, FeatureToUpdate, UpdatedFeature, UpgradeType
from tidelog.journal import LongDecision
from tidelog.metadata.features import KRAFT_VERSION
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi

logger = logging.getLogger("tidelog.server.features")

UPGRADE_TYPES_FROM_VERSION = 1
ONE_ANSWER_FROM_VERSION = 2


async def handle(node: ServerApi, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    updates = [_update(one, context.api_version) for one in request.feature_updates]
    try:
        controller = node.controller
        of_quorum = replace(
            node.controller_registrations.of(node.quorum),
            kraft_version=int(node.quorum.is_reconfigurable),
            why_not_in_log=node.voter_requests.why_not_in_log(),
        )

        def decide(*, validate_only: bool) -> Callable[[ControllerState], LongDecision[tuple[UpdatedFeature, ...]]]:
            return lambda state: state.decide_update_features(updates, validate_only=validate_only, of_quorum=of_quorum)

        puts_voters_into_log = any(_puts_voters_into_log(one) for one in updates) and not of_quorum.kraft_version
        updated = await controller.request_whole(decide(validate_only=request.validate_only or puts_voters_into_log))
        if puts_voters_into_log and not request.validate_only and not any(one.code for one in updated):
            # It is no record of the controller's. All has been found right; what goes wrong now leaves the rest undone.
            await node.voter_requests.put_into_log()
            updated = await controller.request_whole(decide(validate_only=False))
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    if not request.validate_only:
        _log_remarks(updated)
    if context.api_version < ONE_ANSWER_FROM_VERSION:
        return UpdateFeaturesResponse(
            results=[UpdatableFeatureResult(one.name, one.code, one.message) for one in updated]
        )
    return _for_all(updated)


def refused(request: UpdateFeaturesRequest, context: RequestContext, error: KafkaError) -> UpdateFeaturesResponse:
    """The answer where nothing could be decided."""
    return UpdateFeaturesResponse(error_code=code_of(error, "UpdateFeatures"), error_message=str(error))


def _puts_voters_into_log(update: FeatureToUpdate) -> bool:
    return update.name == KRAFT_VERSION and update.level > 0 and update.upgrade_type == UpgradeType.UPGRADE


def _log_remarks(updated: Sequence[UpdatedFeature]) -> None:
    for one in updated:
        if one.code == Code.NONE and one.message is not None:
            logger.warning("features: %s", one.message)


def _for_all(updated: Sequence[UpdatedFeature]) -> UpdateFeaturesResponse:
    not_done = [one for one in updated if one.code != Code.NONE]
    reasons = [one for one in not_done if one.code != Code.FEATURE_UPDATE_FAILED]
    if not not_done:
        return UpdateFeaturesResponse(error_message="; ".join(one.message for one in updated if one.message) or None)
    return UpdateFeaturesResponse(
        error_code=(reasons or not_done)[0].code,
        error_message="; ".join(one.message or one.name for one in reasons or not_done),
    )


def _update(requested: FeatureUpdateKey, api_version: int) -> FeatureToUpdate:
    if api_version >= UPGRADE_TYPES_FROM_VERSION:
        return FeatureToUpdate(requested.feature, requested.max_version_level, requested.upgrade_type)
    kind = UpgradeType.SAFE_DOWNGRADE if requested.allow_downgrade else UpgradeType.UPGRADE
    return FeatureToUpdate(requested.feature, requested.max_version_level, kind)
