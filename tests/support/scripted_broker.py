"""A peer on loopback that answers as a test says: whole clusters in memory, and brokers that misbehave."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from tidelog.wire import APIS, ApiKey, ConsistencyState, decode, decode_request_header, encode_response
from tidelog.wire.messages.api_18_api_versions import ApiVersion, ApiVersionsResponse

HANG_UP = object()
"""Instead of an answer: close the connection."""

SILENT = object()
"""Instead of an answer: nothing, now or later."""

Answer = Any
Handler = Callable[[Any, int], Answer | Awaitable[Answer]]


class ScriptedBroker:
    """A server whose answers are functions: `broker.on(ApiKey.METADATA, lambda request, version: response)`.

    A handler returns a response message, raw bytes (a whole frame, its size included), HANG_UP or SILENT; or is async.

    Attributes:
        requests: what came, as (API key, version, message).
        client_ids: of the requests.
        tokens: the consistency states that came in headers.
        token: what answers carry in theirs.
        versions: what it says that it serves; by default all that is declared.
        connections: how many were opened.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, Any]] = []
        self.client_ids: list[str | None] = []
        self.tokens: list[ConsistencyState | None] = []
        self.token: ConsistencyState | None = None
        self.versions = {key: (declared.min_version, declared.max_version) for key, declared in APIS.items()}
        self.connections = 0
        self.correlation_shift = 0
        self.port = 0
        self._handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: self._api_versions}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on(self, key: ApiKey, handler: Handler) -> None:
        """Answer requests of an API from now on."""
        self._handlers[key] = handler

    def messages(self, key: ApiKey) -> list[Any]:
        """The requests of one API that came, in order."""
        return [message for api_key, _, message in self.requests if api_key == key]

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and drop all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.hang_up()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hang_up(self) -> None:
        """Drop all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                if not await self._answer(frame, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        header, position = decode_request_header(frame)
        message = decode(APIS[header.api_key].request, frame, header.api_version, position)
        self.requests.append((header.api_key, header.api_version, message))
        self.client_ids.append(header.client_id)
        self.tokens.append(header.consistency_state)
        answer = self._handlers[header.api_key](message, header.api_version)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is HANG_UP:
            return False
        if answer is SILENT:
            return True
        if isinstance(answer, bytes):
            writer.write(answer)
        else:
            correlation_id = header.correlation_id + self.correlation_shift
            pieces = encode_response(
                header.api_key, header.api_version, correlation_id, answer, consistency_state=self.token
            )
            writer.write(b"".join(pieces))  # type: ignore[arg-type]  # nothing here lies on disk
        await writer.drain()
        return True

    def _api_versions(self, request: Any, version: int) -> ApiVersionsResponse:
        rows = [ApiVersion(key, low, high) for key, (low, high) in sorted(self.versions.items())]
        return ApiVersionsResponse(api_keys=rows)
