"""A node with the files and the settings that `tidelog up --nodes 1` gives it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from support.nodes.listening_ports import listening_ports
from support.nodes.server_process import NodeFailedError, ServerProcess
from support.nodes.without_secret import without_secret
from tidelog.base.errors import TidelogError
from tidelog.cli.properties import format_properties
from tidelog.cli.server import read_properties
from tidelog.cli.up import Up


def with_file_limit(files_max: int) -> tuple[str, ...]:
    """A wrapper for a node that may never have more files open."""
    return ("sh", "-c", f'ulimit -n {files_max} && exec "$@"', "sh")


class StartNode(Protocol):
    """What the fixture `start_node` gives: it starts a node, which ends with the tests of the file at the latest."""

    def __call__(
        self,
        *,
        data_dir: Path | None = None,
        config: dict[str, str] | None = None,
        port: int = 0,
        is_open: bool = False,
    ) -> NodeProcess: ...


class NodeProcess(ServerProcess):
    """A broker and controller.

    Attributes:
        data_dir: what `up` would be given by `--data`; the node's files are in `data_dir/node-1`.
        config: what it would be given by `--config` at each start; may be changed before `restart()`.
        is_open: whether it takes from anybody what only nodes ask; else it does not, as with `up`.
    """

    def __init__(self, data_dir: Path, *, config: dict[str, str], port: int = 0, is_open: bool = False) -> None:
        super().__init__(data_dir.parent, data_dir / "node-1")
        self.data_dir = data_dir
        self.config = config
        self.is_open = is_open
        self.port = port
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self.properties_path = data_dir / "node-1.properties"

    @property
    def ports(self) -> set[int]:
        """Every port that the node listens on: for clients, for controllers, for metrics. Linux only."""
        return listening_ports(self.pid)

    def write_settings(self) -> None:
        up = Up(
            nodes=1,
            port=self.port,
            data=str(self.data_dir),
            config=tuple(self.config.items()),
            disks=None,
            host=self.host,
            advertised_host=None,
            secure=False,
            insecure=False,
            racks=None,
            metrics_port=None,
            log_level="info",
            log_format=None,
            parent_fd=None,
        )
        try:
            (file,) = up.write_files()
        except TidelogError as error:
            with self.log_path.open("a") as log:
                log.write(f"error: {error}\n")
            raise NodeFailedError(f"its settings cannot be written: {error}") from error
        if self.is_open:
            self.properties_path.write_text(format_properties(without_secret(read_properties(file))))

    def stop(self) -> None:
        """Stop it as an operator would, and wait until it has ended.

        Raises:
            NodeFailedError: it did not end in time, or not with status 0.
        """
        status = self.end()
        if status != 0:
            raise self._failed(f"ended with status {status}, when it was told to stop")

    def kill(self) -> None:
        """`kill -9`."""
        self.end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again on the same files and the same port, after `stop` or `kill` (stops first if neither was)."""
        if self.is_running:
            self.stop()
        self.start()


@contextmanager
def running_node(directory: Path, *, config: dict[str, str] | None = None) -> Iterator[NodeProcess]:
    """A node that serves, and ends with the context."""
    node = NodeProcess(directory, config=config or {})
    try:
        node.start()
        yield node
    finally:
        node.close()
