"""The real disk: explicit positions, whole writes, and every refusal named."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog.base.errors import DiskError
from tidelog.io import disk as disk_module
from tidelog.io.disk import RealDisk, RealFile


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_a_file_is_read_and_written_at_positions(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/x", create=True)
    file.append(b"abc")
    file.append(memoryview(bytearray(b"def")))
    assert (file.size(), file.read_at(0, 100), file.read_at(2, 2), file.read_at(6, 1)) == (6, b"abcdef", b"cd", b"")
    file.write_at(1, b"XY")
    file.write_at(8, b"end")
    assert file.read_at(0, 100) == b"aXYdef\0\0end"
    file.truncate(4)
    file.append(b"!")
    assert (file.size(), file.read_at(0, 100)) == (5, b"aXYd!")
    file.truncate(7)
    assert file.read_at(0, 100) == b"aXYd!\0\0"
    file.sync()
    file.close()
    file.close()
    assert (tmp_path / "x").read_bytes() == b"aXYd!\0\0"


def test_an_opened_file_goes_on_at_its_end(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    file = disk.open(f"{tmp_path}/x")
    file.append(b"d")
    assert disk.read_bytes(f"{tmp_path}/x") == b"abcd"
    assert disk.open(f"{tmp_path}/x", create=True).size() == 4


def test_an_append_is_one_system_call(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        calls.append(len(data))
        return real(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    disk.open(f"{tmp_path}/x", create=True).append(bytes(1000))
    assert calls == [1000]


def test_short_reads_and_writes_are_gone_on_with(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, bytes(data[:7]), position))
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 5), position))
    file = disk.open(f"{tmp_path}/x", create=True)
    file.append(bytes(range(100)))
    file.append(b"tail of it")
    assert file.size() == 110
    assert file.read_at(0, 200) == bytes(range(100)) + b"tail of it"
    assert file.read_at(95, 10) == bytes(range(95, 100)) + b"tail "
    assert disk.read_bytes(f"{tmp_path}/x") == bytes(range(100)) + b"tail of it"


def test_what_the_page_cache_has_is_read_without_waiting(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/x", create=True)
    file.append(bytes(range(100)))
    assert file.read_cached_at(10, 20) in (bytes(range(10, 30)), None)
    assert file.read_cached_at(90, 20) in (bytes(range(90, 100)), None)
    assert file.read_cached_at(100, 20) == b""


def test_where_the_system_cannot_tell_it_reads(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{tmp_path}/x", create=True)
    file.append(bytes(range(100)))

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    def cold(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "would wait")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.read_cached_at(10, 20) == bytes(range(10, 30))
    monkeypatch.setattr(os, "preadv", cold)
    assert file.read_cached_at(10, 20) is None
    monkeypatch.setattr("tidelog.io.disk._NO_WAIT", 0)
    assert file.read_cached_at(10, 20) == bytes(range(10, 30))


def test_a_file_that_may_only_be_read_is_read(disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    real = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR or path.endswith("y"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    file = disk.open(f"{tmp_path}/x")
    assert file.read_at(0, 3) == b"abc"
    with pytest.raises(DiskError, match="cannot append"):
        file.append(b"d")
    with pytest.raises(DiskError, match="cannot create: Permission denied"):
        disk.open(f"{tmp_path}/y", create=True)
    with pytest.raises(DiskError, match="cannot open: Permission denied"):
        disk.open(f"{tmp_path}/y")


def test_after_a_failed_write_the_end_is_what_the_file_holds(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{tmp_path}/x", create=True)
    file.append(b"abc")
    pwrite = os.pwrite
    left = [4]

    def fill(descriptor: int, data: bytes, position: int) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        size, left[0] = left[0], 0
        return pwrite(descriptor, bytes(data[:size]), position)

    monkeypatch.setattr(os, "pwrite", fill)
    with pytest.raises(DiskError, match=r"x: cannot .*: No space left on device") as refused:
        file.append(b"defghij")
    assert refused.value.errno == errno.ENOSPC
    assert file.size() == 7
    file.truncate(3)
    monkeypatch.undo()
    file.append(b"!")
    assert file.read_at(0, 10) == b"abc!"


def test_a_reader_keeps_a_file_that_is_gone_and_dropped(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/x", create=True)
    file.append(b"abc")
    reader = file
    disk.remove(f"{tmp_path}/x")
    del file
    assert reader.read_at(0, 3) == b"abc"


def test_a_dropped_file_is_closed(disk: RealDisk, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        disk.open(f"{tmp_path}/x", create=True)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_refusals_name_path_and_reason(disk: RealDisk, tmp_path: Path) -> None:
    missing = f"{tmp_path}/missing"
    for call in (
        lambda: disk.open(missing),
        lambda: disk.open(f"{missing}/x", create=True),
        lambda: disk.list(missing),
        lambda: disk.read_bytes(missing),
        lambda: disk.rename(missing, f"{tmp_path}/y"),
        lambda: disk.sync_dir(missing),
        lambda: disk.free_bytes(missing),
    ):
        with pytest.raises(DiskError, match=r"missing.*: No such file or directory") as refused:
            call()
        assert (refused.value.path.startswith(missing), refused.value.errno) == (True, errno.ENOENT)
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="file"):
        disk.make_dirs(f"{tmp_path}/file/x")
    with pytest.raises(DiskError, match="cannot remove"):
        disk.remove(str(tmp_path))
    closed = disk.open(f"{tmp_path}/file")
    closed.close()
    for operation in (
        lambda: closed.read_at(0, 1),
        lambda: closed.append(b"x"),
        lambda: closed.truncate(0),
    ):
        with pytest.raises(DiskError, match=r"file: cannot"):
            operation()


def test_directories(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b"
    disk.make_dirs(path)
    disk.make_dirs(path)
    disk.open(f"{path}/z", create=True)
    disk.open(f"{path}/m", create=True)
    assert disk.list(path) == ["m", "z"]
    assert [disk.is_directory(p) for p in (path, f"{path}/m", f"{path}/none")] == [True, False, False]
    assert [disk.exists(p) for p in (path, f"{path}/m", f"{path}/none")] == [True, True, False]
    disk.rename(f"{path}/m", f"{path}/z")
    assert disk.list(path) == ["z"]
    disk.sync_dir(path)
    disk.remove(f"{path}/z")
    disk.remove(f"{path}/z")
    disk.remove_tree(f"{tmp_path}/a")
    disk.remove_tree(f"{tmp_path}/a")
    assert not disk.exists(path)
    assert disk.free_bytes(str(tmp_path)) > 0


def test_small_files_are_replaced_whole(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/checkpoint"
    (tmp_path / "checkpoint.tmp").write_bytes(b"left by a crash, and longer than what follows")
    disk.write_atomically(path, b"one")
    disk.write_atomically(path, b"two")
    assert disk.read_bytes(path) == b"two"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


def test_a_lock_keeps_others_out_until_it_is_released(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    held = disk.lock(path)
    with pytest.raises(DiskError, match="only one node may use a data directory"):
        disk.lock(path)
    code = (
        "import sys; from tidelog.io.disk import RealDisk; from tidelog.base.errors import DiskError\n"
        "try: RealDisk().lock(sys.argv[1])\n"
        "except DiskError: sys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], timeout=30, check=False).returncode == 3
    held.release()
    held.release()
    disk.lock(path).release()
    assert subprocess.run([sys.executable, "-c", code, path], timeout=30, check=False).returncode == 0


def test_real_and_promised_agree(disk: RealDisk, tmp_path: Path) -> None:
    """What the log is tested on behaves as what it runs on."""
    from support.fixtures.memory_disk import MemoryDisk

    results: list[list[object]] = []
    for each, root in ((disk, str(tmp_path)), (MemoryDisk(), "root")):
        seen: list[object] = []
        each.make_dirs(f"{root}/d")
        file = each.open(f"{root}/d/x", create=True)
        file.append(b"0123456789")
        file.write_at(12, b"ab")
        file.truncate(13)
        seen += [file.size(), file.read_at(8, 100), file.read_at(99, 1)]
        each.rename(f"{root}/d/x", f"{root}/d/y")
        file.append(b"!")
        seen += [each.list(f"{root}/d"), each.read_bytes(f"{root}/d/y"), each.exists(f"{root}/d/x")]
        each.rename(f"{root}/d", f"{root}/e")
        seen += [each.list(root), each.is_directory(f"{root}/e"), each.list(f"{root}/e")]
        each.remove(f"{root}/e/y")
        seen += [file.read_at(0, 5), each.list(f"{root}/e")]
        each.write_atomically(f"{root}/e/z", b"z")
        each.remove_tree(f"{root}/e")
        seen += [each.exists(f"{root}/e"), each.exists(f"{root}/e/z")]
        results.append(seen)
    assert results[0] == results[1]


def test_a_file_of_another_kind_is_told() -> None:
    with pytest.raises(DiskError, match=r"/dev/null/x: cannot open: Not a directory"):
        RealDisk().open("/dev/null/x")
    assert isinstance(RealDisk().open("/dev/null"), RealFile)


@pytest.fixture
def no_files_left() -> Iterator[list[int]]:
    """Every file that this process may have is open: those that can be closed."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64 + len(os.listdir("/proc/self/fd")), before[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        yield taken
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files cannot be counted")


