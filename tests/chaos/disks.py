"""A disk of its own for a directory of a node: a file system in a file, to be filled, slowed down, torn away.

It is a real one (ext4 behind a loop device), so what the node meets is what the system says: ENOSPC, EROFS, EIO,
syncs that take long. What is torn away comes back as after a loss of power: what was not synced is gone.
In a sandbox its mounts go with the run; the speed that a loop device was given stays with its number.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
SIZE_BYTES = 512 << 20  # the file is sparse: it takes what is written

_SHUT_DOWN, _WITHOUT_SYNC = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
_FILLING = "somebody-elses"
_BLOCK = 4_096
_TRIED_SIZE_BYTES = 8 << 20


@cache
def why_no_disks() -> str | None:
    """Why there can be none on this machine; None if there can. It is tried."""
    missing = [name for name in ("mkfs.ext4", "e2fsck", "mount", "umount") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}"
    with tempfile.TemporaryDirectory() as home:
        try:
            NodeDisk(Path(home), "tried", size_bytes=_TRIED_SIZE_BYTES).close()
        except (AssertionError, OSError) as error:
            return str(error)
    return None


def why_no_throttle() -> str | None:
    """Why writes to one of them cannot be slowed down on this machine; None if they can."""
    return why_no_disks() or (None if THROTTLE.exists() else f"there is no {THROTTLE}")


class NodeDisk:
    """One of them, mounted. Its first owner is an empty directory, but for `lost+found`.

    Args:
        home: where its file and its mount point go.
        name: of the mount point, and of the file.

    Attributes:
        path: the mount point.
    """

    def __init__(self, home: Path, name: str, *, size_bytes: int = SIZE_BYTES) -> None:
        self.path = home / name
        self._image = home / f"{name}.img"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()

    def close(self) -> None:
        """Unmount it, whoever still has files open there."""
        release(self.path)

    # What is done to it.

    def fill(self) -> None:
        """Take all room there is."""
        with (self.path / _FILLING).open("ab", buffering=0) as file:
            facts = os.statvfs(self.path)
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, facts.f_bavail * facts.f_frsize)
            file.seek(0, os.SEEK_END)
            with suppress(OSError):
                while True:
                    file.write(bytes(_BLOCK))

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.path / _FILLING).unlink(missing_ok=True)

    def slow(self, bytes_per_second: int) -> None:
        """Let no more be written to it, whoever writes: syncs wait, and who waits for them cannot be killed."""
        _set_speed(self._device, bytes_per_second)

    def restore_speed(self) -> None:
        """After `slow`."""
        _set_speed(self._device, 0)

    @property
    def speed_command(self) -> tuple[str, ...] | None:
        """What restores its speed, for whoever has to do it from outside; None where it cannot be slowed down."""
        return ("sh", "-c", f"echo {self._device} 0 > {THROTTLE}") if THROTTLE.exists() else None

    def fail_to_read_only(self) -> None:
        """As the system does to a file system in which it meets an error: reads go on, every write is EROFS."""
        Path("/sys/fs/ext4", self._loop, "trigger_fs_error").write_text("x")

    def tear_away(self) -> None:
        """From now on everything is EIO. What was not synced is gone."""
        self._control(_SHUT_DOWN, struct.pack("I", _WITHOUT_SYNC))

    def mend(self) -> None:
        """Unmount it, check it, mount it again: after `tear_away` and `fail_to_read_only`. Nobody may use it."""
        _run("umount", str(self.path))
        checked = subprocess.run(["e2fsck", "-fp", str(self._image)], check=False, capture_output=True, text=True)
        assert checked.returncode < 4, checked.stdout  # below it all was mended
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,errors=remount-ro,noatime", str(self._image), str(self.path))
        self.restore_speed()  # who had the loop device before may have left it slow

    @property
    def _loop(self) -> str:
        """The loop device, such as `loop3`."""
        return Path(f"/sys/dev/block/{self._device}").resolve().name

    @property
    def _device(self) -> str:
        return _device_of(self.path)

    def _control(self, request: int, argument: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, request, argument)
        finally:
            os.close(descriptor)


def release(path: Path) -> None:
    """Unmount what is mounted there; its loop device goes with the last file that is open in it."""
    if os.path.ismount(path):
        _set_speed(_device_of(path), 0)
        _run("umount", "-l", str(path))


def _device_of(path: Path) -> str:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _set_speed(device: str, bytes_per_second: int) -> None:
    """0 for as fast as it can."""
    if THROTTLE.exists():
        THROTTLE.write_text(f"{device} {bytes_per_second}")


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout
