"""`tidelog users`: who connects with a SCRAM password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click

from tidelog.base.errors import Code, KafkaError
from tidelog.cli.command import (
    UsageError,
    WholeNumber,
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
    from collections.abc import Iterable, Mapping

    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.user_descriptions import ScramMechanism

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def _mechanism_option(help_text: str) -> Any:
    return option("--mechanism", "-m", type=click.Choice(MECHANISMS), multiple=True, help=help_text)


def _iterations_option() -> Any:
    return option(
        "--iterations",
        type=WholeNumber(4_096, 16_384),
        default=4_096,
        metavar="N",
        help="How often the password is hashed, 4096 to 16384: whoever connects does it each time.",
    )


def _password_file_option() -> Any:
    return option(
        "--password-file",
        default=None,
        metavar="FILE",
        help="The first line of it is the password; - for stdin. Else it is asked for.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListUsers:
    """List the users with a SCRAM password, or those that are named.

    Examples:

        tidelog users list
        tidelog users list alice bob
    """

    users: tuple[str, ...] = argument(metavar="[USER]…", nargs=-1)
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            found = admin.describe_user_scram_credentials(self.users or None)
        return Rows(
            [row for user, by_mechanism in found.items() for row in _rows(user, by_mechanism)], nothing="no users"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddUser:
    """Give a user a SCRAM password who has none of that mechanism yet.

    The password is asked for, twice; or it is the first line of --password-file, or of stdin where nobody can type. It
    is hashed here, and no broker sees it. Connect by TLS all the same: what is sent suffices to connect as the user.

    Examples:

        tidelog users add alice
        tidelog users add alice --mechanism SCRAM-SHA-512 --password-file /run/secrets/alice
        pass show kafka/alice | tidelog users add alice
    """

    user: str = argument(metavar="USER")
    mechanism: tuple[str, ...] = _mechanism_option("With which the user connects; SCRAM-SHA-256 if not said.")
    iterations: int = _iterations_option()
    password_file: str | None = _password_file_option()
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        mechanisms = dict.fromkeys(self.mechanism or MECHANISMS[:1])
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            known = next((one for one in mechanisms if one in _credentials(admin, self.user)), None)
            if known is not None:
                raise UsageError(
                    f"user {self.user!r} has a password for {known} already: `tidelog users password` changes it"
                )
            return _set(admin, self.user, mechanisms, self.iterations, self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePassword:
    """Change the SCRAM password of a user: of each mechanism that the user has one of, or of those that are named.

    Connections that are open stay open. See `tidelog users add` for where the password comes from.

    Example:

        tidelog users password alice
    """

    user: str = argument(metavar="USER")
    mechanism: tuple[str, ...] = _mechanism_option("Of these alone. May be repeated.")
    iterations: int = _iterations_option()
    password_file: str | None = _password_file_option()
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            mechanisms = _known(_credentials(admin, self.user), self.user, self.mechanism)
            return _set(admin, self.user, mechanisms, self.iterations, self.password_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUser:
    """Take the SCRAM password of a user away: of each mechanism, or of those that are named.

    Nobody can connect as the user from then on. Connections that are open stay open.

    Examples:

        tidelog users remove alice
        tidelog users remove alice --mechanism SCRAM-SHA-256
    """

    user: str = argument(metavar="USER")
    mechanism: tuple[str, ...] = _mechanism_option("Of these alone. May be repeated.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        from tidelog.client.admin.user_descriptions import UserScramCredentialDeletion

        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            before = _credentials(admin, self.user)
            mechanisms = _known(before, self.user, self.mechanism)
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(self.user, one) for one in mechanisms])
            left = _credentials(admin, self.user)
        return Rows(_rows(self.user, left), nothing=f"{self.user} has no password any more")


def _set(admin: Admin, user: str, mechanisms: Iterable[str], iterations: int, password_file: str | None) -> Rows:
    from tidelog.cli.scram import read_password
    from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion

    password = read_password(user, password_file)
    admin.alter_user_scram_credentials(
        UserScramCredentialUpsertion(user, password, cast("ScramMechanism", one), iterations) for one in mechanisms
    )
    return Rows(_rows(user, _credentials(admin, user)))


def _known(credentials: Mapping[ScramMechanism, int], user: str, wanted: tuple[str, ...]) -> dict[ScramMechanism, None]:
    """The mechanisms that are meant. Raises UsageError: the user has no password of one."""
    missing = next((one for one in wanted if one not in credentials), None)
    if missing is not None or not credentials:
        what = f"no password for {missing}" if credentials else "no password"
        raise UsageError(f"user {user!r} has {what}: `tidelog users add` gives them one")
    return {one: None for one in credentials if not wanted or one in wanted}


def _credentials(admin: Admin, user: str) -> dict[ScramMechanism, int]:
    try:
        return admin.describe_user_scram_credentials([user])[user]
    except KafkaError as error:
        if error.code != Code.RESOURCE_NOT_FOUND:
            raise
        return {}


def _rows(user: str, by_mechanism: Mapping[ScramMechanism, int]) -> list[Row]:
    return [{"user": user, "mechanism": one, "iterations": count} for one, count in by_mechanism.items()]
