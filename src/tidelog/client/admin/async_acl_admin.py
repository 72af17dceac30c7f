"""What the admin client for event loops asks about access rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.client.admin.acl_descriptions import AclBinding, AclBindingFilter
from tidelog.client.cluster import Cluster
from tidelog.client.options import AdminConfig

if TYPE_CHECKING:
    from tidelog.client.admin.acl_administration import AclAdministration


class AsyncAclAdmin:
    """The part of `AsyncAdmin` that is about access rules."""

    _cluster: Cluster
    _config: AdminConfig

    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The access rules that match a filter, sorted; by default all (KIP-140).

        Raises:
            KafkaError: SECURITY_DISABLED: the cluster has no authorizer.
        """
        return await self._acls().describe(wanted or AclBindingFilter())

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Make access rules, each on its own (KIP-140). What is there already is no error.

        Raises:
            ValueError: there is no such type, operation or permission.
            KafkaError: INVALID_REQUEST, INVALID_PRINCIPAL_TYPE: one cannot be. The others are there all the same.
                SECURITY_DISABLED: the cluster has no authorizer.
        """
        await self._acls().create(bindings)

    async def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Take back the access rules that any of the filters matches (KIP-140); returns them, sorted.

        Raises:
            KafkaError: SECURITY_DISABLED: the cluster has no authorizer.
        """
        return await self._acls().delete(filters)

    def _acls(self) -> AclAdministration:
        from tidelog.client.admin.acl_administration import AclAdministration  # for few

        return AclAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)
