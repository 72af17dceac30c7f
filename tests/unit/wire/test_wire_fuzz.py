"""The fuzzer of requests, for a moment; `make fuzz` runs it longer."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import fuzz_requests
from tidelog.wire import decode


def test_damaged_requests_are_refused_in_an_orderly_way() -> None:
    assert fuzz_requests.main(2.0, seed=20_240_907) > 500


def test_the_fuzzer_finds_an_error_that_should_not_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = fuzz_requests.valid_frames()
    whole = {len(frame) for frame in frames}

    real = decode

    def forgetful(cls: type[Any], frame: memoryview, version: int, position: int = 0) -> Any:
        if len(frame) not in whole and position:
            raise IndexError("a check was forgotten")
        return real(cls, frame, version, position)

    monkeypatch.setattr(fuzz_requests, "decode", forgetful)
    with pytest.raises(AssertionError, match="seed 7, frame") as caught:
        fuzz_requests.main(5.0, seed=7)
    assert isinstance(caught.value.__cause__, IndexError)


def test_the_fuzzer_finds_memory_that_a_count_buys(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(frame: memoryview) -> bool:
        return bool(bytearray(10_000_000))

    monkeypatch.setattr(fuzz_requests, "read_request", generous)
    with pytest.raises(AssertionError, match="bytes of memory"):
        fuzz_requests.main(5.0, seed=7)
