"""What the blocking admin client asks about those who connect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.admin.async_user_admin import AsyncUserAdmin
from tidelog.client.admin.quota_descriptions import EVERYBODY, ClientQuotaEntity
from tidelog.client.admin.user_descriptions import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog.client.loop_thread import LoopThread


class UserAdmin:
    """The part of `Admin` that is about those who connect."""

    _async: AsyncUserAdmin
    _thread: LoopThread

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[ScramMechanism, int]]:
        """Who has a SCRAM password (KIP-554): of each user, sorted by name, the iterations by mechanism.

        Args:
            users: which; None for all.

        Raises:
            KafkaError: RESOURCE_NOT_FOUND: a user has none.
        """
        return self._thread.run(self._async.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> None:
        """Give users SCRAM passwords, or take them away, each user on their own (KIP-554).

        Connect by TLS: whoever reads what is sent can connect as the user.

        Raises:
            ValueError: there is no such mechanism, or a password is empty.
            KafkaError: RESOURCE_NOT_FOUND: there is no such password to remove; DUPLICATE_RESOURCE: one is named twice;
                UNACCEPTABLE_CREDENTIAL: says why. Other users were altered all the same.
        """
        self._thread.run(self._async.alter_user_scram_credentials(alterations))

    def describe_client_quotas(
        self, entity: ClientQuotaEntity = EVERYBODY, *, strict: bool = False
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas of clients that are set (KIP-546), by whom they are for and by key, such as `producer_byte_rate`.

        Args:
            entity: those of which these parts are: each a name, DEFAULT or ANY. Empty for all.
            strict: leave out those with further parts.
        """
        return self._thread.run(self._async.describe_client_quotas(entity, strict=strict))

    def alter_client_quotas(
        self, changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set quotas of clients, or, with None, take them back; each entity on its own (KIP-546).

        Args:
            changes: by whom they are for and by key. Rates are by the second, and for each broker.
            validate_only: check, and change nothing.

        Raises:
            ValueError: an entity names ANY.
            KafkaError: INVALID_REQUEST: says why. Other entities were changed all the same.
        """
        self._thread.run(self._async.alter_client_quotas(changes, validate_only=validate_only))
