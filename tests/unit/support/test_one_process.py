"""Which tests one process runs: a folder that is kept together is there, and all others are kept by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.one_process import DEAR_FOLDERS, is_begun_first, scope_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", DEAR_FOLDERS)
def test_a_folder_that_is_kept_together_has_tests(folder: str) -> None:
    assert len(list((ROOT / folder).glob("test_*.py"))) > 1


def test_files_of_a_folder_are_kept_together_and_others_by_themselves() -> None:
    batch, streaming = "tests/spark/test_spark_batch.py::test_ranges", "tests/spark/test_spark_streaming.py::test_a[1]"
    append, read = "tests/unit/log/test_log_append.py::test_a", "tests/unit/log/test_log_append.py::test_b[::]"
    assert scope_of(batch) == scope_of(streaming)
    assert scope_of(append) == scope_of(read) == "tests/unit/log/test_log_append.py"
    assert is_begun_first(batch)
    assert not is_begun_first(append)
