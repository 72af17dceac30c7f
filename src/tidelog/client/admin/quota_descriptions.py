"""Whom an Admin's quotas are for (KIP-546)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class QuotaName(Enum):
    """In place of a name."""

    DEFAULT = "<default>"
    """Whoever has no own quota."""
    ANY = "<any>"
    """To ask for: every name, and the default."""


class ClientQuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, both together, or an address.

    Attributes:
        user: a name, or DEFAULT; None where the user makes no difference.
        client_id: likewise.
        ip: an address that is connected from; without the others.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None


EVERYBODY = ClientQuotaEntity()
"""To ask for: whoever it is for."""
