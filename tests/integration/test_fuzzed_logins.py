"""The fuzzer of logins, for a moment; `make fuzz` runs it longer."""

from __future__ import annotations

import pytest

from fuzz import fuzz_logins
from support.fixtures.certificates import missing_openssl

pytestmark = pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))


def test_nobody_gets_in_without_a_password_or_around_the_rules() -> None:
    assert fuzz_logins.main(0, seed=20_261_127, attacks_min=300) == 300
