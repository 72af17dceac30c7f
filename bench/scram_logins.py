"""Logs in by SCRAM over TLS at a steady pace, each time on a new connection: the load of the benchmark of logins.

    python bench/scram_logins.py PORT AUTHORITY USER PASSWORD PER_SECOND

It ends when its stdin closes, and then prints how many logins there were, and the longest in ms. The keys are derived
from the password once, as clients do that stay: the broker has the same to do for each.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import ssl
import sys
import time
from typing import Any

from harness import receive_exactly

from tidelog.security.scram import ScramExchange, ScramSecret
from tidelog.wire import ApiKey, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

HOST = "127.0.0.1"
MECHANISM = "SCRAM-SHA-256"


def ask(stream: socket.socket, key: ApiKey, version: int, request: object, response: type[Any]) -> Any:
    pieces: list[Any] = encode_request(key, version, 1, "logins", request)
    stream.sendall(b"".join(pieces))
    frame = receive_exactly(stream, int.from_bytes(receive_exactly(stream, 4)))
    _, _, position = decode_response_header(frame, key, version)
    answer = decode(response, frame[position:], version, 0)
    assert answer.error_code == 0, answer
    return answer


def log_in(context: ssl.SSLContext, port: int, secret: ScramSecret) -> None:
    """Raises AssertionError, OSError, SaslAuthenticationError: it did not go through."""
    with (
        socket.create_connection((HOST, port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as stream,
    ):
        ask(stream, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=MECHANISM), SaslHandshakeResponse)
        exchange = ScramExchange(secret, secrets.token_hex(16))
        said: bytes | None = exchange.first_message()
        while said is not None:
            request = SaslAuthenticateRequest(auth_bytes=said)
            answer = ask(stream, ApiKey.SASL_AUTHENTICATE, 2, request, SaslAuthenticateResponse)
            said = exchange.on_answer(answer.auth_bytes)


def main(port: str, authority: str, user: str, password: str, per_second: str) -> None:
    context = ssl.create_default_context(cafile=authority)
    secret = ScramSecret(MECHANISM, user, password)
    interval, due = 1 / float(per_second), time.monotonic()
    count, longest = 0, 0.0
    while not select.select([sys.stdin], [], [], max(due - time.monotonic(), 0))[0]:
        began = time.monotonic()
        log_in(context, int(port), secret)
        longest = max(longest, time.monotonic() - began)
        count += 1
        due += interval
    print(json.dumps({"count": count, "longest_ms": longest * 1e3}))


if __name__ == "__main__":
    main(*sys.argv[1:])
