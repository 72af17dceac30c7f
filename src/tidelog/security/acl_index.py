"""Access rules as checks find them: by the type of the resource and the principal, then by pattern, then by host.

A check is a few look-ups, however many rules there are: one for the name, one for `*`, and one for each length that
a prefix of this principal has. An index never changes; the next one shares all that is the same.

Kafka: `StandardAuthorizerData`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TypeVar

from tidelog.metadata.acls import WILDCARD, Acl, AclOperation, AclPermission, AclResourceType, PatternType

_K = TypeVar("_K")

EVERYBODY = "User:*"
"""As whom a rule names all principals."""

_IMPLYING: dict[AclOperation, frozenset[AclOperation]] = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)),
}
"""Which allowed operations allow others as well. A denied one denies itself alone."""


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in {*operations, AclOperation.ALL})


_DENYING = [_bits((operation,)) for operation in AclOperation]
_ALLOWING = [_bits(_IMPLYING.get(operation, (operation,))) for operation in AclOperation]

Masks = tuple[int, int]
"""The operations that are denied, and those that are allowed: a bit for each, by its number."""
_NOTHING: Masks = (0, 0)
Hosts = dict[str, Masks]
Kind = tuple[AclResourceType, str]
"""The type of a resource, and whom rules are about."""


class _Patterns:
    """Rules of one type and principal, by what they name."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self, literal: dict[str, Hosts], prefixed: dict[str, Hosts], lengths: dict[int, int]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.lengths = lengths  # of prefixes, with how many there are of each

    def copy(self) -> _Patterns:
        return _Patterns(dict(self.literal), dict(self.prefixed), dict(self.lengths))

    def by(self, pattern_type: PatternType) -> dict[str, Hosts]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def matching(self, name: str) -> Iterator[Hosts]:
        """What the patterns say that match a name."""
        hosts = self.literal.get(name)
        if hosts is not None:
            yield hosts
        if name != WILDCARD:
            hosts = self.literal.get(WILDCARD)
            if hosts is not None:
                yield hosts
        for prefix in _prefixes(self.prefixed, self.lengths, name):
            yield self.prefixed[prefix]

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


class _Named:
    """How many rules are about each name and prefix, whomever they name."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self, literal: dict[str, int], prefixed: dict[str, int], lengths: dict[int, int]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.lengths = lengths

    def copy(self) -> _Named:
        return _Named(dict(self.literal), dict(self.prefixed), dict(self.lengths))

    def has(self, name: str) -> bool:
        return name in self.literal or WILDCARD in self.literal or any(_prefixes(self.prefixed, self.lengths, name))


def _prefixes(prefixed: Container[str], lengths: Iterable[int], name: str) -> Iterator[str]:
    """Those that a name begins with."""
    size = len(name)
    for length in lengths:
        if length <= size and (prefix := name[:length]) in prefixed:
            yield prefix


def _count(counts: dict[_K, int], key: _K, change: int) -> int:
    """Count one more, or one less. Returns how many there are now."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count


