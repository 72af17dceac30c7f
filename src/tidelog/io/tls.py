"""Streams over TLS, out and in: who the broker is, and who the client is, by certificates in PEM."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from asyncio import sslproto
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidelog.base.certificates import Certificates
from tidelog.base.errors import ConfigError, NetworkError, SslAuthenticationError
from tidelog.base.ports import Admit, Link, Receiver
from tidelog.io.acceptor import Acceptor
from tidelog.io.network import RealNetwork, Stream, connect_reason

if TYPE_CHECKING:
    from tidelog.io.stores import Store

TO_PKCS12 = (
    "A JKS store becomes PKCS#12 by `keytool -importkeystore -srckeystore store.jks -destkeystore store.p12"
    " -deststoretype PKCS12`"
)
TO_PEM = f"A PKCS#12 store is read with the type PKCS12. {TO_PKCS12}"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFIED = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_NO_TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
"""A fatal alert, `protocol_version`."""
HANDSHAKE_SECONDS_MAX = 20
"""How long somebody who connected may take to shake hands."""
SHUTDOWN_SECONDS_MAX = 5
READ_BUFFER_BYTES = 32 * 1024
"""Of ciphertext that came and was not decrypted yet, of each connection: no more is taken from the stream then."""
RECEIVED_BYTES_MAX = 256 * 1024
"""So much is taken from a stream at a time, as asyncio takes it."""
RECORD_BYTES_MAX = 20 * 1024
"""More than a record of TLS takes: part of one may stay undecrypted while the rest of it is read."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_PEER_IS_GONE = (7, 8)
"""States of a stream: the peer reset it (TCP_CLOSE), or sends nothing more (TCP_CLOSE_WAIT)."""
WRITE_BYTES = 64 * 1024
"""So much is encrypted at a time. OpenSSL's buffer stays as large as it ever was, for as long as its connection."""
_BEGIN = "-----BEGIN CERTIFICATE-----"
_OTHER_NAMES = (62, 63, 64)  # of OpenSSL's verification: host, e-mail, IP address
_OVER, _NOT_YET = 10, 9
_UNTRUSTED = (2, 18, 19, 20, 21)  # an issuer that is not known, or a certificate that signed itself
_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
)


