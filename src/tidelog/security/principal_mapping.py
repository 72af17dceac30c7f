"""Who shows a certificate: its distinguished name, or what rules make of that (KIP-371).

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT      CN=Billing,OU=ServiceUsers,O=us  →  billing

Kafka: `SslPrincipalMapper`, `DefaultKafkaPrincipalBuilder`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.errors import ConfigError, SslAuthenticationError

DEFAULT = "DEFAULT"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\\(.)|\$(\d)")

_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""OpenSSL's names of the attributes that RFC 2253 has words for, to these."""
_OIDS = {
    "emailAddress": "1.2.840.113549.1.9.1",
    "serialNumber": "2.5.4.5",
    "title": "2.5.4.12",
    "givenName": "2.5.4.42",
    "surname": "2.5.4.4",
    "dnQualifier": "2.5.4.46",
}
_SPECIAL = re.compile(r'([,+"\\<>;])')

Subject = Sequence[Sequence[tuple[str, str]]]
"""Of a certificate, as `ssl` tells it: attributes and values, the most general first."""


class MappingRule(NamedTuple):
    """What becomes of a name that matches.

    Attributes:
        pattern: that the whole name has to match; None: any name stays as it is.
        replacement: with $1 to $9 for what the groups of the pattern matched.
        case: `L` for small letters, `U` for capitals, or nothing.
    """

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What becomes of a name; None if this rule says nothing of it."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None

        def expand(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            number = int(reference[2])
            return reference[0] if number > found.re.groups else found[number] or ""

        mapped = _GROUP.sub(expand, self.replacement)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Rules with commas between, the first that matches counts.

    Raises:
        ConfigError: it is no list of rules.
    """
    rules: list[MappingRule] = []
    position = 0
    while position < len(text) or not rules:
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigError(
                f"{text[position:][:80]!r} is no rule: DEFAULT, or RULE:PATTERN/REPLACEMENT/ with L or U behind it for "
                "small or capital letters"
            )
        if found[1]:
            rules.append(MappingRule(None))
        else:
            try:
                pattern = re.compile(found[2].replace("\\/", "/"))
            except re.error as error:
                raise ConfigError(f"the pattern {found[2]!r} is no regular expression: {error}") from None
            rules.append(MappingRule(pattern, found[3], found[4]))
        position = found.end()
    return tuple(rules)


def distinguished_name(subject: Subject) -> str:
    """The name of a certificate as Java writes it (RFC 2253): the most special part first.

    Java writes an attribute that RFC 2253 has no word for by its number, and its value in hexadecimal; here the value
    stays a text.
    """
    return ",".join("+".join(f"{_attribute(kind)}={_escaped(value)}" for kind, value in part) for part in subject[::-1])


def name_of(rules: Sequence[MappingRule], subject: Subject) -> str:
    """Who shows a certificate.

    Raises:
        SslAuthenticationError: no rule says who that is.
    """
    name = distinguished_name(subject)
    for rule in rules:
        mapped = rule.apply(name)
        if mapped:
            return mapped
    raise SslAuthenticationError(f"ssl.principal.mapping.rules say nothing of the certificate of {name!r}")


def _attribute(kind: str) -> str:
    return _KEYWORDS.get(kind) or _OIDS.get(kind, kind)


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(value) > 1 else escaped
