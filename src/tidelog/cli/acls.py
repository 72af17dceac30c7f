"""`tidelog acls`: who may do what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.command import (
    UsageError,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows
from tidelog.metadata.acls import CLUSTER_NAME, WILDCARD, AclOperation

if TYPE_CHECKING:
    from tidelog.client.admin.acl_descriptions import AclBinding, AclBindingFilter

_OPERATIONS = [one.name.lower() for one in AclOperation if one > AclOperation.ANY]
_NAMED = ("topic", "group", "transactional_id", "delegation_token", "user")
_RESOURCES = "--topic, --group, --transactional-id, --delegation-token, --user or --cluster"

PRODUCER = {"topic": ("write", "describe", "create"), "transactional_id": ("write", "describe")}
CONSUMER = {"topic": ("read", "describe"), "group": ("read",)}
"""What each of them does, as Kafka's `kafka-acls` has it."""

Resource = tuple[str, str]
"""Its type and its name."""


def _names(flag: str, metavar: str, what: str, *short: str) -> Any:
    return option(flag, *short, multiple=True, metavar=metavar, help=f"{what} May be repeated.")


def _topic() -> Any:
    return _names("--topic", "NAME", "A topic; * is every one.", "-t")


def _group() -> Any:
    return _names("--group", "NAME", "A consumer or share group; * is every one.", "-g")


def _transactional_id() -> Any:
    return _names("--transactional-id", "NAME", "A transactional id; * is every one.")


def _delegation_token() -> Any:
    return _names("--delegation-token", "ID", "A delegation token.")


def _user() -> Any:
    return _names("--user", "User:NAME", "A user whose tokens it is about.")


def _cluster() -> Any:
    return option("--cluster", is_flag=True, help="The cluster itself.")


def _principal(what: str) -> Any:
    return _names("--principal", "User:NAME", what)


def _host(what: str) -> Any:
    return _names("--host", "ADDRESS", what)


def _operation(what: str) -> Any:
    return option(
        "--operation",
        multiple=True,
        type=click.Choice(_OPERATIONS),
        metavar="OPERATION",
        help=f"{what}: {', '.join(_OPERATIONS)}. May be repeated.",
    )


