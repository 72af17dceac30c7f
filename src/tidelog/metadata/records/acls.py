"""Records of access rules."""

from __future__ import annotations

from uuid import UUID

from tidelog.metadata.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.wire.schema import field, int8, message, string, uuid


@message(api_key=18, versions="0", flexible="0+", kind="record")
class AccessControlEntryRecord:
    """An access rule came."""

    id: UUID = field(uuid, doc="Whereby it goes again.")
    resource_type: int = field(int8, doc="2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user.")
    resource_name: str = field(string, doc="A name, the begin of names, or * for every name.")
    pattern_type: int = field(int8, doc="3 literal, 4 prefixed.")
    principal: str = field(string, doc="Whom it is about: User:NAME, or User:* for everybody.")
    host: str = field(string, doc="Where they connect from: an address, or * for any.")
    operation: int = field(int8, doc="What they do.")
    permission_type: int = field(int8, doc="2 deny, 3 allow.")


@message(api_key=19, versions="0", flexible="0+", kind="record")
class RemoveAccessControlEntryRecord:
    """An access rule went."""

    id: UUID = field(uuid, doc="Of the record that brought it.")


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The rule that a record brings."""
    return Acl(
        AclResourceType(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        AclOperation(record.operation),
        AclPermission(record.permission_type),
    )


def record_of(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    """The inverse of `acl_of`."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=int(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=int(acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
