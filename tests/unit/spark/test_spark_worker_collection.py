"""What a worker of Spark collects as garbage after each task."""

from __future__ import annotations

import gc

import pytest

from tidelog.spark import workers


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A mark for each time that what is loaded is frozen."""
    marks: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: marks.append(1))
    monkeypatch.setattr(workers, "_has_frozen", False)
    return marks


def test_a_worker_freezes_what_is_loaded_once(monkeypatch: pytest.MonkeyPatch, frozen: list[int]) -> None:
    workers.spare_modules_from_collection()
    assert not frozen, "this is no worker"
    monkeypatch.setattr(workers, "is_worker", lambda: True)
    workers.spare_modules_from_collection()
    workers.spare_modules_from_collection()
    assert len(frozen) == 1


def test_no_task_counts_what_is_frozen(monkeypatch: pytest.MonkeyPatch, frozen: list[int]) -> None:
    """CPython walks over all frozen objects to count them."""

    def count() -> int:
        raise AssertionError("counted")

    monkeypatch.setattr(gc, "get_freeze_count", count)
    monkeypatch.setattr(workers, "is_worker", lambda: True)
    workers.spare_modules_from_collection()
    workers.spare_modules_from_collection()
    assert len(frozen) == 1
