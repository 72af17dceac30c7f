"""What a worker of Spark collects as garbage after each task."""

from __future__ import annotations

import gc

import pytest

from tidelog.spark import workers


def test_a_worker_freezes_what_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    workers.spare_modules_from_collection()
    assert not frozen, "this is no worker"
    monkeypatch.setattr(workers, "is_worker", lambda: True)
    workers.spare_modules_from_collection()
    workers.spare_modules_from_collection()
    assert len(frozen) == 1