class AclIndex:
    """The rules of one image, to be asked."""

    __slots__ = ("_counts", "_named", "_patterns")

    def __init__(
        self,
        patterns: dict[Kind, _Patterns] | None = None,
        named: dict[AclResourceType, _Named] | None = None,
        counts: dict[Acl, int] | None = None,
    ) -> None:
        self._patterns = patterns if patterns is not None else {}
        self._named = named if named is not None else {}
        self._counts = counts if counts is not None else {}  # two ids may hold the same rule

    def says(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool | None:
        """Whether the rules allow it. A rule that denies comes first. None: no rule says anything of it."""
        deny = allow = 0
        for who in (principal, EVERYBODY):
            patterns = self._patterns.get((resource_type, who))
            if patterns is None:
                continue
            for hosts in patterns.matching(name):
                for where in (host, WILDCARD):
                    masks = hosts.get(where)
                    if masks is not None:
                        deny |= masks[0]
                        allow |= masks[1]
        if deny & _DENYING[operation]:
            return False
        return True if allow & _ALLOWING[operation] else None

    def has_rules_of(self, resource_type: AclResourceType, name: str) -> bool:
        """Whether any rule is about this resource, whomever it names."""
        named = self._named.get(resource_type)
        return named is not None and named.has(name)

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether a rule allows it on some resource, of whatever name, that no rule denies as a whole.

        Kafka: `Authorizer.authorizeByResourceType`. As there, no operation implies another.
        """
        bits = _DENYING[operation]
        found = [
            patterns
            for who in (principal, EVERYBODY)
            if (patterns := self._patterns.get((resource_type, who))) is not None
        ]
        hosts_asked = (host, WILDCARD)

        def names(is_allowed: bool, pattern_type: PatternType) -> Iterator[str]:
            for patterns in found:
                for name, hosts in patterns.by(pattern_type).items():
                    if any(hosts.get(where, _NOTHING)[is_allowed] & bits for where in hosts_asked):
                        yield name

        denied, denied_prefixes = set(names(False, PatternType.LITERAL)), set(names(False, PatternType.PREFIXED))
        if WILDCARD in denied:
            return False
        lengths = {len(prefix) for prefix in denied_prefixes}
        for name in names(True, PatternType.LITERAL):
            if name == WILDCARD:
                return True
            if name not in denied and not any(True for _ in _prefixes(denied_prefixes, lengths, name)):
                return True
        return any(
            not any(True for _ in _prefixes(denied_prefixes, lengths, name))
            for name in names(True, PatternType.PREFIXED)
        )

    def next(self) -> AclIndexBuilder:
        """For an index that differs in some rules."""
        return AclIndexBuilder(self._patterns, self._named, self._counts)


class AclIndexBuilder:
    """Makes the next index. It copies what it changes, once."""

    def __init__(
        self, patterns: dict[Kind, _Patterns], named: dict[AclResourceType, _Named], counts: dict[Acl, int]
    ) -> None:
        self._patterns = dict(patterns)
        self._named = dict(named)
        self._counts = dict(counts)
        self._own: set[object] = set()

    def add(self, acl: Acl) -> None:
        """A rule came."""
        if _count(self._counts, acl, +1) > 1:
            return
        deny, allow = self._hosts_of(acl).get(acl.host, _NOTHING)
        bits = _masks(acl)
        self._hosts_of(acl)[acl.host] = deny | bits[0], allow | bits[1]
        self._name(acl, +1)

    def remove(self, acl: Acl) -> None:
        """A rule went."""
        if _count(self._counts, acl, -1):
            return
        hosts, bits = self._hosts_of(acl), _masks(acl)
        deny, allow = hosts.pop(acl.host)
        left = deny & ~bits[0], allow & ~bits[1]
        if left != _NOTHING:
            hosts[acl.host] = left
        if not hosts:
            patterns = self._patterns_of(acl)
            del patterns.by(acl.pattern_type)[acl.resource_name]
            if acl.pattern_type is PatternType.PREFIXED:
                _count(patterns.lengths, len(acl.resource_name), -1)
            if not patterns:
                del self._patterns[acl.resource_type, acl.principal]
        self._name(acl, -1)

    def build(self) -> AclIndex:
        """The index. The builder is spent."""
        return AclIndex(self._patterns, self._named, self._counts)

    def _patterns_of(self, acl: Acl) -> _Patterns:
        kind = acl.resource_type, acl.principal
        patterns = self._patterns.get(kind)
        if patterns is None:
            patterns = self._patterns[kind] = _Patterns({}, {}, {})
        elif kind not in self._own:
            patterns = self._patterns[kind] = patterns.copy()
        self._own.add(kind)
        return patterns

    def _hosts_of(self, acl: Acl) -> Hosts:
        patterns = self._patterns_of(acl)
        of_type, name = patterns.by(acl.pattern_type), acl.resource_name
        pattern = acl.resource_type, acl.principal, acl.pattern_type, name
        hosts = of_type.get(name)
        if hosts is None:
            hosts = of_type[name] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                _count(patterns.lengths, len(name), +1)
        elif pattern not in self._own:
            hosts = of_type[name] = dict(hosts)
        self._own.add(pattern)
        return hosts

    def _name(self, acl: Acl, change: int) -> None:
        kind = acl.resource_type
        named = self._named.get(kind)
        if named is None:
            named = self._named[kind] = _Named({}, {}, {})
        elif kind not in self._own:
            named = self._named[kind] = named.copy()
        self._own.add(kind)
        if acl.pattern_type is PatternType.PREFIXED:
            count = _count(named.prefixed, acl.resource_name, change)
            if (change, count) in ((+1, 1), (-1, 0)):
                _count(named.lengths, len(acl.resource_name), change)
        else:
            _count(named.literal, acl.resource_name, change)


def _masks(acl: Acl) -> Masks:
    bit = 1 << acl.operation
    return (bit, 0) if acl.permission is AclPermission.DENY else (0, bit)
