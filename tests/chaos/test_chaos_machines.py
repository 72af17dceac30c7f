"""The disks and clocks that nodes are given do what faults want of them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.clocks import NodeClock
from chaos.disks import NodeDisk, why_no_disks, why_no_throttle

SIZE_BYTES = 16 << 20
DAY_SECONDS = 86_400.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[NodeDisk]:
    why = why_no_disks()
    if why is not None:
        pytest.skip(why)
    made = NodeDisk(tmp_path, "disk", size_bytes=SIZE_BYTES)
    yield made
    made.close()
    assert not os.path.ismount(made.path)


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def refusal(work: Callable[[], object]) -> int | None:
    try:
        work()
    except OSError as error:
        return error.errno
    return None


def test_a_full_disk_takes_nothing_until_there_is_room(disk: NodeDisk) -> None:
    file = disk.path / "file"
    disk.fill()
    assert refusal(lambda: file.write_bytes(bytes(100_000))) == errno.ENOSPC
    disk.free()
    assert refusal(lambda: file.write_bytes(bytes(100_000))) is None


@pytest.mark.parametrize(
    ("fail", "writing", "reading"),
    [(NodeDisk.fail_to_read_only, errno.EROFS, None), (NodeDisk.tear_away, errno.EIO, errno.EIO)],
)
def test_a_disk_that_failed_is_mended_without_what_was_not_synced(
    disk: NodeDisk, fail: Callable[[NodeDisk], None], writing: int, reading: int | None
) -> None:
    synced = disk.path / "synced"
    write_synced(synced, b"kept")
    (disk.path / "late").write_bytes(b"perhaps gone")
    fail(disk)
    assert refusal(lambda: (disk.path / "more").write_bytes(b"")) == writing
    assert refusal(synced.read_bytes) == reading
    disk.mend()
    assert synced.read_bytes() == b"kept"
    assert refusal(lambda: (disk.path / "more").write_bytes(b"")) is None
    if fail is NodeDisk.tear_away:
        assert not (disk.path / "late").exists()


def test_a_slow_disk_takes_its_time(disk: NodeDisk) -> None:
    why = why_no_throttle()
    if why is not None:
        pytest.skip(why)
    disk.slow(200_000)
    began = time.monotonic()
    write_synced(disk.path / "file", bytes(100_000))
    assert time.monotonic() - began > 0.4
    disk.restore_speed()


def test_a_clock_is_set_while_a_program_runs(tmp_path: Path) -> None:
    clock = NodeClock(tmp_path / "clock")
    told = "import time; print(time.time_ns(), time.monotonic_ns(), flush=True)"
    program = clock.program.partition("from tidelog")[0] + f"{told}\ninput()\n{told}"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = process.stdout.readline()
        clock.set(-DAY_SECONDS)
        second, _ = process.communicate("\n")
    wall, steady = (int(late) - int(early) for early, late in zip(first.split(), second.split(), strict=True))
    assert steady >= 0
    assert wall - steady == pytest.approx(-DAY_SECONDS * 1e9, abs=1e9)
