"""Passwords of SCRAM users: setting them, and taking them away (KIP-554).

Each user of a request stands for themselves: where one change of a user is refused, none of that user is made. The
password itself never comes here: a client sends it salted and hashed, of which two keys are derived and kept.

Kafka: `ScramControlManager`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.controller.limits import Room
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.configs.limits import MAX_SCRAM_CREDENTIALS
from tidelog.metadata.features import SCRAM_SINCE, metadata_version
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.scram_credentials import scram_record
from tidelog.metadata.scram_credentials import (
    KEPT_ITERATIONS_MAX,
    KEPT_ITERATIONS_MIN,
    MECHANISM_NAMES,
    ScramCredential,
    ScramUser,
)
from tidelog.security.scram import HASHES

NAME_SIZE_BYTES_MAX = 32_767
SALT_SIZE_BYTES_MAX = 1_024


@dataclass(frozen=True, slots=True)
class SaltedPassword:
    """A password as a client sends it: `Hi(password, salt, iterations)` of RFC 5802."""

    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUserChange:
    """What is to be done to one credential, as it was asked: the mechanism may be none that there is.

    Attributes:
        mechanism: with the numbers of the protocol.
        password: None to remove the credential.
    """

    user: str
    mechanism: int
    password: SaltedPassword | None


@dataclass(frozen=True, slots=True)
class AlteredScramUser:
    """What became of all that was asked of one user."""

    user: str
    code: Code
    message: str | None = None


def decide_alter_scram_users(
    metadata: MetadataView, settings: ControllerSettings, changes: Sequence[ScramUserChange]
) -> Decision[tuple[AlteredScramUser, ...]]:
    """Change passwords. There is one result for each user, in the order in which they are first named.

    Raises:
        KafkaError: UNSUPPORTED_VERSION: `metadata.version` is too low for it.
    """
    level = metadata_version(metadata.features)
    if level < SCRAM_SINCE:
        raise refusal(
            Code.UNSUPPORTED_VERSION, f"SCRAM users need metadata.version {SCRAM_SINCE}; the cluster is at {level}"
        )
    by_user: dict[str, list[ScramUserChange]] = {}
    for change in changes:
        by_user.setdefault(change.user, []).append(change)
    records: list[object] = []
    altered: list[AlteredScramUser] = []
    room = Room(metadata, settings, MAX_SCRAM_CREDENTIALS, len(metadata.scram_credentials))
    for user, of_user in by_user.items():
        try:
            changed = _alter(metadata, of_user, room)
        except KafkaError as error:
            altered.append(AlteredScramUser(user, error.code, str(error)))
            continue
        records += changed
        altered.append(AlteredScramUser(user, Code.NONE))
    return Decision(tuple(records), tuple(altered))


def _alter(metadata: MetadataView, changes: Sequence[ScramUserChange], room: Room) -> list[object]:
    """The records that make it so. Raises KafkaError."""
    credentials: dict[ScramUser, ScramCredential | None] = {}
    for change in changes:
        mechanism = _checked_mechanism(change)
        user = mechanism, change.user
        if user in credentials:
            raise refusal(
                Code.DUPLICATE_RESOURCE, f"the request names the credential of user {change.user!r} more than once"
            )
        if change.password is not None:
            credentials[user] = kept_of(mechanism, change.password)
        elif user in metadata.scram_credentials:
            credentials[user] = None
        else:
            raise refusal(Code.RESOURCE_NOT_FOUND, f"user {change.user!r} has no credential for {mechanism}")
    room.take(sum(user not in metadata.scram_credentials for user in credentials))
    return [scram_record(user, credential) for user, credential in credentials.items()]


def _checked_mechanism(change: ScramUserChange) -> str:
    if not change.user:
        raise refusal(Code.UNACCEPTABLE_CREDENTIAL, "the name of the user is empty")
    if len(change.user.encode()) > NAME_SIZE_BYTES_MAX:
        raise refusal(Code.UNACCEPTABLE_CREDENTIAL, f"the name of the user is longer than {NAME_SIZE_BYTES_MAX} bytes")
    mechanism = MECHANISM_NAMES.get(change.mechanism)
    if mechanism is None:
        known = ", ".join(f"{number} {name}" for number, name in MECHANISM_NAMES.items())
        raise refusal(Code.UNSUPPORTED_SASL_MECHANISM, f"{change.mechanism} is no SCRAM mechanism: there are {known}")
    return mechanism


def kept_of(mechanism: str, password: SaltedPassword) -> ScramCredential:
    """What to keep of a password. Raises KafkaError: UNACCEPTABLE_CREDENTIAL."""
    hash_name = HASHES[mechanism]
    if not KEPT_ITERATIONS_MIN <= password.iterations <= KEPT_ITERATIONS_MAX:
        raise refusal(
            Code.UNACCEPTABLE_CREDENTIAL,
            f"{password.iterations} iterations: there must be {KEPT_ITERATIONS_MIN} to {KEPT_ITERATIONS_MAX}",
        )
    if not 0 < len(password.salt) <= SALT_SIZE_BYTES_MAX:
        raise refusal(
            Code.UNACCEPTABLE_CREDENTIAL,
            f"a salt of {len(password.salt)} bytes: there must be 1 to {SALT_SIZE_BYTES_MAX}",
        )
    size = hashlib.new(hash_name).digest_size
    if len(password.salted_password) != size:
        raise refusal(
            Code.UNACCEPTABLE_CREDENTIAL,
            f"a salted password of {len(password.salted_password)} bytes: for {mechanism} it has {size}",
        )
    client_key = hmac.digest(password.salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(password.salted_password, b"Server Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramCredential(password.salt, stored_key, server_key, password.iterations)
