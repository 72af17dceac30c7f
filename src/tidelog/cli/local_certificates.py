"""Certificates of a local cluster: an authority of its own, and what it has signed for its nodes."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Collection

from tidelog.base.errors import MissingExtraError

AUTHORITY_FILE = "authority.pem"
NODES_FILE = "nodes.pem"
LOOPBACK = "127.0.0.1"
_NAMES_FILE = "nodes.names"
_DAYS = 3_650


def write_certificates(directory: str, hosts: Collection[str]) -> None:
    """Write `authority.pem`, and `nodes.pem` with the key; nothing where both are there and name these hosts.

    The authority's key is not kept: nodes that get another name get another authority.

    Args:
        directory: exists.
        hosts: the names and addresses that nodes are called by; localhost is one in any case.

    Raises:
        MissingExtraError: the library that makes them is not installed.
        OSError: cannot be written.
    """
    files = [os.path.join(directory, name) for name in (AUTHORITY_FILE, NODES_FILE)]
    names_file = os.path.join(directory, _NAMES_FILE)
    named_before: list[str] = []
    if all(map(os.path.exists, files)):
        named_before = _lines_of(names_file) or [LOOPBACK]
        if set(hosts) <= {*named_before, "localhost"}:
            return
    all_names = list(dict.fromkeys(["localhost", *named_before, *hosts]))
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise MissingExtraError("a secured cluster", "security") from None

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def signed(
        subject: str,
        key: ec.EllipticCurvePrivateKey,
        signing: ec.EllipticCurvePrivateKey,
        *extensions: x509.ExtensionType,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("a local Tidelog cluster"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(signing, hashes.SHA256())

    authority_key, node_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    authority = signed("a local Tidelog cluster", authority_key, authority_key, constraints)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(one) if (ip := _ip_of(one)) is None else x509.IPAddress(ip) for one in all_names]
    )
    node = signed("nodes", node_key, authority_key, x509.BasicConstraints(ca=False, path_length=None), names)
    pem, key_format = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = node_key.private_bytes(pem, key_format, serialization.NoEncryption())
    write_secret(files[1], (key + node.public_bytes(pem)).decode())
    write_secret(files[0], authority.public_bytes(pem).decode())
    write_secret(names_file, "".join(f"{one}\n" for one in all_names))


def _ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _lines_of(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:  # an earlier release made the certificates, for one address
        return []


def write_secret(path: str, text: str) -> None:
    """A file that its owner alone may read, whole or not at all."""
    descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)  # it may have been there
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.tmp", path)
