"""DescribeAcls (key 29): the access rules that a filter matches (KIP-140, KIP-290).

Version 2 is flexible, 3 knows users as resources (KIP-373).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """Tell the rules that match."""

    resource_type_filter: int = field(int8, doc="Of the resource: 1 any.")
    resource_name_filter: str | None = field(string, nullable="0+", default=None, doc="Its name; None for any.")
    pattern_type_filter: int = field(int8, default=3, doc="1 any, 2 those about this name, 3 literal, 4 prefixed.")
    principal_filter: str | None = field(string, nullable="0+", default=None, doc="The principal; None for any.")
    host_filter: str | None = field(string, nullable="0+", default=None, doc="The host; None for any.")
    operation: int = field(int8, default=1, doc="The operation: 1 any.")
    permission_type: int = field(int8, default=1, doc="1 any, 2 deny, 3 allow.")


@struct
class AclDescription:
    """What a rule says."""

    principal: str = field(string, doc="Of whom.")
    host: str = field(string, doc="From where.")
    operation: int = field(int8, doc="What.")
    permission_type: int = field(int8, doc="2 deny, 3 allow.")


@struct
class DescribeAclsResource:
    """The rules of one pattern."""

    resource_type: int = field(int8, doc="Of the resource.")
    resource_name: str = field(string, doc="Its name, or the begin of names.")
    pattern_type: int = field(int8, doc="3 literal, 4 prefixed.")
    acls: list[AclDescription] = field(array(AclDescription), doc="The rules.")


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The rules."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if they are told.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why they are not.")
    resources: list[DescribeAclsResource] = field(
        array(DescribeAclsResource), default_factory=list, doc="By what they name."
    )
