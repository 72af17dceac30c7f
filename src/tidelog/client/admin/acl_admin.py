"""What the blocking admin client asks about access rules."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.admin.acl_descriptions import AclBinding, AclBindingFilter
from tidelog.client.admin.async_acl_admin import AsyncAclAdmin
from tidelog.client.loop_thread import LoopThread


class AclAdmin:
    """The part of `Admin` that is about access rules."""

    _async: AsyncAclAdmin
    _thread: LoopThread

    def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The access rules that match a filter, sorted; by default all (KIP-140).

        Raises:
            KafkaError: SECURITY_DISABLED: the cluster has no authorizer.
        """
        return self._thread.run(self._async.describe_acls(wanted))

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Make access rules, each on its own (KIP-140). What is there already is no error.

        Raises:
            ValueError: there is no such type, operation or permission.
            KafkaError: INVALID_REQUEST, INVALID_PRINCIPAL_TYPE: one cannot be. The others are there all the same.
                SECURITY_DISABLED: the cluster has no authorizer.
        """
        self._thread.run(self._async.create_acls(bindings))

    def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Take back the access rules that any of the filters matches (KIP-140); returns them, sorted.

        Raises:
            KafkaError: SECURITY_DISABLED: the cluster has no authorizer.
        """
        return self._thread.run(self._async.delete_acls(filters))
