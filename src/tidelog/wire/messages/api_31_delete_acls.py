"""DeleteAcls (key 31): take back the access rules that filters match (KIP-140, KIP-290).

Version 2 is flexible, 3 knows users as resources (KIP-373).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct


@struct
class DeleteAclsFilter:
    """Which rules are to go; see DescribeAcls."""

    resource_type_filter: int = field(int8, doc="Of the resource: 1 any.")
    resource_name_filter: str | None = field(string, nullable="0+", default=None, doc="Its name; None for any.")
    pattern_type_filter: int = field(int8, default=3, doc="1 any, 2 those about this name, 3 literal, 4 prefixed.")
    principal_filter: str | None = field(string, nullable="0+", default=None, doc="The principal; None for any.")
    host_filter: str | None = field(string, nullable="0+", default=None, doc="The host; None for any.")
    operation: int = field(int8, default=1, doc="The operation: 1 any.")
    permission_type: int = field(int8, default=1, doc="1 any, 2 deny, 3 allow.")


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Take back what any of the filters matches."""

    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter), doc="The filters.")


@struct(kw_only=True)
class DeleteAclsMatchingAcl:
    """A rule that was matched."""

    error_code: int = field(int16, default=0, doc="0 if it is gone.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it is not.")
    resource_type: int = field(int8, doc="Of the resource.")
    resource_name: str = field(string, doc="Its name, or the begin of names.")
    pattern_type: int = field(int8, doc="3 literal, 4 prefixed.")
    principal: str = field(string, doc="Of whom.")
    host: str = field(string, doc="From where.")
    operation: int = field(int8, doc="What.")
    permission_type: int = field(int8, doc="2 deny, 3 allow.")


@struct
class DeleteAclsFilterResult:
    """What one filter matched."""

    error_code: int = field(int16, default=0, doc="0 if it was tried.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it was not.")
    matching_acls: list[DeleteAclsMatchingAcl] = field(
        array(DeleteAclsMatchingAcl), default_factory=list, doc="The rules."
    )


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """One answer per filter, in their order."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult), doc="The filters.")
