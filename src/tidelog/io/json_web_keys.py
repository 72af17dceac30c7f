"""Where the keys of an authorization server come from: a file, or a server that is asked on a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidelog.base.errors import NetworkError
from tidelog.security.json_web_tokens import TokenKeys

CONNECT_SECONDS_MAX = 5.0
FETCH_SECONDS_MAX = 10.0
"""Of all of it, but for the look-up of the server's name."""
SIZE_BYTES_MAX = 256 * 1024
PIECE_SIZE_BYTES = 64 * 1024


def read_keys(url: str) -> TokenKeys:
    """The keys at an address; waits for them.

    Raises:
        NetworkError: they cannot be had; says why.
        ValueError: they are none.
    """
    deadline = time.monotonic() + FETCH_SECONDS_MAX
    try:
        parts = urlsplit(url)
        if parts.scheme.lower() == "file":
            with open(unquote(parts.path), "rb") as file:
                content = file.read(SIZE_BYTES_MAX + 1)
        else:
            request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http(s) alone gets here
            with build_opener(_NoRedirects()).open(request, timeout=CONNECT_SECONDS_MAX) as answer:
                content = _all_of(answer, deadline)
    except HTTPError as error:
        error.close()
        raise NetworkError(f"HTTP {error.code} {error.reason}") from None
    except (OSError, ssl.CertificateError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise NetworkError(str(reason)) from None
    if len(content) > SIZE_BYTES_MAX:
        raise NetworkError(f"it is longer than {SIZE_BYTES_MAX} bytes")
    return TokenKeys(content)


def _all_of(answer: HTTPResponse, deadline: float) -> bytes:
    content = b""
    while len(content) <= SIZE_BYTES_MAX and (piece := answer.read1(PIECE_SIZE_BYTES)):
        content += piece
        if time.monotonic() > deadline:
            raise NetworkError(f"not all of it came within {FETCH_SECONDS_MAX:.0f} s")
    return content


def fetch_keys(url: str) -> asyncio.Future[TokenKeys]:
    """As `read_keys`, without waiting on the loop. A server that hangs holds up neither disks nor the end of a node."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[TokenKeys] = loop.create_future()

    def settle(keys: TokenKeys | None, error: Exception | None) -> None:
        if future.done():
            return
        if keys is not None:
            future.set_result(keys)
        else:
            future.set_exception(error or NetworkError("no keys"))

    def work() -> None:
        keys: TokenKeys | None = None
        failure: Exception | None = None
        try:
            keys = read_keys(url)
        except (NetworkError, ValueError) as error:
            failure = error
        except Exception as error:  # whatever it is, somebody waits for it
            failure = NetworkError(repr(error))
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, keys, failure)

    Thread(target=work, name="tidelog-json-web-keys", daemon=True).start()
    return future


class _NoRedirects(HTTPRedirectHandler):
    """Keys come from where the settings say, and from nowhere else."""

    def redirect_request(self, *_args: object, **_names: object) -> None:
        return None
