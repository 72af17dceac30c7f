"""Patterns of Java against what they match; what is compared with a real Java is in tests/compat/java."""

from __future__ import annotations

import pytest

from support.fixtures.java_patterns import INVALID, ROWS
from tidelog.spark.java_patterns import PatternError, python_pattern


@pytest.mark.parametrize(("java", "matching", "others"), ROWS, ids=[java for java, _, _ in ROWS])
def test_patterns(java: str, matching: list[str], others: list[str]) -> None:
    pattern = python_pattern(java)
    assert [name for name in [*matching, *others] if pattern.fullmatch(name)] == matching


@pytest.mark.parametrize(
    ("java", "named"),
    [
        ("[a-z&&[^b]]", r"the intersection && of classes \(at character 5\)"),
        ("[a[bc]]", "a class within a class"),
        (r"\p{InGreek}", r"\\p\{InGreek\}"),
        (r"[\P{Alpha}]", r"\\P\{Alpha\} in a class"),
        (r"[\D]", r"\\D in a class"),
        (r"\X", r"\\X"),
        (r"\G", r"\\G"),
        (r"\N{DIGIT ONE}", r"\\N"),
        (r"(a)\11", r"\\11"),
        ("(?x)a b", r"the flag \(\?x\)"),
        ("(?U)a", r"the flag \(\?U\)"),
        ("a(?i)b", r"\(\?i\) that is not at the beginning: write \(\?i:…\)"),
        ("(?P<a>b)", r"the group \(\?P<"),
        ("(?<=a+)b", "a look-behind of variable length"),
        ("(" * 5_000, "not a regular expression"),
    ],
)
def test_what_python_cannot_say_is_refused_by_name(java: str, named: str) -> None:
    with pytest.raises(PatternError, match=named):
        python_pattern(java)


@pytest.mark.parametrize("java", INVALID)
def test_what_is_no_pattern_is_refused(java: str) -> None:
    with pytest.raises(PatternError, match="not a regular expression"):
        python_pattern(java)
