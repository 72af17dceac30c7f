"""The patterns of the unit tests of `subscribePattern`, as Java's own regular expressions see them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command
from support.fixtures.java_patterns import INVALID, ROWS


def test_java_matches_what_the_translated_patterns_match(needs_kafka: None) -> None:
    expected = [(java, name, "true") for java, matching, _ in ROWS for name in matching]
    expected += [(java, name, "false") for java, _, others in ROWS for name in others]
    expected += [(java, "a", "invalid") for java in INVALID]
    command = java_command(["Patterns"], classes=compiled(Path(__file__).parent / "Patterns.java"))
    given = "".join(f"{java}\x1f{name}\n" for java, name, _ in expected)
    ran = subprocess.run(command, input=given, capture_output=True, check=True, text=True, timeout=60)
    found = [(java, name, said) for (java, name, _), said in zip(expected, ran.stdout.splitlines(), strict=True)]
    assert found == expected
