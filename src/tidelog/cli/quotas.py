"""`tidelog quotas`: what clients may do in a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.cli.command import (
    KeyValue,
    UsageError,
    argument,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.quota_descriptions import ClientQuotaEntity, QuotaName


def _user_option() -> Any:
    return option("--user", default=None, metavar="NAME", help="For this user.")


def _default_user_option() -> Any:
    return option("--default-user", is_flag=True, help="For each user who has no own quota.")


def _client_id_option() -> Any:
    return option("--client-id", default=None, metavar="ID", help="For this client id.")


def _default_client_id_option() -> Any:
    return option("--default-client-id", is_flag=True, help="For each client id that has no own quota.")


def _ip_option() -> Any:
    return option("--ip", default=None, metavar="ADDRESS", help="For whoever connects from this address.")


def _default_ip_option() -> Any:
    return option("--default-ip", is_flag=True, help="For each address that has no own quota.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuotas:
    """List the quotas that are set; with names, those that are about them.

    Examples:

        tidelog quotas list
        tidelog quotas list --user alice
        tidelog quotas list --default-user
    """

    user: str | None = _user_option()
    default_user: bool = _default_user_option()
    client_id: str | None = _client_id_option()
    default_client_id: bool = _default_client_id_option()
    ip: str | None = _ip_option()
    default_ip: bool = _default_ip_option()
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            found = admin.describe_client_quotas(_entity(self))
        return Rows([row for entity, quotas in found.items() for row in _rows(entity, quotas)], nothing="no quotas")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuotas:
    """Set quotas of a user, a client id, a user with a client id, or an address. Each broker counts for itself.

    Of users and client ids: producer_byte_rate and consumer_byte_rate, in bytes a second; request_percentage, of the
    time of a node's event loop; controller_mutation_rate, in partitions made or deleted a second. Of addresses:
    connection_creation_rate, in connections a second.

    Examples:

        tidelog quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
        tidelog quotas set --default-user --client-id batch request_percentage=20
        tidelog quotas set --default-ip connection_creation_rate=10
    """

    quotas: tuple[tuple[str, str], ...] = argument(metavar="KEY=VALUE…", nargs=-1, required=True, type=KeyValue())
    user: str | None = _user_option()
    default_user: bool = _default_user_option()
    client_id: str | None = _client_id_option()
    default_client_id: bool = _default_client_id_option()
    ip: str | None = _ip_option()
    default_ip: bool = _default_ip_option()
    dry_run: bool = option("--dry-run", is_flag=True, help="Check, and change nothing.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        values: dict[str, float | None] = {}
        for key, text in self.quotas:
            if key in values:
                raise UsageError(f"{key} is given more than once: which is meant?")
            try:
                values[key] = float(text)
            except ValueError:
                raise UsageError(f"{key}={text}: the value is a number") from None
        return _alter(self, values, dry_run=self.dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveQuotas:
    """Take quotas back: those that are named, or all of whom they are for.

    Examples:

        tidelog quotas remove --user alice
        tidelog quotas remove --default-user --client-id batch request_percentage
    """

    keys: tuple[str, ...] = argument(metavar="[KEY]…", nargs=-1)
    user: str | None = _user_option()
    default_user: bool = _default_user_option()
    client_id: str | None = _client_id_option()
    default_client_id: bool = _default_client_id_option()
    ip: str | None = _ip_option()
    default_ip: bool = _default_ip_option()
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        return _alter(self, dict.fromkeys(self.keys))


Command = ListQuotas | SetQuotas | RemoveQuotas


def _alter(command: SetQuotas | RemoveQuotas, values: dict[str, float | None], *, dry_run: bool = False) -> Rows:
    from tidelog.client.admin.quota_administration import called

    entity = _entity(command)
    if entity == (None, None, None):
        raise UsageError("say for whom: --user, --client-id, --ip, or one of --default-user and its like")
    with open_admin(command.bootstrap, command.timeout, command.log_level) as admin:
        if not values:
            values = dict.fromkeys(admin.describe_client_quotas(entity, strict=True).get(entity, {}))
            if not values:
                raise UsageError(f"{called(entity)} has no quotas")
        admin.alter_client_quotas({entity: values}, validate_only=dry_run)
        found = admin.describe_client_quotas(entity, strict=True)
    rows = [row for one, quotas in found.items() for row in _rows(one, quotas)]
    return Rows(rows, nothing=f"{called(entity)} has no quotas any more")


def _entity(command: Command) -> ClientQuotaEntity:
    """Raises UsageError: what is named cannot be one."""
    from tidelog.client.admin.quota_descriptions import ClientQuotaEntity

    user = _name(command.user, command.default_user, "user")
    client_id = _name(command.client_id, command.default_client_id, "client-id")
    ip = _name(command.ip, command.default_ip, "ip")
    if ip is not None and (user is not None or client_id is not None):
        raise UsageError("a quota of an address is for whoever connects from it: leave user and client id out")
    return ClientQuotaEntity(user, client_id, ip)


def _name(name: str | None, is_default: bool, flag: str) -> str | QuotaName | None:
    from tidelog.client.admin.quota_descriptions import QuotaName

    if is_default and name is not None:
        raise UsageError(f"--{flag} and --default-{flag} exclude each other")
    return QuotaName.DEFAULT if is_default else name


def _rows(entity: ClientQuotaEntity, quotas: dict[str, float]) -> list[Row]:
    from tidelog.client.admin.quota_descriptions import QuotaName

    user, client_id, ip = (name.value if isinstance(name, QuotaName) else name for name in entity)
    return [
        {"user": user, "client_id": client_id, "ip": ip, "quota": key, "value": value}
        for key, value in sorted(quotas.items())
    ]
