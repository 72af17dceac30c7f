"""DescribeUserScramCredentials (key 50): who has a SCRAM password, and for which mechanisms (KIP-554).

Nobody is told what is kept of it.
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, message, string, struct


@struct
class UserName:
    """A user that is asked for."""

    name: str = field(string, doc="The user.")


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Ask for users."""

    users: list[UserName] | None = field(
        array(UserName), nullable="0+", default=None, doc="Which; null or empty: all of them."
    )


@struct
class CredentialInfo:
    """One password of a user."""

    mechanism: int = field(int8, doc="1 SCRAM-SHA-256, 2 SCRAM-SHA-512.")
    iterations: int = field(int32, doc="How often the password was hashed.")


@struct
class DescribeUserScramCredentialsResult:
    """One user."""

    user: str = field(string, doc="The user.")
    error_code: int = field(int16, default=0, doc="0 if the user has a password.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why the user is not described.")
    credential_infos: list[CredentialInfo] = field(
        array(CredentialInfo), default_factory=list, doc="The user's passwords, one for each mechanism at most."
    )


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The users that were asked for."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why nobody is described.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Likewise, in words.")
    results: list[DescribeUserScramCredentialsResult] = field(
        array(DescribeUserScramCredentialsResult), default_factory=list, doc="Per user."
    )
