"""Records of SCRAM users. Neither shows what is kept of a password, wherever it is printed."""

from __future__ import annotations

from tidelog.metadata.scram_credentials import MECHANISM_NAMES, MECHANISM_NUMBERS, ScramCredential, ScramUser
from tidelog.wire.schema import bytes_, field, int8, int32, message, string


@message(api_key=11, versions="0", flexible="0+", kind="record")
class UserScramCredentialRecord:
    """A user has a password, or another one (KIP-900)."""

    name: str = field(string, doc="The user.")
    mechanism: int = field(int8, doc="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    salt: bytes = field(bytes_, doc="What the password was salted with.")
    stored_key: bytes = field(bytes_, doc="Whereby the broker knows who knows the password.")
    server_key: bytes = field(bytes_, doc="Whereby the broker shows that it knows the user.")
    iterations: int = field(int32, doc="How often the password was hashed.")

    def __repr__(self) -> str:
        return (
            f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism}, salt=<hidden>, "
            f"stored_key=<hidden>, server_key=<hidden>, iterations={self.iterations})"
        )


@message(api_key=22, versions="0", flexible="0+", kind="record")
class RemoveUserScramCredentialRecord:
    """A user has no password any more."""

    name: str = field(string, doc="The user.")
    mechanism: int = field(int8, doc="Of which credential: there may be one of the other mechanism.")


def scram_user_of(record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> ScramUser:
    """Whom a record is about."""
    return MECHANISM_NAMES.get(record.mechanism, str(record.mechanism)), record.name


def scram_credential_of(record: UserScramCredentialRecord) -> ScramCredential:
    """What a record brings."""
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def scram_record(user: ScramUser, credential: ScramCredential | None) -> object:
    """The record that brings a credential, or, with None, takes it away."""
    mechanism, name = user
    number = MECHANISM_NUMBERS[mechanism]
    if credential is None:
        return RemoveUserScramCredentialRecord(name=name, mechanism=number)
    return UserScramCredentialRecord(
        name=name,
        mechanism=number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
