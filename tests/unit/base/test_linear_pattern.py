"""Regular expressions in linear time: they match what Python's do, and no expression takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.base.errors import Code, KafkaError
from tidelog.base.linear_pattern import DEPTH_MAX, LENGTH_MAX, LinearPattern

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        ".",
        "[ab]",
        "[^a]",
        "[a-c-]",
        r"\d",
        r"\w",
        r"[\d_]",
        r"[^\W\d]",
        r"\.",
        "^",
        "$",
        "1",
        r"\x61",
        "(?i:B)",
    ]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{,2}"])),
    ),
    max_leaves=8,
)
TEXTS = st.text("abAB1.-_{,2}\n", max_size=6)


@given(EXPRESSIONS, st.lists(TEXTS, min_size=1, max_size=8))
@example("(a){,2}", ["a{,2}", "aa"])
def test_whole_texts_match_as_in_python(expression: str, texts: list[str]) -> None:
    # Python's $ also matches before a last newline, and its {,2} repeats: RE2 means neither.
    theirs = re.compile(expression.replace("$", r"\Z").replace("{,2}", r"\{,2\}"), re.ASCII)
    ours = LinearPattern(expression)
    for text in texts:
        assert ours.matches(text) == (theirs.fullmatch(text) is not None), (expression, text)


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("", "", "a"),
        ("copier-.*", "copier-1", "a-copier-1"),
        ("(?i)COPIER", "Copier", "copie"),
        ("(?i)a(?-i)b", "Ab", "aB"),
        ("a(?i)b|c", "aB", "Ab"),
        ("(?s)a.b", "a\nb", "ab"),
        ("a.b", "a b", "a\nb"),
        (r"\Qa.b*\E+", "a.b*", "axb"),
        ("[[:alpha:]_]+", "a_b", "a1"),
        ("[[:^digit:]]", "a", "1"),
        ("[]a]", "]", "b"),
        ("[^]]", "a", "]"),
        (r"[\]\-]", "-", "a"),
        (r"\x{1F600}", "\U0001f600", "x"),
        ("(?P<name>a)(?<other>b)", "ab", "a"),
        ("a{1,2}b{x", "aab{x", "b{x"),
        (r"\Aa\z", "a", "aa"),
        ("a||b", "", "ab"),
        ("ümläut", "ümläut", "umlaut"),
    ],
)
def test_the_syntax_is_that_of_re2(expression: str, matching: str, other: str) -> None:
    assert LinearPattern(expression).matches(matching)
    assert not LinearPattern(expression).matches(other)


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "a)", "(a", "[a", "[", "[z-a]", r"[a-\d]", "*", "a**", "a{2}{3}", "+a", "|*", "a{2,1}", "a{1001}",
        "\\", r"\b", r"\p{L}", r"\1", r"\x", r"\x{110000}", "(?=a)", "(?<=a)", "(?<!a)", "(?P=n)", "(?#x)", "(?m)a",
        "(?P<1>a)", "(?P<n", "[[:none:]]", "(?i", "((a{30}){30}){30}", "a{500}", "a" * (LENGTH_MAX + 1),
        "(" * (DEPTH_MAX + 1) + ")" * (DEPTH_MAX + 1), "(" * 900,
    ],
)  # fmt: skip
def test_what_is_none_or_too_large_is_refused_with_its_place(expression: str) -> None:
    with pytest.raises(KafkaError, match="regular expression '") as error:
        LinearPattern(expression)
    assert error.value.code is Code.INVALID_REGULAR_EXPRESSION


def test_no_expression_takes_exponential_time() -> None:
    assert not LinearPattern("(a*)*b").matches("a" * 8_000)
    assert LinearPattern("(a|aa)+(a|aa)+").matches("a" * 8_000)
    assert not LinearPattern("(?:a?){100}a{100}b").matches("a" * 150)


def test_one_that_takes_too_long_in_all_is_refused() -> None:
    pattern = LinearPattern("(?:.*){100}x")
    assert not pattern.matches("a" * 8_000), "the same steps over and over are taken once"
    with pytest.raises(KafkaError, match="takes too long"):
        pattern.matches("".join(map(chr, range(0x4E00, 0x6000))))
