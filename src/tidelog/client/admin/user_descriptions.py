"""What an Admin tells of SCRAM users, and takes to change them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
ITERATIONS_DEFAULT = 4_096
"""As Kafka's tools have it. Brokers take up to 16,384."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A user has a password from now on, in place of an earlier one if there is one.

    Attributes:
        password: is salted and hashed before it leaves this process. It is not shown.
        mechanism: with which the user may connect by it.
        iterations: how often it is hashed: 4,096 to 16,384. Whoever connects has to do that each time.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = "SCRAM-SHA-256"
    iterations: int = ITERATIONS_DEFAULT


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A user has no password of this mechanism any more."""

    user: str
    mechanism: ScramMechanism
