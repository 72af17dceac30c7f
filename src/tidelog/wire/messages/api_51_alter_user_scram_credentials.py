"""AlterUserScramCredentials (key 51): give users SCRAM passwords, or take them away (KIP-554).

A client salts and hashes the password before it sends it. Who learns the hash can still connect as the user.
"""

from __future__ import annotations

from tidelog.wire.schema import array, bytes_, field, int8, int16, int32, message, string, struct


@struct
class ScramCredentialDeletion:
    """A password that is to go."""

    name: str = field(string, doc="The user.")
    mechanism: int = field(int8, doc="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")


@struct
class ScramCredentialUpsertion:
    """A password that is to be, in place of an earlier one if there is one."""

    name: str = field(string, doc="The user.")
    mechanism: int = field(int8, doc="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    iterations: int = field(int32, doc="How often the password was hashed.")
    salt: bytes = field(bytes_, doc="What it was salted with: random, and made for this password.")
    salted_password: bytes = field(bytes_, doc="The password, salted and hashed.")

    def __repr__(self) -> str:
        return (
            f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, "
            f"iterations={self.iterations}, salt=<hidden>, salted_password=<hidden>)"
        )


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Change passwords."""

    deletions: list[ScramCredentialDeletion] = field(
        array(ScramCredentialDeletion), default_factory=list, doc="The passwords to remove."
    )
    upsertions: list[ScramCredentialUpsertion] = field(
        array(ScramCredentialUpsertion), default_factory=list, doc="The passwords to set."
    )


@struct
class AlterUserScramCredentialsResult:
    """What became of one user."""

    user: str = field(string, doc="The user.")
    error_code: int = field(int16, default=0, doc="0 if all that was asked of the user is done; else none of it is.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it is not.")


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """Whether the passwords are changed."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    results: list[AlterUserScramCredentialsResult] = field(
        array(AlterUserScramCredentialsResult), default_factory=list, doc="Per user that is named."
    )
