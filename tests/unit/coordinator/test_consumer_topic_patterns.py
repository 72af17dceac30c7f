"""Patterns of topics: RE2's syntax, in bounded time. (The same was compared with RE2 itself on random patterns.)"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import Code, KafkaError
from tidelog.coordinator.groups.consumer import topic_pattern
from tidelog.coordinator.groups.consumer.topic_pattern import TopicPattern


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("", [""], ["a"]),
        ("orders", ["orders"], ["orders2", "my-orders"]),
        ("orders.*", ["orders", "orders-eu"], ["order", "xorders"]),
        ("orders|bills", ["orders", "bills"], ["orders|bills", "ordersbills"]),
        ("a(b|)c", ["abc", "ac"], ["abbc"]),
        (r"a\.b", ["a.b"], ["aXb"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["a.b"]),
        ("[a-c_]+", ["abc_"], ["d", ""]),
        ("[^a-c]", ["d", "-"], ["a", "dd"]),
        ("[]a-]", ["]", "a", "-"], ["b"]),
        ("[[:digit:][:^alnum:]]+", ["1-", "."], ["a"]),
        ("[[:]", ["[", ":"], ["a"]),
        (r"\d{2,3}", ["12", "123"], ["1", "1234"]),
        ("x{2}y{1,}z{0}", ["xxy", "xxyy"], ["xy", "xx", "xxyz"]),
        ("x{,2}", ["x{,2}"], ["xx"]),
        ("(?i)ORDERS-[a-b]", ["orders-A", "Orders-b"], ["orders-c"]),
        ("(?i:a)b", ["Ab", "ab"], ["aB"]),
        ("a(?i)b|c", ["ab", "aB", "C"], ["Ab"]),
        ("(?i)\u212a", ["k", "K"], ["\u212a"]),
        ("(?P<name>a+?)(?<other>b*)", ["aab", "a"], ["b"]),
        ("^a$", ["a"], ["ab"]),
        (r"\Aa\z", ["a"], ["ab"]),
        (r"a\b.b", ["a.b", "a-b"], ["a_b", "aab"]),
        (r"a\Bb", ["ab"], ["a"]),
        (r"\pL\PL\p{Lu}\p{^Lu}", ["a1Ba"], ["aaaa", "a1bb"]),
        (r"\x41\x{42}\103\0", ["ABC\0"], ["ABC"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("(|a)+", ["", "aa"], ["b"]),
        ("é|b", ["b"], ["a", "é"]),
        ("[^é]", ["b"], ["é"]),
    ],
)
def test_a_name_matches_as_a_whole(pattern: str, names: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in names + others if compiled.matches(name)] == names


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "[", "[a", "[]", "[z-a]", "[[:word2:]]", "*", "a**", "(*)", "|+", "a{2}{3}", "a{1001}"),
        *("a{3,2}", "(?=a)", "(?!a)", "(?<=a)", "(?P=n)", "(?#c)", "(?i-)", "(?", "(?P<n>a)(?P<n>b)", "(?P<>a)"),
        *("\\", "\\1", "\\k", "\\C", "\\Z", "\\u0041", "\\x", "\\xg0", "\\x{110000}", "\\p{Klingon}", "\\p{L"),
    ],
)
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError, match="RE2 syntax") as error:
        TopicPattern(pattern)
    assert error.value.code is Code.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", "((){1000}){1000}", "(" * 101 + ")" * 101])
def test_what_would_take_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as error:
        TopicPattern(pattern)
    assert error.value.code is Code.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b"])
def test_what_makes_others_take_forever_does_not_here(pattern: str) -> None:
    compiled = TopicPattern(pattern)
    assert not compiled.matches("a" * 249)
    assert compiled.matches("a" * 248 + "b")


def test_states_that_were_forgotten_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pattern, "CACHED_STATES_MAX", 2)
    compiled = TopicPattern("(a|b)*a(a|b){3}")
    for name in ("abbb", "babab", "bbbb", "aaaaaa", "abab") * 2:
        assert compiled.matches(name) == bool(re.fullmatch("(a|b)*a(a|b){3}", name))


# Any pattern that Python reads alike.

leaves = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "[a-c0-9]", r"\d", r"\W", r"\.", r"\b", r"\B", "^", "$", "_", "-", "(?i:A)"]
)
patterns = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map("({})".format),
    ),
    max_leaves=6,
)


@given(pattern=patterns, names=st.lists(st.text("ab01._-A", min_size=1, max_size=6), max_size=6))
def test_it_agrees_with_another_implementation(pattern: str, names: list[str]) -> None:
    compiled = TopicPattern(pattern)
    for name in names:
        assert compiled.matches(name) == bool(re.fullmatch(pattern, name, re.ASCII)), name
