"""DeleteGroups (key 42): forget empty groups with their offsets (KIP-229). Version 2 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, message, string, struct


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Ask the coordinator of the groups."""

    groups_names: list[str] = field(array(string), default_factory=list, doc="The groups.")


@struct
class DeletableGroupResult:
    """What became of one."""

    group_id: str = field(string, doc="The group.")
    error_code: int = field(int16, default=0, doc="0 if it is gone.")


@message(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """What became of them."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult), default_factory=list, doc="One for each.")
