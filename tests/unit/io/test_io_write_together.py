"""Many small files replaced together on a real disk: all of them, in whichever way the system can sync them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.base.errors import DiskError
from tidelog.io import disk as disk_module
from tidelog.io.disk import SYNC_TOGETHER_MIN, RealDisk
from tidelog.io.file_system_sync import FileSystemSync

COUNTS = (0, 1, SYNC_TOGETHER_MIN - 1, SYNC_TOGETHER_MIN, 100)


class NoSuchCall(FileSystemSync):
    """As on a system that cannot sync a file system."""

    @staticmethod
    def of(directories: object) -> None:
        return None


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("is_able", [True, False])
def test_all_are_replaced(tmp_path: Path, count: int, is_able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_able:
        monkeypatch.setattr(disk_module, "FileSystemSync", NoSuchCall)
    files = {}
    for index in range(count):
        directory = tmp_path / f"t-{index % 7}"
        directory.mkdir(exist_ok=True)
        (directory / f"{index}").write_bytes(b"an older and longer text")
        files[str(directory / f"{index}")] = b"%d" % index
    RealDisk().write_all_atomically(files)
    assert {path: Path(path).read_bytes() for path in files} == files
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("count", [2, 100])
def test_one_that_cannot_be_written_leaves_whole_files(tmp_path: Path, count: int) -> None:
    files = {str(tmp_path / f"{index}"): b"new" for index in range(count)}
    for path in files:
        Path(path).write_bytes(b"old")
    missing = str(tmp_path / "missing" / "file")
    with pytest.raises(DiskError, match="missing"):
        RealDisk().write_all_atomically({**files, missing: b"new"})
    assert {Path(path).read_bytes() for path in files} <= {b"old", b"new"}


def test_a_file_system_that_refuses_is_heard(tmp_path: Path) -> None:
    sync = FileSystemSync(lambda descriptor: 5)
    sync._descriptors = {0: (-1, str(tmp_path))}
    with pytest.raises(OSError, match="Input/output error"):
        sync.sync()


def test_a_file_system_that_may_not_heed_the_call_is_not_asked() -> None:
    """FUSE answers at once; /proc stands in for it."""
    assert FileSystemSync.of(["/proc"]) is None
