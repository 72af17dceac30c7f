"""Kafka's .properties files: what they mean, and that what we write is what we read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.cli.properties import format_properties, parse_properties


def parse(text: str) -> dict[str, str]:
    return parse_properties(text, source="test.properties")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node.id=1", {"node.id": "1"}),
        ("node.id = 1 ", {"node.id": "1"}),
        ("node.id:1\nport 9092\nempty=", {"node.id": "1", "port": "9092", "empty": ""}),
        ("# a=1\n! b=2\n\n   \n  c=3", {"c": "3"}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
        ("listeners=PLAINTEXT://:9092,\\\n    CONTROLLER://:9093\nb=2", {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "b": "2",
        }),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),  # an even number of backslashes does not go on
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("path=C:\\\\logs\\tx", {"path": "C:\\logs\tx"}),
        ("a=\\u00e9", {"a": "é"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("alone", {"alone": ""}),
    ],
)  # fmt: skip
def test_properties_mean_what_they_mean_to_kafka(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(("text", "line"), [("a=1\n=2", "line 2"), ("\n\nb=\\u12", "line 3"), ("b=\\uzzzz", "line 1")])
def test_a_broken_line_is_named(text: str, line: str) -> None:
    with pytest.raises(ConfigError, match=rf"test\.properties, {line}: "):
        parse(text)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.dictionaries(texts.filter(bool), texts.map(str.rstrip)))
def test_what_is_written_is_read_back(pairs: dict[str, str]) -> None:
    assert parse(format_properties(pairs, comment="two\nlines")) == pairs
