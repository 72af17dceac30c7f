"""`/metrics` and `/ready` over HTTP/1.1, on a listener of their own; and nothing else.

Whoever can reach the port may ask, so the little there is is bounded: the size of a request, the time it may take to
come and its answer to be taken, and how many may ask at once. One request a connection.

    GET /metrics    200, in the text format of Prometheus, or in OpenMetrics' if that is accepted
    GET /ready      200 while the node serves; 503 with the reason while it does not
"""

from __future__ import annotations

import asyncio
import logging
from types import ModuleType
from typing import TYPE_CHECKING

from tidelog.base.errors import DiskError, NetworkError
from tidelog.base.ports import Executor
from tidelog.io.acceptor import bind_reason
from tidelog.server.tasks import Tasks

if TYPE_CHECKING:
    from tidelog.server.observe.observed_node import ObservedNode

logger = logging.getLogger("tidelog.server.metrics")

HEAD_SIZE_BYTES_MAX = 8 << 10
SECONDS_MAX = 10.0
CONNECTIONS_MAX = 16
DISK_SECONDS_MAX = 1.0
LAGS_SECONDS_MAX = 2.0

TEXT = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Page = tuple[int, str, bytes]
"""Status, content type, body."""


class MetricsListener:
    """Serves what is known of one node.

    Args:
        executor: writes the metrics down, which may take longer than the event loop has.
    """

    def __init__(self, node: ObservedNode, executor: Executor, tasks: Tasks) -> None:
        self._node = node
        self._executor = executor
        self._server: asyncio.Server | None = None
        self._tasks = tasks.branch("metrics")
        self._requests = self._tasks.branch("requests for metrics")
        self._room: dict[str, tuple[int, int]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Bind the port, and serve metrics from now on.

        Raises:
            NetworkError: the port cannot be had.
        """
        try:
            self._server = await asyncio.start_server(
                self._on_connected, host or None, port, limit=HEAD_SIZE_BYTES_MAX, backlog=CONNECTIONS_MAX
            )
        except OSError as error:
            raise NetworkError(f"metrics.listener: cannot listen on {host}:{port}: {bind_reason(error)}") from error
        bound = self._server.sockets[0].getsockname()[1]
        logger.info("metrics and readiness are served on http://%s:%s", host or "127.0.0.1", bound)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.end()

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._requests) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._requests.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                head, page = await self._read_and_answer(reader)
                writer.write(_encode(page, with_body=not head.startswith(b"HEAD ")))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # it is gone, or too slow
        except Exception:
            logger.exception("a request for metrics failed in an unexpected way")
        finally:
            writer.transport.abort()

    async def _read_and_answer(self, reader: asyncio.StreamReader) -> tuple[bytes, Page]:
        try:
            async with asyncio.timeout(SECONDS_MAX / 2):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b"", (431, TEXT, b"at most 8 KiB of request are read\n")
        except asyncio.IncompleteReadError as error:
            return b"", (400, TEXT, b"this is no HTTP request\n" if error.partial else b"")
        except TimeoutError:
            return b"", (408, TEXT, b"the request did not come to its end\n")
        return head, await self._answer(head)

    async def _answer(self, head: bytes) -> Page:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, TEXT, b"this is no HTTP request\n"
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return 405, TEXT, b"GET or HEAD, nothing else\n"
        path = target.partition("?")[0]
        if path == "/ready":
            why = self._node.not_ready
            return (200, TEXT, b"ready\n") if why is None else (503, TEXT, f"not ready: {why}\n".encode())
        if path == "/metrics":
            return await self._metrics(lines[1:])
        return 404, TEXT, b"/metrics and /ready are served here\n"

    async def _metrics(self, lines: list[str]) -> Page:
        accepted = ""
        for line in lines:
            name, _, value = line.partition(":")
            if name.lower() == "accept":
                accepted = value.strip()
        export = await self._executor.run(_load_export)
        await self._look_at_disks()
        await self._measure_lags()
        families = await export.collect(self._node, self._room)
        return await self._executor.run(lambda: export.write_down(families, accepted))

    async def _look_at_disks(self) -> None:
        """Ask each disk for its room, which one that hangs may never answer: then what it said last is shown."""
        if self._looking is None or self._looking.done():
            self._looking = self._tasks.start(self._measure_room())
        await asyncio.wait({self._looking}, timeout=DISK_SECONDS_MAX)

    async def _measure_lags(self) -> None:
        """Have the lag of groups measured, which may have to wait for other brokers: then the last measure is shown."""
        lags = self._node.group_lags
        if lags is None:
            return
        if self._measuring is None or self._measuring.done():
            self._measuring = self._tasks.start(lags.measure())
        await asyncio.wait({self._measuring}, timeout=LAGS_SECONDS_MAX)

    async def _measure_room(self) -> None:
        for held in self._node.files.directories:
            try:
                self._room[held.path] = await self._node.files.room_in(held)
            except DiskError:
                self._room.pop(held.path, None)


def _load_export() -> ModuleType:
    """Its library takes 60 ms to import: off the loop, and not before somebody asks."""
    from tidelog.server.observe import metrics_export

    return metrics_export


def _encode(page: Page, *, with_body: bool) -> bytes:
    status, content_type, body = page
    allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{allow}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
