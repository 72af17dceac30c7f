"""What the blocking admin client asks about those who connect."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.admin.async_user_admin import AsyncUserAdmin
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
