"""What the admin client for event loops asks about those who connect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.client.admin.user_descriptions import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tidelog.client.cluster import Cluster
from tidelog.client.options import AdminConfig

if TYPE_CHECKING:
    from tidelog.client.admin.user_administration import UserAdministration


class AsyncUserAdmin:
    """The part of `AsyncAdmin` that is about those who connect."""

    _cluster: Cluster
    _config: AdminConfig

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, dict[ScramMechanism, int]]:
        """Who has a SCRAM password (KIP-554): of each user, sorted by name, the iterations by mechanism.

        Args:
            users: which; None for all.

        Raises:
            KafkaError: RESOURCE_NOT_FOUND: a user has none.
        """
        return await self._users().describe(users)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> None:
        """Give users SCRAM passwords, or take them away, each user on their own (KIP-554).

        Connect by TLS: whoever reads what is sent can connect as the user.

        Raises:
            ValueError: there is no such mechanism, or a password is empty.
            KafkaError: RESOURCE_NOT_FOUND: there is no such password to remove; DUPLICATE_RESOURCE: one is named twice;
                UNACCEPTABLE_CREDENTIAL: says why. Other users were altered all the same.
        """
        await self._users().alter(alterations)

    def _users(self) -> UserAdministration:
        from tidelog.client.admin.user_administration import UserAdministration  # hashes, for few

        return UserAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)
