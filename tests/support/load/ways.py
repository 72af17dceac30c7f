"""How the clients of a load reach the cluster: which servers they ask first, and who they say they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Login:
    """A user of a listener with SASL_SSL.

    Attributes:
        authority: the file of the authority that has signed the certificates of the nodes.
    """

    user: str
    password: str
    authority: Path
    mechanism: str = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Way:
    """See the module. Without a login it is in plain text.

    Attributes:
        bootstrap: HOST:PORT, several with commas between.
    """

    bootstrap: str
    login: Login | None = None

    @property
    def of_ours(self) -> dict[str, Any]:
        """Options of Tidelog's clients, beside the servers."""
        if self.login is None:
            return {}
        return {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": str(self.login.authority),
            "sasl_mechanism": self.login.mechanism,
            "sasl_username": self.login.user,
            "sasl_password": self.login.password,
        }

    @property
    def of_theirs(self) -> dict[str, Any]:
        """Options of librdkafka, beside the servers."""
        if self.login is None:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.login.authority),
            "sasl.mechanism": self.login.mechanism,
            "sasl.username": self.login.user,
            "sasl.password": self.login.password,
        }
