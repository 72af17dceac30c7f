"""CreateAcls (key 30): make access rules (KIP-140, KIP-290).

Version 2 is flexible, 3 knows users as resources (KIP-373).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct


@struct
class AclCreation:
    """A rule."""

    resource_type: int = field(int8, doc="2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user.")
    resource_name: str = field(string, doc="A name, the begin of names, or *.")
    resource_pattern_type: int = field(int8, doc="3 literal, 4 prefixed.")
    principal: str = field(string, doc="Of whom: User:NAME, or User:*.")
    host: str = field(string, doc="From where: an address, or *.")
    operation: int = field(int8, doc="What: 2 all.")
    permission_type: int = field(int8, doc="2 deny, 3 allow.")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """Make rules, each on its own: some may be refused."""

    creations: list[AclCreation] = field(array(AclCreation), doc="The rules.")


@struct
class AclCreationResult:
    """What became of one rule."""

    error_code: int = field(int16, default=0, doc="0 if it is there.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it is not.")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """One answer per rule, in their order."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    results: list[AclCreationResult] = field(array(AclCreationResult), doc="The rules.")
