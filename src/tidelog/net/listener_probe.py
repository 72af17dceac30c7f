"""What a listener speaks, asked after it hung up: one that expects another protocol than the client does so silently.

the client        the listener         what is seen                           what is asked
TLS               no TLS               the TLS handshake is not answered      whether it answers ApiVersions without
TLS               wants a certificate  an alert, or nothing if it came late   for the alert, with nothing else sent
no SASL           SASL                 the first request is not answered      which mechanisms it offers
no TLS            TLS                  an alert: `Connection` reads it        –
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tidelog.base.errors import AuthenticationError, Code, NetworkError, SaslAuthenticationError, TidelogError
from tidelog.base.ports import Network
from tidelog.net.address import Address
from tidelog.net.connection import ConnectionSettings, open_connection
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PROBE_TIMEOUT_MS = 3_000
"""How long a listener may take to show what it speaks."""


async def speaks_plaintext(network: Network, address: Address, settings: ConnectionSettings) -> bool:
    """Whether it answers without TLS.

    Args:
        network: without TLS.
    """
    try:
        probe = await open_connection(network, address, replace(_for_probe(settings), security=None))
    except TidelogError:
        return False
    probe.close()
    return True


async def alert_after_handshake(tls: Network, address: Address) -> AuthenticationError | None:
    """Why it ends a connection on which nothing was sent after the TLS handshake.

    With TLS 1.3 a broker looks at the client's certificate when the client is done already. If a request is on its way
    by then, the system may drop the alert with the rest of what it has received.
    """
    ending = _Ending()
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
            link = await tls.connect(address.host, address.port, ending)
            try:
                error = await ending.error
            finally:
                link.close()
    except AuthenticationError as refused:
        return refused
    except (NetworkError, TimeoutError):
        return None
    return error if isinstance(error, AuthenticationError) else None


async def check_no_sasl(network: Network, address: Address, settings: ConnectionSettings) -> None:
    """Ask which mechanisms it offers.

    Raises:
        SaslAuthenticationError: it waits for one of them.
    """
    try:
        probe = await open_connection(network, address, _for_probe(settings))
    except TidelogError:
        return
    try:
        offered = await probe.request(
            SaslHandshakeRequest(mechanism=""), SaslHandshakeResponse, timeout_ms=PROBE_TIMEOUT_MS, version=1
        )
    except TidelogError:
        return
    finally:
        probe.close()
    if offered.error_code == Code.UNSUPPORTED_SASL_MECHANISM:
        is_tls = settings.security is not None and settings.security.tls is not None
        raise SaslAuthenticationError(
            f"{address} asks who this client is, by SASL, and closes the connection because it does not say so: set"
            f" {settings.protocol_setting}={'SASL_SSL' if is_tls else 'SASL_PLAINTEXT'!r}, and sasl_mechanism to one of"
            f" {', '.join(offered.mechanisms)}"
        )


class _Ending:
    """Receives nothing, and waits for the end."""

    def __init__(self) -> None:
        self.error: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._dropped = memoryview(bytearray(1_024))

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._dropped

    def on_bytes(self, size_bytes: int) -> None:
        pass

    def on_closed(self, error: Exception | None) -> None:
        if not self.error.done():
            self.error.set_result(error)


def _for_probe(settings: ConnectionSettings) -> ConnectionSettings:
    timeout_ms = min(settings.connect_timeout_ms, PROBE_TIMEOUT_MS)
    return replace(settings, connect_timeout_ms=timeout_ms, consistency=None)
