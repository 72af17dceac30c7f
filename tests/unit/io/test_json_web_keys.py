"""Keys are read from files and from servers, and what goes wrong there is told in a line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from threading import Thread

import pytest

from tidelog.base.errors import NetworkError
from tidelog.cli.ports import free_ports
from tidelog.io.json_web_keys import SIZE_BYTES_MAX, fetch_keys, read_keys
from tidelog.security.json_web_tokens import TokenKeys, TokenRules

pytest.importorskip("joserfc")
from support.fixtures.json_web_tokens import Signer

SIGNER = Signer("one")
KEYS = SIGNER.key_set()
CLAIMS = {"sub": "alice", "iat": 1, "exp": 3}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = {"/keys": 200, "/long": 200, "/moved": 302}.get(self.path, 503)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(b"x" * (SIZE_BYTES_MAX + 1) if self.path == "/long" else KEYS)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing to say."""


async def fetched(url: str) -> TokenKeys:
    return await fetch_keys(url)


def whose(keys: TokenKeys) -> str:
    return keys.identity(SIGNER.token(CLAIMS), TokenRules(), 2_000).name


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with TCPServer(("127.0.0.1", 0), _Handler) as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


def test_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a b.json"
    file.write_bytes(KEYS)
    assert whose(read_keys(file.as_uri())) == "alice"
    assert whose(asyncio.run(fetched(file.as_uri()))) == "alice"


def test_servers_are_asked(server: str) -> None:
    assert whose(read_keys(f"{server}/keys")) == "alice"
    assert whose(asyncio.run(fetched(f"{server}/keys"))) == "alice"


@pytest.mark.parametrize(("path", "says"), [("/moved", "302"), ("/gone", "503"), ("/long", "longer than 262144")])
def test_what_is_not_the_keys_is_told(server: str, path: str, says: str) -> None:
    with pytest.raises(NetworkError, match=says):
        read_keys(server + path)
    with pytest.raises(NetworkError, match=says):
        asyncio.run(fetched(server + path))


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", [None])
    for url, says in (
        ((tmp_path / "none").as_uri(), "No such file"),
        (tmp_path.as_uri(), "directory"),
        (f"http://127.0.0.1:{port}/", "refused"),
        ("http://127.0.0.1:x/", "port"),
        ("http://[127.0.0.1/", "Invalid IPv6"),
    ):
        with pytest.raises(NetworkError, match=says):
            read_keys(url)
