"""`tidelog tokens`: delegation tokens, by which a job logs in as its owner without the owner's password (KIP-48)."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, refusal
from tidelog.cli.command import (
    Duration,
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
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.token_descriptions import TokenDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateToken:
    """Create a delegation token, as whoever --command-config logs in as. HMAC is its password: it is shown here alone.

    A client logs in with it by SCRAM, with the token's id as the user, HMAC as the password, and the option
    `tokenauth=true`.

    Examples:

        tidelog tokens create --command-config alice.properties
        tidelog tokens create --command-config alice.properties --renewer User:scheduler --max-lifetime 86400
    """

    owner: str | None = option(
        "--owner",
        default=None,
        metavar="User:NAME",
        help="As whom it authenticates, instead of whoever asks. That takes the right to CREATE_TOKENS of that user.",
    )
    renewer: tuple[str, ...] = option(
        "--renewer", multiple=True, metavar="User:NAME", help="Who may renew it and end it too. May be repeated."
    )
    max_lifetime: float | None = option(
        "--max-lifetime",
        type=Duration(0.001),
        default=None,
        metavar="SECONDS",
        help="How long it may last at most. By default as long as brokers allow: delegation.token.max.lifetime.ms.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            created = admin.create_delegation_token(
                owner=self.owner, renewers=self.renewer, max_lifetime_ms=_milliseconds(self.max_lifetime)
            )
        return Rows([{**_row(created), "hmac": b64encode(created.hmac).decode()}])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTokens:
    """List delegation tokens: one's own, those that one may renew, and those that one may describe.

    EXPIRES is when a token ends unless it is renewed, and MAX when it ends at the latest.

    Example:

        tidelog tokens list --command-config alice.properties --owner User:alice
    """

    owner: tuple[str, ...] = option(
        "--owner",
        multiple=True,
        metavar="User:NAME",
        help="Only those that this user owns, had created or may renew. May be repeated.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            found = admin.describe_delegation_tokens(self.owner or None)
        return Rows(map(_row, found), nothing="no delegation tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewToken:
    """Have the delegation token TOKEN count for longer. Its owner and its renewers may.

    Example:

        tidelog tokens renew 4pVvYl0xQXyaDvbXDKm1Ag --command-config scheduler.properties
    """

    token: str = argument(metavar="TOKEN")
    period: float | None = option(
        "--period",
        type=Duration(0.001),
        default=None,
        metavar="SECONDS",
        help="For how long from now on. By default as long as brokers allow: delegation.token.expiry.time.ms.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            hmac = _found(admin, self.token).hmac
            until_ms = admin.renew_delegation_token(hmac, period_ms=_milliseconds(self.period))
        return Rows([{"token": self.token, "expires": _moment(until_ms)}])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireToken:
    """Have the delegation token TOKEN end, at once unless --period says when. Its owner and its renewers may.

    Nobody logs in with it any more; a session that was opened with it lasts until the token would have ended.

    Example:

        tidelog tokens expire 4pVvYl0xQXyaDvbXDKm1Ag --command-config alice.properties
    """

    token: str = argument(metavar="TOKEN")
    period: float | None = option(
        "--period",
        type=Duration(),
        default=None,
        metavar="SECONDS",
        help="In how long. At once by default.",
    )
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            hmac = _found(admin, self.token).hmac
            until_ms = admin.expire_delegation_token(hmac, period_ms=_milliseconds(self.period))
        return Rows([{"token": self.token, "expires": _moment(until_ms)}])


def _found(admin: Admin, token_id: str) -> TokenDescription:
    """By its id, so that nobody has to type a secret, which others on this machine could see."""
    for token in admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise refusal(
        Code.DELEGATION_TOKEN_NOT_FOUND,
        f"delegation token {token_id!r}: there is none that you may see; `tidelog tokens list` shows those",
    )


def _row(token: TokenDescription) -> Row:
    return {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": _moment(token.issued_ms),
        "expires": _moment(token.expires_ms),
        "max": _moment(token.max_ms),
    }


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)


def _moment(ms: int) -> str | None:
    """None for one beyond the year 9999, which stands for no end."""
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return None
