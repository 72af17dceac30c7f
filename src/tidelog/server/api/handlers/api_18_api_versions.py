"""ApiVersions 0-4: what this listener serves. Asked in a version it does not know, it answers in version 0.

Behaviour: versions 3+ must name the client's software, as Kafka demands. The finalized features are the committed ones.
APIs of our own are told to our own clients and nodes alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from tidelog.server.api.apis import advertised
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi

OWN_SOFTWARE = "tidelog"
"""As our clients and nodes call themselves."""
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(node: MetadataApi, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.header.api_version >= 3 and not (
        SOFTWARE.fullmatch(request.client_software_name) and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST)
    image, is_ours = node.image, request.client_software_name == OWN_SOFTWARE
    return ApiVersionsResponse(
        api_keys=_api_keys(context.listener_role, with_own=is_ours),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            if lowest > 0 or context.header.api_version >= 4
        ],
        finalized_features_epoch=-1 if image.last_offset is None else image.last_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in {**image.features, KRAFT_VERSION: node.kraft_version}.items()
            if level
        ],
    )


def unsupported_version(listener_role: str) -> ApiVersionsResponse:
    """For a request of a version from the future: the client picks one of ours and asks again."""
    return ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=_api_keys(listener_role))


def _api_keys(listener_role: str, *, with_own: bool = False) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in advertised(listener_role, with_own=with_own)
    ]