def _prefixed(what: str) -> Any:
    return option("--prefixed", is_flag=True, help=what)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAcls:
    """List the access rules, or those about some resources or principals.

    With --match, all rules are listed that are about a resource of that name: of a begin of it and of every name too.

    Examples:

        tidelog acls list
        tidelog acls list --topic orders --match
        tidelog acls list --principal User:alice
    """

    topic: tuple[str, ...] = _topic()
    group: tuple[str, ...] = _group()
    transactional_id: tuple[str, ...] = _transactional_id()
    delegation_token: tuple[str, ...] = _delegation_token()
    user: tuple[str, ...] = _user()
    cluster: bool = _cluster()
    principal: tuple[str, ...] = _principal("Only rules about this principal.")
    match: bool = option("--match", is_flag=True, help="All that is about the resources, and not what names them only.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        from tidelog.client.admin.acl_descriptions import AclBindingFilter

        resources: list[Resource | None] = list(_resources(self))
        if self.match and not resources:
            raise UsageError(f"--match is about resources: name one by {_RESOURCES}")
        pattern = "match" if self.match else None
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            found: set[AclBinding] = set()
            for resource, principal in product(resources or [None], self.principal or (None,)):
                kind, name = resource or (None, None)
                wanted: Any = {"resource_type": kind, "pattern_type": pattern}
                found.update(admin.describe_acls(AclBindingFilter(resource_name=name, principal=principal, **wanted)))
        return _rows(sorted(found), is_filtered=bool(resources or self.principal))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowAcls:
    """Allow principals to do something with resources.

    --producer allows what a producer does with --topic and --transactional-id, --consumer what a consumer does with
    --topic and --group. What is allowed already is no error. A rule that denies counts before every one that allows.

    Examples:

        tidelog acls allow --principal User:alice --producer --topic orders
        tidelog acls allow --principal User:bob --consumer --topic orders --group billing
        tidelog acls allow --principal User:carol --operation describe --topic team- --prefixed
    """

    topic: tuple[str, ...] = _topic()
    group: tuple[str, ...] = _group()
    transactional_id: tuple[str, ...] = _transactional_id()
    delegation_token: tuple[str, ...] = _delegation_token()
    user: tuple[str, ...] = _user()
    cluster: bool = _cluster()
    prefixed: bool = _prefixed("All whose names begin so.")
    principal: tuple[str, ...] = _principal("Whom; User:* is everybody.")
    host: tuple[str, ...] = _host("Only from this address.")
    operation: tuple[str, ...] = _operation("What")
    producer: bool = option("--producer", is_flag=True, help="What a producer does.")
    consumer: bool = option("--consumer", is_flag=True, help="What a consumer does.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        roles = [PRODUCER] * self.producer + [CONSUMER] * self.consumer
        if roles and self.operation:
            raise UsageError("--producer and --consumer say what is allowed; leave --operation out")
        resources = list(_resources(self))
        done = [
            (kind, name, operation)
            for kind, name in resources
            for operation in self.operation or dict.fromkeys(one for role in roles for one in role.get(kind, ()))
        ]
        idle = sorted({kind for kind, _ in resources} - {kind for kind, _, _ in done})
        if idle and roles:
            flag, who = idle[0].replace("_", "-"), "a consumer" if self.consumer else "a producer"
            raise UsageError(f"--{flag}: {who} does nothing with it; say what is allowed by --operation")
        return _make(self, done, "allow", prefixed=self.prefixed, principals=self.principal, hosts=self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyAcls:
    """Deny principals to do something with resources, whatever other rules allow.

    Example:

        tidelog acls deny --principal User:mallory --operation all --topic '*'
    """

    topic: tuple[str, ...] = _topic()
    group: tuple[str, ...] = _group()
    transactional_id: tuple[str, ...] = _transactional_id()
    delegation_token: tuple[str, ...] = _delegation_token()
    user: tuple[str, ...] = _user()
    cluster: bool = _cluster()
    prefixed: bool = _prefixed("All whose names begin so.")
    principal: tuple[str, ...] = _principal("Whom; User:* is everybody.")
    host: tuple[str, ...] = _host("Only from this address.")
    operation: tuple[str, ...] = _operation("What")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        done = [(kind, name, operation) for kind, name in _resources(self) for operation in self.operation]
        return _make(self, done, "deny", prefixed=self.prefixed, principals=self.principal, hosts=self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAcls:
    """Take access rules back: all that match what is given. Prints those that it removed.

    Examples:

        tidelog acls remove --topic orders --principal User:alice
        tidelog acls remove --principal User:alice --all
    """

    topic: tuple[str, ...] = _topic()
    group: tuple[str, ...] = _group()
    transactional_id: tuple[str, ...] = _transactional_id()
    delegation_token: tuple[str, ...] = _delegation_token()
    user: tuple[str, ...] = _user()
    cluster: bool = _cluster()
    prefixed: bool = _prefixed("Rules about all names that begin so, and not about the names themselves.")
    principal: tuple[str, ...] = _principal("Only rules about this principal.")
    host: tuple[str, ...] = _host("Only rules about this address.")
    operation: tuple[str, ...] = _operation("Only rules about this")
    permission: str | None = option(
        "--permission", type=click.Choice(["allow", "deny"]), default=None, help="Only rules that say this."
    )
    of_all: bool = option("--all", is_flag=True, help="Of all resources; else they have to be named.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        from tidelog.client.admin.acl_descriptions import AclBindingFilter

        resources: list[Resource | None] = list(_resources(self))
        if bool(resources) == self.of_all:
            raise UsageError(f"which rules are to go? Name resources by {_RESOURCES}, or give --all")
        filters: list[AclBindingFilter] = []
        pattern = None if self.of_all else "prefixed" if self.prefixed else "literal"
        for resource, principal, host, operation in product(
            resources or [None], self.principal or (None,), self.host or (None,), self.operation or (None,)
        ):
            kind, name = resource or (None, None)
            words: Any = {
                "resource_type": kind,
                "operation": operation,
                "permission": self.permission,
                "pattern_type": pattern,
            }
            filters.append(AclBindingFilter(resource_name=name, principal=principal, host=host, **words))
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            removed = admin.delete_acls(filters)
        return Rows([{**_row(one), "removed": True} for one in removed], nothing="no access rule matched")


def _make(
    command: AllowAcls | DenyAcls,
    done: Sequence[tuple[str, str, str]],
    permission: str,
    *,
    prefixed: bool,
    principals: Sequence[str],
    hosts: Sequence[str],
) -> Rows:
    from tidelog.client.admin.acl_descriptions import AclBinding

    if not principals:
        raise UsageError("--principal is missing: whom is it about? User:NAME, or User:* for everybody")
    if not done:
        roles = "--producer, --consumer or " if permission == "allow" else ""
        raise UsageError(
            f"nothing is said to be done: name resources by {_RESOURCES}, and what with them by {roles}--operation"
        )
    bindings: list[AclBinding] = []
    for (kind, name, operation), principal, host in product(done, principals, hosts or (WILDCARD,)):
        pattern = "prefixed" if prefixed and kind != "cluster" else "literal"
        words: Any = {"operation": operation, "permission": permission, "pattern_type": pattern}
        resource: Any = kind
        bindings.append(AclBinding(resource, name, principal, host=host, **words))
    with open_admin(command.bootstrap, command.timeout, command.log_level) as admin:
        admin.create_acls(bindings)
    return _rows(sorted(set(bindings)))


def _resources(about: ListAcls | AllowAcls | DenyAcls | RemoveAcls) -> Iterator[Resource]:
    for kind in _NAMED:
        yield from ((kind, name) for name in getattr(about, kind))
    if about.cluster:
        yield "cluster", CLUSTER_NAME


def _rows(bindings: Sequence[AclBinding], *, is_filtered: bool = False) -> Rows:
    return Rows([_row(one) for one in bindings], nothing="no access rule matches" if is_filtered else "no access rules")


def _row(one: AclBinding) -> Row:
    return {
        "resource": one.resource_type,
        "name": one.resource_name,
        "pattern": one.pattern_type,
        "principal": one.principal,
        "host": one.host,
        "operation": one.operation,
        "permission": one.permission,
    }
