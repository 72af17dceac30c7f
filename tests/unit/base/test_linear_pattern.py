"""Regular expressions in linear time: they match what Python's do, and no expression takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.base import linear_pattern
from tidelog.base.errors import Code, KafkaError
from tidelog.base.linear_pattern import LENGTH_MAX, LinearPattern
from tidelog.base.pattern_syntax import NESTING_MAX

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
        r"\b",
        r"\B",
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
        if not text and r"\B" in expression:
            continue  # Python finds no place at all in a text without characters
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
        "\\", r"\1", r"\x", r"\x{110000}", "(?=a)", "(?<=a)", "(?<!a)", "(?P=n)", "(?#x)",
        "(?P<n", "[[:none:]]", "(?i", "((a{30}){30}){30}", "a{1000}", "a" * (LENGTH_MAX + 1),
        "(" * (NESTING_MAX + 1) + ")" * (NESTING_MAX + 1), "(" * 900,
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


# Each part of the syntax.


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
        ("(?i)\u212a", ["k", "K", "\u212a"], ["x"]),
        ("(?P<name>a+?)(?<other>b*)", ["aab", "a"], ["b"]),
        ("^a$", ["a"], ["ab"]),
        (r"\Aa\z", ["a"], ["ab"]),
        (r"a\b.b", ["a.b", "a-b"], ["a_b", "aab"]),
        (r"a\Bb", ["ab"], ["a"]),
        (r"\pL\PL\p{Lu}\p{^Lu}", ["a1Ba"], ["aaaa", "a1bb"]),
        (r"\x41\x{42}\103\0", ["ABC\0"], ["ABC"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("(|a)+", ["", "aa"], ["b"]),
        ("é|b", ["b", "é"], ["a"]),
        ("[^é]", ["b", "è"], ["é"]),
        ("(?i)É[à-é]", ["éÀ"], ["ea"]),
        ("(?i)[^k]", ["a", "é"], ["\u212a", "K"]),
        (r"\W\PL", ["é1"], ["a1"]),
        (r"\p{Lu}\p{^Nd}", ["Éx"], ["éx", "É1"]),
        (r"[^\W\d]", ["a"], ["é", "1"]),
        ("(?m)a", ["a"], ["b"]),
    ],
)
def test_a_text_matches_as_a_whole(pattern: str, names: list[str], others: list[str]) -> None:
    compiled = LinearPattern(pattern)
    assert [name for name in names + others if compiled.matches(name)] == names


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "[", "[a", "[]", "[z-a]", "[[:word2:]]", "*", "a**", "(*)", "|+", "a{2}{3}", "a{1001}"),
        *("a{3,2}", "(?=a)", "(?!a)", "(?<=a)", "(?P=n)", "(?#c)", "(?i-)", "(?", "(?P<n>a)(?P<n>b)", "(?P<>a)"),
        *(
            "\\",
            "\\1",
            "\\k",
            "\\C",
            "\\Z",
            "\\u0041",
            "\\x",
            "\\xg0",
            "\\x{110000}",
            "\\p{Klingon}",
            "\\p{Latin}",
            "\\p{L",
        ),
    ],
)
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError, match="RE2 syntax") as error:
        LinearPattern(pattern)
    assert error.value.code is Code.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", "((){1000}){1000}", "(" * 101 + ")" * 101])
def test_what_would_take_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as error:
        LinearPattern(pattern)
    assert error.value.code is Code.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)b"])
def test_what_makes_others_take_forever_does_not_here(pattern: str) -> None:
    compiled = LinearPattern(pattern)
    assert not compiled.matches("a" * 249)
    assert compiled.matches("a" * 248 + "b")


def test_states_that_were_forgotten_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_pattern, "CACHED_MAX", 2)
    compiled = LinearPattern("(a|b)*a(a|b){3}")
    for name in ("abbb", "babab", "bbbb", "aaaaaa", "abab") * 2:
        assert compiled.matches(name) == bool(re.fullmatch("(a|b)*a(a|b){3}", name))


def test_a_text_that_takes_long_is_matched_in_pieces() -> None:
    pattern = LinearPattern("(?:.*){90}x", steps_max=None)
    texts = ["".join(map(chr, range(0x4E00 + number, 0x4E40 + number))) for number in range(0, 640, 64)]
    pieces = [len(list(pattern.matching(text))) for text in texts]
    assert min(pieces) > 1
    assert [len(list(pattern.matching(text))) for text in texts] < pieces, "what was learnt is not learnt again"
