"""Names of certificates, and what rules make of them. Kafka: `SslPrincipalMapperTest`."""

from __future__ import annotations

import pytest

from tidelog.base.errors import ConfigError, SslAuthenticationError
from tidelog.security.principal_mapping import distinguished_name, name_of, parse_mapping_rules

SERVICE = (
    (("countryName", "US"),),
    (("organizationName", "us"),),
    (("organizationalUnitName", "ServiceUsers"),),
    (("commonName", "Billing"),),
)
ADMIN = ((("domainComponent", "com"),), (("organizationalUnitName", "Admins"),), (("commonName", "Root, the"),))


def test_names_are_written_as_java_does() -> None:
    assert distinguished_name(SERVICE) == "CN=Billing,OU=ServiceUsers,O=us,C=US"
    assert distinguished_name(ADMIN) == r"CN=Root\, the,OU=Admins,DC=com"
    assert distinguished_name((((("commonName"), "a"), ("userId", "7")),)) == "CN=a+UID=7"
    assert distinguished_name((((("commonName"), "#a "),),)) == r"CN=\#a\ "


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Billing,OU=ServiceUsers,O=us,C=US"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Billing"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT", "billing"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "BILLING@SERVICEUSERS"),
        (r"RULE:^CN=(.*?),OU=Admins.*$/$1/,RULE:^.*O=(\w+).*$/of $1/", "of us"),
        (r"RULE:^CN=(.*?),.*$/$1\/$9/", "Billing/$9"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, name: str) -> None:
    assert name_of(parse_mapping_rules(rules), SERVICE) == name


def test_whom_no_rule_names_is_refused() -> None:
    with pytest.raises(SslAuthenticationError, match="say nothing of the certificate of 'CN=Root"):
        name_of(parse_mapping_rules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L"), ADMIN)


@pytest.mark.parametrize(
    "rules",
    ["", "default", "RULE:^CN=(.*?)$", "RULE:^CN=(.*?)$/$1", "DEFAULT,RULE:(/a/", "RULE:a/b/X", "DEFAULT;DEFAULT"],
)
def test_what_is_no_rule_says_so(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"is no rule|is no regular expression"):
        parse_mapping_rules(rules)
