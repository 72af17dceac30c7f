"""Stores of keys and certificates as Java keeps them, in PKCS#12 (RFC 7292). OpenSSL's `ssl` reads PEM alone."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.errors import ConfigError, MissingExtraError


class Store(NamedTuple):
    """What a store holds, in PEM.

    Attributes:
        key: the private key with its certificate and those that lead to the authority; None if the store has no key.
        authorities: the certificates that belong to no key.
    """

    key: str | None
    authorities: str


def read_store(path: str, password: str | None, what: str, password_option: str) -> Store:
    """Read a PKCS#12 store.

    Args:
        what: the option and its value, for errors; `password_option` likewise.

    Raises:
        ConfigError: the file cannot be read, is no such store, or the password is wrong.
        MissingExtraError: the library that reads it is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise MissingExtraError(f"{what}: a PKCS#12 store", "security") from None
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{what}: it cannot be read: {error.strerror}") from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error):
            wrong = "wrong" if password is not None else "missing"
            raise ConfigError(f"{what}: it cannot be decrypted: {password_option} is {wrong}") from None
        raise ConfigError(f"{what}: it is no PKCS#12 store. `keytool -list -keystore FILE` says what it is") from None
    others = "".join(
        one.certificate.public_bytes(serialization.Encoding.PEM).decode() for one in store.additional_certs
    )
    if store.key is None:
        return Store(None, others)
    key = store.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    own = "" if store.cert is None else store.cert.certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Store(key + own + others, others)
