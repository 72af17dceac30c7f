"""The fuzzer of the kernels, for a moment; `make fuzz` runs it longer."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import fuzz_walker
from tidelog.records import kernel


def test_damaged_records_are_refused_by_all_kernels_alike() -> None:
    tried, accepted = fuzz_walker.main(math.inf, seed=20_240_907, batch_count_max=1_000)
    assert tried == 1_000
    assert accepted > tried // 20


def test_the_fuzzer_finds_a_kernel_that_reads_beyond_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(data: Any, position: int, end: int, *limits: int) -> Any:
        found = kernel.walk(data, position, end, *limits)
        return (*found[:3], found[3] + (len(data) > end and data[end] > 0x7F), *found[4:])

    broken = SimpleNamespace(walk=greedy, unpack=kernel.unpack, decode=kernel.decode, KERNEL_IS_COMPILED=True)
    monkeypatch.setattr(fuzz_walker, "kernels", lambda: [kernel, broken])
    with pytest.raises(AssertionError, match="seed 7, batch"):
        fuzz_walker.main(60.0, seed=7)


def test_the_fuzzer_finds_a_check_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_skip_headers", lambda data, position, stop, count: stop)
    with pytest.raises(AssertionError, match="seed 7, batch"):
        fuzz_walker.main(60.0, seed=7)


def test_the_fuzzer_finds_an_error_that_should_not_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(*arguments: Any) -> Any:
        found: Any = kernel.unpack(*arguments)
        return found["no such"] if len(found) == 5 else found

    broken = SimpleNamespace(walk=kernel.walk, unpack=fragile, decode=kernel.decode, KERNEL_IS_COMPILED=True)
    monkeypatch.setattr(fuzz_walker, "kernels", lambda: [kernel, broken])
    with pytest.raises(AssertionError, match="seed 7, batch") as caught:
        fuzz_walker.main(60.0, seed=7)
    assert isinstance(caught.value.__cause__, TypeError)
