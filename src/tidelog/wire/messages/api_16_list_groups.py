"""ListGroups (key 16): the groups that a broker coordinates.

Version 1 tells of throttling, 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, message, string, struct


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Ask every broker."""

    states_filter: list[str] = field(
        array(string), versions="4+", default_factory=list, doc='"Stable" and so on; empty for all.'
    )
    types_filter: list[str] = field(
        array(string), versions="5+", default_factory=list, doc='"classic" and so on; empty for all.'
    )


@struct(kw_only=True)
class ListedGroup:
    """A group."""

    group_id: str = field(string, doc="The group.")
    protocol_type: str = field(string, default="", doc='"consumer", or what else its members agreed on.')
    group_state: str = field(string, versions="4+", default="", ignorable=True, doc='"Stable" and so on.')
    group_type: str = field(string, versions="5+", default="", ignorable=True, doc='"classic" and so on.')


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups of this broker."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if these are all.")
    groups: list[ListedGroup] = field(array(ListedGroup), default_factory=list, doc="The groups.")
