"""One node as a process: event loop, signals, logging, and the order in which it starts and stops. Kafka: `Kafka`."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tidelog.base.errors import TidelogError
from tidelog.base.ports import Network
from tidelog.io.allocator import return_large_blocks
from tidelog.io.clock import SystemClock
from tidelog.io.disk import RealDisk
from tidelog.io.executor import ThreadExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.net.address import Address
from tidelog.server.api.fetch_sessions import PARTITION_BYTES
from tidelog.server.garbage import GarbageCollection, expected_blocks
from tidelog.server.node import Node
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.log_lines import set_up_logging
from tidelog.server.tasks import start_kept

logger = logging.getLogger("tidelog.server")

OK = 0
FAILED = 1


def run(
    properties: Mapping[str, str],
    *,
    log_level: str = "info",
    on_ready: Callable[[int, str], None],
    parent_fd: int | None = None,
    network: Network | None = None,
) -> int:
    """Run a node until it is told to stop (SIGTERM, SIGINT, or the end of file of `parent_fd`).

    Args:
        properties: Kafka's keys.
        on_ready: called once when the node serves, with the clients' port, and with the HOST:PORT that clients are
            told.
        parent_fd: read end of a pipe whose other end the parent holds: its end of file means the parent is gone.
        network: where it listens and connects; None for the system's.

    Returns:
        The exit status: 0 after a clean stop, 1 when the node had to give up.

    Raises:
        ConfigError: before anything was touched.
        TidelogError: the node cannot start; the text says why and what to do.
    """
    config = NodeConfig.from_properties(properties)
    set_up_logging(log_level, config.logging_format, node_id=config.node_id)
    _raise_file_limit()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it serves: see `_run`
    return_large_blocks()
    garbage = GarbageCollection()
    garbage.begin()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(config, garbage, network or RealNetwork(), on_ready, parent_fd))


async def _run(
    config: NodeConfig,
    garbage: GarbageCollection,
    network: Network,
    on_ready: Callable[[int, str], None],
    parent_fd: int | None,
) -> int:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()

    def stop(reason: str) -> None:
        if not stopped.done():
            stopped.set_result(reason)

    executor = ThreadExecutor()
    disk = RealDisk()
    node = Node(config, disk=disk, network=network, clock=SystemClock(), rng=SystemRng(), executor=executor)
    if node.metrics is not None:
        disk.on_synced = node.metrics.disk.on_synced
    starting: asyncio.Future[Any] = start_kept(node.start())
    status = FAILED
    try:
        # Until it serves, a signal ends the process at once, as a crash would: every step of a start bears that.
        await asyncio.wait([starting, node.failure], return_when=asyncio.FIRST_COMPLETED)
        if not node.failure.done():
            starting.result()  # raises what was in the way
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop, signal.Signals(number).name)
            if parent_fd is not None:
                loop.add_reader(parent_fd, _on_parent, parent_fd, stop, loop)
            garbage.freeze(_expected_blocks(node))
            collecting = node.tasks.start(garbage.run(partial(_expected_blocks, node)))
            told = node.listeners.first
            on_ready(told.port, str(Address(told.host, told.port)))
            await asyncio.wait({stopped, node.failure}, return_when=asyncio.FIRST_COMPLETED)
            collecting.cancel()
        if node.failure.done():
            logger.critical("node %s gives up: %s", config.node_id, node.failure.result())
        else:
            logger.info("node %s stops: %s", config.node_id, stopped.result())
            status = OK
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        try:
            if not await node.stop():
                status = FAILED
        except TidelogError as error:
            logger.error("node %s did not stop cleanly: %s", config.node_id, error)
            status = FAILED
        executor.close()
    return status


def _expected_blocks(node: Node) -> int:
    known_count = sum(len(topic.partitions) for topic in node.image.topics_by_name.values())
    requests_bytes = sum(memory.requests.used_bytes for memory in node.listeners.memory.values())
    sessions_bytes = node.fetch_sessions.partition_count * PARTITION_BYTES
    counted_bytes = requests_bytes + sessions_bytes + node.groups.memory_bytes + node.transactions.memory_bytes
    return expected_blocks(len(node.broker.partitions), known_count, counted_bytes)


def _on_parent(parent_fd: int, stop: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
    if not os.read(parent_fd, 64):
        loop.remove_reader(parent_fd)
        stop("the parent process is gone")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: twice the speed on large fetches. Everything works without it."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _raise_file_limit() -> None:
    """Each connection and each segment takes a file: take as many as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            logger.info("the file limit is raised from %s to %s, the most that this process may have", soft, hard)
        except (ValueError, OSError) as error:
            logger.warning("the file limit stays at %s (%s); connections beyond it are refused", soft, error)
