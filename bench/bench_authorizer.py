"""How long an authorizer with 10,000 access rules takes for one check: of the same resource again, and of others.

The rules are spread as large clusters have them: some for each of many users, by name and by prefix, and everything
for one user whose rules alone are thousands.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from harness import LONG, figure, median

from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.principals import USER, Principal, Requester
from tidelog.metadata.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tidelog.security.acl_authorizer import AclAuthorizer, AuthorizerSettings
from tidelog.security.acl_index import AclIndex

RULES = 10_000
USERS = 1_000
CHECKS = 200_000 if LONG else 50_000
ROUNDS = 9
AGAIN_US_MAX, OTHER_US_MAX = 5.0, 50.0
HOST = "10.1.2.3"


def rules_of_many() -> Iterator[Acl]:
    """Five by name and five by prefix for each of 1,000 users; a prefix is 12 to 21 characters long."""
    for user, number in itertools.product(range(USERS), range(RULES // USERS // 2)):
        yield rule(f"user-{user}", f"topic-{user}-{number}", PatternType.LITERAL)
        yield rule(f"user-{user}", f"team-{user}-{number}-".ljust(12 + (user + number) % 10, "-"), PatternType.PREFIXED)


def rules_of_one() -> Iterator[Acl]:
    """All for one user: half of them by name, half by prefixes of 4 to 43 characters."""
    for number in range(RULES // 2):
        yield rule("user-1", f"topic-1-{number}", PatternType.LITERAL)
        yield rule("user-1", f"{number:04}" + "-" * (number % 40), PatternType.PREFIXED)


def rule(user: str, name: str, pattern_type: PatternType) -> Acl:
    return Acl(AclResourceType.TOPIC, name, pattern_type, f"User:{user}", "*", AclOperation.READ, AclPermission.ALLOW)


def microseconds(authorizer: AclAuthorizer, names: list[str]) -> float:
    """Of one check, of CPU time: the median of the rounds."""
    requester = Requester(Principal(USER, "user-1"), HOST)
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for name in names:
            authorizer.authorize(requester, AclOperation.READ, AclResourceType.TOPIC, name)
        found.append((time.process_time() - began) * 1e6 / len(names))
    return median(found)


def main() -> None:
    settings = AuthorizerSettings(STANDARD_AUTHORIZER, frozenset(), allows_without_rules=False)
    for called, rules in (("1,000 users", rules_of_many()), ("one user", rules_of_one())):
        authorizer = AclAuthorizer(settings)
        builder = AclIndex().next()
        began = time.process_time()
        for one in rules:
            builder.add(one)
        authorizer.index = builder.build()
        seconds = time.process_time() - began
        name = f"authorizer, {RULES:,} rules of {called}"
        figure(f"{name}: the index", seconds * 1e3, "ms", note="made anew, of all of them")
        for case, names, at_most in (
            ("the same topic again", ["topic-1-1"] * CHECKS, AGAIN_US_MAX),
            ("topics that rules name", [f"topic-1-{number % 5}" for number in range(CHECKS)], OTHER_US_MAX),
            ("topics that no rule names", [f"unknown-{number:035}" for number in range(CHECKS)], OTHER_US_MAX),
        ):
            figure(f"{name}, {case}", microseconds(authorizer, names), "µs/check", at_most=at_most)


if __name__ == "__main__":
    main()
