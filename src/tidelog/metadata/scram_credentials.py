"""What is kept of the passwords of SCRAM users, and the mechanisms with the numbers of the protocol (KIP-554, KIP-900).

Kafka: `ScramCredentialData`, `ScramMechanism`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MECHANISM_NUMBERS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MECHANISM_NAMES: Mapping[int, str] = {number: name for name, number in MECHANISM_NUMBERS.items()}

KEPT_ITERATIONS_MIN = 4_096
KEPT_ITERATIONS_MAX = 16_384
"""Of a credential, both included: a client that authenticates works as long as the iterations take."""


class ScramCredential(NamedTuple):
    """What a broker keeps of a password. It is never shown."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


ScramUser = tuple[str, str]
"""(mechanism, user): whose credential. A user may have one of each mechanism."""
