"""What access rules allow: held against a plain reading of Kafka's rules, over whatever rules come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.errors import Code, ConfigError, KafkaError
from tidelog.base.principals import Principal, Requester
from tidelog.metadata.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.security.acl_authorizer import AclAuthorizer, AuthorizerSettings, authorizer_of
from tidelog.security.acl_index import AclIndex
from tidelog.security.authorizer import AllowEverything

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, WRITE, DESCRIBE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER
IMPLIED = {
    AclOperation.DESCRIBE: {READ, WRITE, AclOperation.DELETE, ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}

ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["*", "a", "ab", "abc", "b"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from(
        [READ, WRITE, DESCRIBE, AclOperation.ALL, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS]
    ),
    st.sampled_from([AclPermission.DENY, AclPermission.ALLOW]),
)
OPERATIONS = st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS])


def is_about(acl: Acl, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


Asked = tuple[str, str, AclOperation, AclResourceType, str]
"""Principal, host, operation, type and name."""


def plainly(acls: list[Acl], asked: Asked) -> bool | None:
    """As the documentation of Kafka's authorizer says it."""
    who, host, operation, kind, name = asked
    about = [
        one
        for one in acls
        if one.resource_type is kind
        and is_about(one, name)
        and one.principal in (who, "User:*")
        and one.host in (host, "*")
    ]
    if any(one.permission is AclPermission.DENY and one.operation in (operation, AclOperation.ALL) for one in about):
        return False
    allowing = {operation, AclOperation.ALL} | IMPLIED.get(operation, set())
    return True if any(one.permission is AclPermission.ALLOW and one.operation in allowing for one in about) else None


@given(
    st.lists(st.tuples(st.booleans(), ACLS), max_size=25),
    st.lists(
        st.tuples(
            st.sampled_from(["User:alice", "User:carol"]),
            st.sampled_from(["10.0.0.1", "10.0.0.2"]),
            OPERATIONS,
            st.sampled_from([TOPIC, GROUP]),
            st.sampled_from(["a", "abcd", "b", "c", "*"]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 5),
)
def test_it_says_what_a_plain_reading_of_all_rules_says(
    changes: list[tuple[bool, Acl]],
    asked: list[Asked],
    at_once: int,
) -> None:
    index, acls, earlier = AclIndex(), list[Acl](), list[tuple[AclIndex, list[Acl]]]()
    for start in range(0, len(changes), at_once):
        builder = index.next()
        for comes, acl in changes[start : start + at_once]:
            if comes:
                builder.add(acl)
                acls.append(acl)
            elif acl in acls:
                builder.remove(acl)
                acls.remove(acl)
        index = builder.build()
        earlier.append((index, list(acls)))
    for known, of_then in earlier:  # an index never changes
        for one in asked:
            assert known.says(*one) == plainly(of_then, one)
            kind, name = one[3:]
            about = [acl for acl in of_then if acl.resource_type is kind and is_about(acl, name)]
            assert known.has_rules_of(kind, name) == bool(about)


def anyhow(acls: list[Acl], who: str, host: str, operation: AclOperation, kind: AclResourceType) -> bool:
    about = [
        one
        for one in acls
        if one.resource_type is kind
        and one.principal in (who, "User:*")
        and one.host in (host, "*")
        and one.operation in (operation, AclOperation.ALL)
    ]
    denied = [one for one in about if one.permission is AclPermission.DENY]
    literal = {one.resource_name for one in denied if one.pattern_type is PatternType.LITERAL}
    prefixes = {one.resource_name for one in denied if one.pattern_type is PatternType.PREFIXED}
    if "*" in literal:
        return False
    for one in about:
        if one.permission is AclPermission.ALLOW:
            is_literal = one.pattern_type is PatternType.LITERAL
            if is_literal and one.resource_name == "*":
                return True
            if not (is_literal and one.resource_name in literal) and not one.resource_name.startswith(tuple(prefixes)):
                return True
    return False


@given(st.lists(ACLS, max_size=8), OPERATIONS)
def test_any_resource_will_do(acls: list[Acl], operation: AclOperation) -> None:
    builder = AclIndex().next()
    for acl in acls:
        builder.add(acl)
    index = builder.build()
    expected = anyhow(acls, "User:alice", "10.0.0.1", operation, TOPIC)
    assert index.allows_any("User:alice", "10.0.0.1", operation, TOPIC) == expected


ALICE = Requester(Principal("User", "alice"), "10.0.0.1")
ROOT = Requester(Principal("User", "root"), "10.0.0.1")


def authorizer(**settings: str) -> AclAuthorizer:
    given = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root; User:CN=node,O=us"}
    found = authorizer_of(given | {name.replace("_", "."): value for name, value in settings.items()})
    assert isinstance(found, AclAuthorizer)
    return found


def test_super_users_alone_pass_before_the_rules_are_known() -> None:
    rules = authorizer()
    assert rules.authorize(ROOT, WRITE, TOPIC, "a")
    assert rules.authorize_any(ROOT, WRITE, TOPIC)
    with pytest.raises(KafkaError, match="the access rules are not loaded yet") as error:
        rules.authorize(ALICE, WRITE, TOPIC, "a")
    assert error.value.code == Code.NOT_CONTROLLER
    with pytest.raises(KafkaError, match="the access rules are not loaded yet"):
        rules.authorize_any(ALICE, WRITE, TOPIC)
    rules.index = AclIndex()
    assert not rules.authorize(ALICE, WRITE, TOPIC, "a")
    assert not rules.authorize_any(ALICE, WRITE, TOPIC)


def test_where_no_rule_is_about_a_resource_everybody_may_be_allowed_everything() -> None:
    rules = authorizer(allow_everyone_if_no_acl_found="true")
    builder = AclIndex().next()
    builder.add(Acl(TOPIC, "pay", PatternType.PREFIXED, "User:bob", "*", READ, AclPermission.ALLOW))
    rules.index = builder.build()
    assert rules.authorize(ALICE, WRITE, TOPIC, "a")
    assert not rules.authorize(ALICE, READ, TOPIC, "payments"), "a rule is about it, of somebody else"


def test_settings_without_an_authorizer_are_an_error() -> None:
    assert isinstance(authorizer_of({}), AllowEverything)
    with pytest.raises(ConfigError, match=r"super\.users: there is no authorizer that would go by it"):
        AuthorizerSettings.of({"super.users": "User:a"})
    with pytest.raises(ConfigError, match=r"super\.users: 'root' is no principal.*parted by semicolons"):
        authorizer(super_users="root")
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        authorizer_of({"authorizer.class.name": "a.b.Authorizer"})
