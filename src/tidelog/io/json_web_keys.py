"""Where the keys of an authorization server come from: a file, or a server that is asked on a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
from http.client import HTTPException
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidelog.base.errors import NetworkError

ANSWER_SECONDS_MAX = 5.0
SIZE_BYTES_MAX = 1 << 20


def read_keys(url: str) -> bytes:
    """The document at an address; waits for it. Raises NetworkError: it cannot be had; says why."""
    parts = urlsplit(url)
    try:
        if parts.scheme.lower() == "file":
            with open(unquote(parts.path), "rb") as file:
                content = file.read(SIZE_BYTES_MAX + 1)
        else:
            request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http(s) alone gets here
            with build_opener(_NoRedirects()).open(request, timeout=ANSWER_SECONDS_MAX) as answer:
                content = answer.read(SIZE_BYTES_MAX + 1)
    except HTTPError as error:
        error.close()
        raise NetworkError(f"HTTP {error.code} {error.reason}") from None
    except (OSError, ssl.CertificateError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise NetworkError(str(reason)) from None
    if len(content) > SIZE_BYTES_MAX:
        raise NetworkError(f"it is longer than {SIZE_BYTES_MAX} bytes")
    return content


async def fetch_keys(url: str) -> bytes:
    """As `read_keys`, without waiting on the loop. A server that hangs holds up neither disks nor the end of a node."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def settle(content: bytes | None, error: NetworkError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(content or b"")

    def work() -> None:
        content, failure = None, None
        try:
            content = read_keys(url)
        except NetworkError as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, content, failure)

    Thread(target=work, name="tidelog-json-web-keys", daemon=True).start()
    return await future


class _NoRedirects(HTTPRedirectHandler):
    """Keys come from where the settings say, and from nowhere else."""

    def redirect_request(self, *_args: object, **_names: object) -> None:
        return None