@needs_proc
def test_where_no_file_can_be_opened_a_thread_waits_for_one_to_be_closed(
    disk: RealDisk, tmp_path: Path, no_files_left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "sleep", lambda seconds: os.close(no_files_left.pop()))
    disk.write_atomically(f"{tmp_path}/x", b"content")
    assert disk.read_bytes(f"{tmp_path}/x") == b"content"


@needs_proc
def test_where_none_is_closed_it_is_said_what_to_do(
    disk: RealDisk, tmp_path: Path, no_files_left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(disk_module, "sleep", waits.append)
    with pytest.raises(DiskError, match="cannot create: Too many open files; raise the limit") as refused:
        disk.open(f"{tmp_path}/x", create=True)
    assert refused.value.errno == errno.EMFILE
    assert sum(waits) == pytest.approx(1.0)


@needs_proc
def test_where_no_file_can_be_opened_an_event_loop_does_not_wait(
    disk: RealDisk, tmp_path: Path, no_files_left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "sleep", lambda seconds: pytest.fail("it waited"))

    async def on_a_loop() -> None:
        with pytest.raises(DiskError):
            disk.open(f"{tmp_path}/x", create=True)

    for _ in range(8):  # what a loop itself takes
        os.close(no_files_left.pop())
    loop = asyncio.new_event_loop()
    with suppress(OSError):
        while True:
            no_files_left.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    try:
        loop.run_until_complete(on_a_loop())
    finally:
        loop.close()
