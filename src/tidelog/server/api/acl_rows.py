"""Access rules and filters of them, as requests have them: numbers that stand for words."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.metadata.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.security.acl_authorizer import AclAuthorizer
from tidelog.security.authorizer import Authorizer
from tidelog.wire.messages.api_30_create_acls import AclCreation

E = TypeVar("E", bound=IntEnum)


class FilterRow(Protocol):
    """A filter of DescribeAcls, or of DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def check_is_on(authorizer: Authorizer) -> None:
    """Raises KafkaError: SECURITY_DISABLED: nobody would go by the rules."""
    if not isinstance(authorizer, AclAuthorizer):
        raise refusal(
            Code.SECURITY_DISABLED, "there is no authorizer, so there are no access rules: set authorizer.class.name"
        )


def acl_in(row: AclCreation) -> Acl | KafkaError:
    """The rule that is asked for, or why there is no such rule."""
    try:
        return Acl(
            _word(AclResourceType, row.resource_type, "type of a resource"),
            row.resource_name,
            _word(PatternType, row.resource_pattern_type, "type of a pattern"),
            row.principal,
            row.host,
            _word(AclOperation, row.operation, "operation"),
            _word(AclPermission, row.permission_type, "permission"),
        )
    except KafkaError as error:
        return error


def filter_in(row: FilterRow) -> AclFilter:
    """Raises KafkaError: INVALID_REQUEST: it names what is not known here, and so could match what is not meant."""
    return AclFilter(
        _word(AclResourceType, row.resource_type_filter, "type of a resource"),
        row.resource_name_filter,
        _word(PatternType, row.pattern_type_filter, "type of a pattern"),
        row.principal_filter,
        row.host_filter,
        _word(AclOperation, row.operation, "operation"),
        _word(AclPermission, row.permission_type, "permission"),
    )


def _word(words: type[E], number: int, what: str) -> E:
    try:
        word = words(number)
    except ValueError:
        word = words(0)
    if not word:
        raise refusal(Code.INVALID_REQUEST, f"{number} is no {what} that is known here")
    return word
