"""`tidelog server`: one node from a Kafka-style `.properties` file, in this process."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass

from tidelog.base.errors import ConfigError, TidelogError
from tidelog.cli.command import argument, config_option, log_format_option, log_level_option, option, status_of
from tidelog.cli.properties import parse_properties

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Run one node in the foreground, from a .properties file with Kafka's keys.

    Prints `node id=I pid=PID port=PORT` and `ready bootstrap=HOST:PORT` when it serves. SIGTERM and Ctrl-C stop it
    cleanly.

    An empty log directory is formatted on the first start if this node is the only voter; otherwise
    `tidelog storage format` does it.

    Example:

        tidelog server config/server.properties --config log.dirs=/srv/tidelog
    """

    file: str = argument(metavar="FILE")
    config: tuple[tuple[str, str], ...] = config_option("A setting that replaces the file's. May be repeated.")
    log_level: str = log_level_option("info")
    log_format: str | None = log_format_option()
    ready_fd: int | None = option(
        "--ready-fd", type=int, default=None, hidden=True, help="Where to write port=PORT instead of stdout."
    )
    parent_fd: int | None = option(
        "--parent-fd", type=int, default=None, hidden=True, help="Stop when this reaches its end: the parent is gone."
    )

    def run(self) -> int:
        if self.parent_fd is not None:
            stop_with_parent()
        is_ready = False

        def on_ready(port: int, address: str) -> None:
            nonlocal is_ready
            is_ready = True
            if self.ready_fd is None:
                # In one write: whoever reads the first line only may be gone by the second.
                sys.stdout.write(f"node id={node_id} pid={os.getpid()} port={port}\nready bootstrap={address}\n")
                sys.stdout.flush()
                return
            os.write(self.ready_fd, f"port={port}\n".encode())
            os.close(self.ready_fd)

        try:
            properties = read_properties(self.file) | dict(self.config)
            if self.log_format is not None:
                properties["logging.format"] = self.log_format
            gc.disable()  # modules stay: to look for garbage among them would be a twentieth of a start
            from tidelog.server.main import run  # after the flags and the file are known to be right

            gc.enable()

            node_id = properties.get("node.id") or properties.get("broker.id")
            return run(properties, log_level=self.log_level, on_ready=on_ready, parent_fd=self.parent_fd)
        except (TidelogError, OSError) as error:
            if self.ready_fd is None or is_ready or self.log_level == "debug":
                raise
            # Whoever started several nodes says which of them it was.
            with suppress(OSError):
                os.write(self.ready_fd, f"error={' '.join(str(error).splitlines())}\n".encode())
            return status_of(error)


def read_properties(path: str) -> dict[str, str]:
    """The settings in a `.properties` file.

    Raises:
        ConfigError: it is not there, not readable, not UTF-8, or a line of it is broken.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read(), source=path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a .properties file that can be read") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error


def stop_with_parent() -> None:
    """Ask Linux for a SIGTERM when the parent dies, which covers the time before the event loop watches its pipe."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