def client_context(certificates: Certificates) -> ssl.SSLContext:
    """What a client's connections are made with: TLS 1.2 or newer.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be. Names the option.
    """
    context = _trusting(certificates, ssl.Purpose.SERVER_AUTH)
    context.check_hostname = certificates.checks_host_name
    _identify(context, certificates)
    return context


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """What a listener's connections are accepted with.

    Raises:
        ConfigError: as `client_context`; or there is no certificate.
    """
    context = _trusting(certificates, ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = _VERIFIED[certificates.client_authentication]
    if certificates.client_authentication != "none" and not context.get_ca_certs():
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    if certificates.certificate_path is None and certificates.certificate_chain is None:
        raise ConfigError(
            f"{certificates.spelled('ssl_keystore_location')} is missing: a listener with TLS needs a certificate and"
            f" its key, in one PEM file. {TO_PEM}"
        )
    _identify(context, certificates)
    return context


def _trusting(certificates: Certificates, purpose: ssl.Purpose) -> ssl.SSLContext:
    path, given = certificates.authorities_path, certificates.authorities
    what = certificates.spelled("ssl_truststore_certificates" if path is None else "ssl_truststore_location")
    if path is not None:
        what = f"{what}={path!r}"
    password = certificates.authorities_store_password
    if path is not None and password is not None:
        store = _read_store(certificates, path, what, password, "ssl_truststore_password")
        if not store.authorities:
            raise ConfigError(f"{what}: it holds no certificate of an authority")
        path, given = None, store.authorities
    try:
        context = ssl.create_default_context(purpose, cafile=path, cadata=given)
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
            raise ConfigError(f"{what}: no certificate in PEM: it begins with {_BEGIN}. {TO_PEM}") from None
        raise ConfigError(f"{what}: it cannot be read: {error.strerror}") from None
    versions = sorted(_VERSIONS[version] for version in certificates.versions)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    return context


def _identify(context: ssl.SSLContext, certificates: Certificates) -> None:
    """Load who this side says that it is."""
    if certificates.certificate_path is not None:
        path, password = certificates.certificate_path, certificates.certificate_store_password
        what = f"{certificates.spelled('ssl_keystore_location')}={path!r}"
        if password is None:
            _load_certificate(context, path, what, certificates)
            return
        store = _read_store(certificates, path, what, password, "ssl_keystore_password")
        if store.key is None:
            raise ConfigError(f"{what}: it holds no private key")
        _load_text(context, store.key, what, certificates)
    elif certificates.certificate_chain is not None:
        both = f"{certificates.key or ''}\n{certificates.certificate_chain}"
        _load_text(context, both, certificates.spelled("ssl_keystore_certificate_chain"), certificates)


def _load_text(context: ssl.SSLContext, both: str, what: str, certificates: Certificates) -> None:
    descriptor, name = tempfile.mkstemp(prefix="tidelog-")  # OpenSSL reads files alone; this one is ours alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(both)
        _load_certificate(context, name, what, certificates)
    finally:
        os.unlink(name)


def _read_store(certificates: Certificates, path: str, what: str, password: str, option: str) -> Store:
    from tidelog.io.stores import read_store

    return read_store(path, password or None, what, certificates.spelled(option))


def _load_certificate(context: ssl.SSLContext, path: str, what: str, certificates: Certificates) -> None:
    password = certificates.key_password
    try:
        context.load_cert_chain(path, password=lambda: password or "")  # without one, OpenSSL asks the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "the key is not that of the first certificate"
        elif "BEGIN ENCRYPTED PRIVATE KEY" in _text(path) or "Proc-Type: 4,ENCRYPTED" in _text(path):
            option = certificates.spelled("ssl_key_password")
            why = f"the key cannot be decrypted: {option} is " + ("wrong" if password else "missing")
        else:
            why = f"a certificate and its private key are expected, both in PEM ({_BEGIN}). {TO_PEM}"
        raise ConfigError(f"{what}: {why}") from None
    except OSError as error:
        raise ConfigError(f"{what}: it cannot be read: {error.strerror}") from None


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class TlsNetwork(RealNetwork):
    """Connects over TLS.

    Args:
        context: with what is trusted, and with the client's certificate if it has one.
        certificates: what the context was made of; None if it is the caller's own.
    """

    def __init__(self, context: ssl.SSLContext, certificates: Certificates | None = None) -> None:
        self.context = context
        self._certificates = certificates

    @staticmethod
    def to_nodes(certificates: Certificates) -> TlsNetwork:
        """One that connects as a client with these. Raises ConfigError: they cannot be used."""
        return TlsNetwork(client_context(certificates), certificates)

    def renew(self, certificates: Certificates) -> None:
        """Read the files anew, for connections from now on. Raises ConfigError: all stays as it was."""
        self.context = client_context(certificates)
        self._certificates = certificates

    async def connect(self, host: str, port: int, receiver: Receiver) -> Link:
        """Open a stream and shake hands. `receiver.on_closed` is called once, whenever and whyever it ends.

        Raises:
            SslAuthenticationError: one side does not accept the other, or speaks no TLS.
            NetworkError: names the address and the reason. Its cause is a `ConnectionError` if the peer hung up, as one
                does that speaks no TLS.
        """
        loop = asyncio.get_running_loop()
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            _, stream = await loop.create_connection(
                lambda: _TlsStream(receiver, loop, where, self._certificates),
                host,
                port,
                ssl=self.context,
                server_hostname=host,
            )
        except ssl.SSLError as error:
            raise handshake_error(where, error, self._certificates) from None
        except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
            raise NetworkError(
                f"cannot connect to {where}: it hung up during the TLS handshake; does its listener speak TLS?"
            ) from error
        except OSError as error:
            raise NetworkError(f"cannot connect to {where}: {connect_reason(error)}") from None
        return stream


class TlsListeningNetwork(RealNetwork):
    """Listens over TLS. Raises ConfigError: a file cannot be used; names its setting."""

    def __init__(self, certificates: Certificates) -> None:
        self._context = server_context(certificates)
        self._received = memoryview(bytearray(RECEIVED_BYTES_MAX))
        # One at a time: who connects all at once is to leave the other cores to those who are there.
        self._handshakes: Executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidelog-tls")

    def renew(self, certificates: Certificates) -> None:
        """Read the files anew, for connections from now on. Raises ConfigError: all stays as it was."""
        self._context = server_context(certificates)

    def listen(
        self, host: str | None, port: int, *, backlog: int, admit: Admit, on_trouble: Callable[[OSError], None]
    ) -> Acceptor:
        """As the `Network` says. Who does not shake hands in HANDSHAKE_SECONDS_MAX is hung up on."""
        acceptor = Acceptor(admit=admit, on_trouble=on_trouble, open_stream=self._open)
        acceptor.bind(host, port, backlog=backlog)
        return acceptor

    async def _open(self, stream: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
        loop = asyncio.get_running_loop()
        shaken_hands = loop.create_future()
        tls = _AcceptedTls(
            loop,
            protocol,
            self._context,
            shaken_hands,
            stream=stream,
            received=self._received,
            handshakes=self._handshakes,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS_MAX,
        )
        try:
            await loop.connect_accepted_socket(lambda: tls, stream)
            await shaken_hands
        except asyncio.CancelledError:
            shaken_hands.cancel()
            tls.abandon()
            raise


class _AcceptedTls(sslproto.SSLProtocol):
    """asyncio's TLS, of whatever loop, with a few changes.

    It holds little of what came, and nothing of what goes out: that is with the stream, whose limits are those of the
    connection, so that a peer that does not read is noticed at once, and all that it leaves is counted. asyncio lets
    the stream hold a whole answer that it tells nobody of.

    And a peer is told why it is refused: asyncio closes the stream of a handshake that failed without sending the alert
    that OpenSSL has made. For a peer that speaks no TLS OpenSSL makes none; Java does, and clients know by it what they
    have connected to.

    And the steps of a handshake are taken on a thread: they sign, and verify certificates, for which OpenSSL lets go
    of the interpreter. On the event loop, each would keep all others waiting for up to 2 ms. None is taken with a peer
    that has left: nobody reads meanwhile, so that the stream itself is asked.

    Args:
        stream: what was accepted.
        received: where ciphertext comes to, for all connections of one event loop: what came is with OpenSSL before
            the loop turns to another. asyncio has a buffer for each, idle ones too.
        handshakes: takes the steps.
    """

    max_size = 0  # of a buffer of its own

    if TYPE_CHECKING:
        _app_protocol: Any
        _app_state: sslproto.AppProtocolState
        _app_transport: Any
        _incoming: ssl.MemoryBIO
        _loop: asyncio.AbstractEventLoop
        _transport: Any
        _write_backlog: Any
        _outgoing: ssl.MemoryBIO
        _ssl_buffer_view: memoryview
        _sslobj: ssl.SSLObject
        _state: sslproto.SSLProtocolState

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        shaken_hands: asyncio.Future[None],
        *,
        stream: socket.socket,
        received: memoryview,
        handshakes: Executor,
        **options: Any,
    ) -> None:
        super().__init__(loop, protocol, context, shaken_hands, **options)
        self._stream = stream
        self._ssl_buffer_view = received
        self._handshakes = handshakes

    def get_buffer(self, n: int) -> memoryview:
        return self._ssl_buffer_view

    def abandon(self) -> None:
        """Hang up in the middle of the handshake."""
        self._app_transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        # A step may be writing to what was there, without the interpreter's lock, and asyncio empties it.
        self._outgoing = ssl.MemoryBIO()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        if self._app_state is sslproto.AppProtocolState.STATE_CON_MADE:
            self._app_writing_paused = True
            self._app_protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._app_writing_paused and self._app_protocol is not None:
            self._app_writing_paused = False
            self._app_protocol.resume_writing()

    def _set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._incoming_high_water = high or READ_BUFFER_BYTES
        self._incoming_low_water = low or RECORD_BYTES_MAX

    def _set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def _control_app_writing(self) -> None:
        """The stream does."""

    def _get_write_buffer_size(self) -> int:
        there = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return int(there + self._write_buffer_size)

    def _do_write(self) -> None:
        try:
            while self._write_backlog and self._transport is not None and not self._transport.is_closing():
                rest = memoryview(self._write_backlog[0])
                count = self._sslobj.write(rest[:WRITE_BYTES])
                self._write_buffer_size -= count
                if count < len(rest):
                    self._write_backlog[0] = rest[count:]
                else:
                    self._write_backlog.popleft()
                self._process_outgoing()
        except (ssl.SSLWantReadError, ssl.SSLSyscallError):
            self._process_outgoing()

    def _process_outgoing(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def _do_handshake(self) -> None:
        if self._incoming.pending:  # the client speaks first
            self._transport.pause_reading()  # what comes meanwhile would go to the same buffer
            step = self._loop.run_in_executor(self._handshakes, self._step)
            step.add_done_callback(self._on_step)

    def _step(self) -> bool:
        """On the thread. Returns whether the handshake is complete. Raises ssl.SSLError: it failed."""
        # Nobody has hung up while this waited for its turn.
        if self._state is sslproto.SSLProtocolState.DO_HANDSHAKE and not self._peer_has_left():
            with suppress(ssl.SSLWantReadError, ssl.SSLSyscallError):
                self._sslobj.do_handshake()
                return True
        return False

    def _peer_has_left(self) -> bool:
        if _TCP_INFO is None:
            return False
        try:
            return self._stream.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in _PEER_IS_GONE
        except OSError:  # it was closed here
            return True

    def _on_step(self, step: asyncio.Future[bool]) -> None:
        error = None if step.cancelled() else step.exception()
        if step.cancelled() or self._state is not sslproto.SSLProtocolState.DO_HANDSHAKE or self._transport is None:
            return  # the node stops, or whoever connected is gone
        self._transport.resume_reading()
        if error is not None or step.result():
            self._on_handshake_complete(error)
        else:
            self._process_outgoing()

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        if isinstance(handshake_exc, ssl.SSLError):
            if handshake_exc.reason in _NO_TLS and self._transport is not None:
                self._transport.write(_NO_TLS_ALERT)
            self._process_outgoing()
        super()._on_handshake_complete(handshake_exc)


class _TlsStream(Stream):
    """A stream whose end may be for the client's certificate: with TLS 1.3 that is said after the handshake."""

    def __init__(
        self, receiver: Receiver, loop: asyncio.AbstractEventLoop, where: str, certificates: Certificates | None
    ) -> None:
        super().__init__(receiver, loop)
        self._where = where
        self._certificates = certificates

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError) and _is_alert(exc):
            exc = handshake_error(self._where, exc, self._certificates)
        super().connection_lost(exc)


def _is_alert(error: ssl.SSLError) -> bool:
    reason = error.reason or ""
    return "ALERT" in reason and any(word in reason for word in (*_ABOUT_CERTIFICATES, "HANDSHAKE_FAILURE"))


def handshake_error(where: str, error: ssl.SSLError, certificates: Certificates | None) -> SslAuthenticationError:
    """What is wrong, with whom, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return SslAuthenticationError(f"{where}: {_why_unverified(where, error, certificates)}")
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        is_node = certificates is not None and certificates.of_listener is not None
        setting = "listener.security.protocol.map" if is_node else "security_protocol"
        return SslAuthenticationError(
            f"{where} does not speak TLS: it answers the TLS handshake with something else."
            f" If its listener is PLAINTEXT or SASL_PLAINTEXT, set {setting} to that"
        )
    alert = reason.replace("_", " ").lower()
    keystore = (certificates or Certificates()).spelled("ssl_keystore_location")
    if _is_alert(error):
        has_own = certificates is None or bool(certificates.certificate_path or certificates.certificate_chain)
        if not has_own:
            return SslAuthenticationError(
                f"{where}: the broker refuses the connection ({alert}), and this client shows no certificate:"
                f" if the listener wants one (ssl.client.auth=required), set {keystore}"
            )
        return SslAuthenticationError(
            f"{where}: the broker refuses the connection ({alert}): it may not trust the authority of this client's"
            f" certificate ({keystore}), or the certificate has expired"
        )
    return SslAuthenticationError(f"{where}: the TLS handshake failed: {alert}")


def _why_unverified(where: str, error: ssl.SSLCertVerificationError, certificates: Certificates | None) -> str:
    truststore = (certificates or Certificates()).spelled("ssl_truststore_location")
    checked = (certificates or Certificates()).spelled("ssl_endpoint_identification_algorithm")
    said, code = error.verify_message.rstrip("."), error.verify_code
    if code in _OTHER_NAMES:
        return (
            f"the broker's certificate is for another name ({said}). Connect by a name that it is for, or have the"
            f" broker's certificate and advertised.listeners agree; {checked}='' checks no"
            " name, and lets anybody whose certificate is trusted be the broker"
        )
    if code == _OVER:
        return f"the broker's certificate is too old ({said}): the broker needs a new one, or the clock here is wrong"
    if code == _NOT_YET:
        return f"the broker's certificate is not valid yet ({said}): is the clock right, here and there?"
    if code in _UNTRUSTED:
        trusted = "those that the ssl_context trusts"
        if certificates is not None and certificates.authorities_path is not None:
            trusted = f"those in {certificates.authorities_path}"
        elif certificates is not None and certificates.authorities is not None:
            trusted = f"those in {certificates.spelled('ssl_truststore_certificates')}"
        elif certificates is not None:
            trusted = f"the system's, since no {truststore} is given"
        return (
            f"the broker's certificate is signed by no authority that is trusted here ({said}). Trusted are {trusted}:"
            f" name a file with the authority's certificate in {truststore}"
        )
    return f"the broker's certificate is not accepted: {said}"
