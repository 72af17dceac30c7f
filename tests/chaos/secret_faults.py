"""What operators do with secrets while a cluster runs, and what strangers try without any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chaos.fault import Fault, Hurt, Stage
from chaos.secured import Secured
from support.fixtures.certificates import missing_openssl
from support.fixtures.waiting import wait_until
from tidelog.base.errors import TidelogError
from tidelog.client.admin.admin import Admin

LOGINS = 10
LOGIN_MS_MAX = 10_000


def _secured(stage: Stage) -> Secured:
    secured = stage.cluster.secured
    assert secured is not None
    return secured


def renew_certificates(stage: Stage) -> Iterator[str]:
    """Each node gets another key and certificate, one after the other, and reads them while it runs."""
    for node in stage.dice.sample(list(stage.cluster.nodes.values()), len(stage.cluster.nodes)):
        _secured(stage).renew(node)
        yield str(node)
        stage.go_on()


def replace_user(stage: Stage) -> Iterator[str]:
    """Clients get another user, with rules of its own; the one before is removed when they have moved."""
    before = stage.load.way
    before = stage.load.way
    stage.load.way = _secured(stage).new_way()
    login = stage.load.way.login
    assert login is not None
    yield f"clients become {login.user}"
    wait_until(lambda: stage.load.has_moved or bool(stage.load.failures), "all clients have moved")
    _secured(stage).remove(before)
    yield f"{login.user} alone is left"
    stage.go_on()


def guess_passwords(stage: Stage) -> Iterator[str]:
    """A stranger tries passwords of the clients' user, at any node, and gets nowhere."""
    way = stage.load.way
    assert way.login is not None
    yield f"{LOGINS} passwords for {way.login.user}"
    for number in range(LOGINS):
        wrong = replace(way, login=replace(way.login, password=f"guess {number}"))
        admin = Admin(wrong.bootstrap, default_api_timeout_ms=LOGIN_MS_MAX, **wrong.of_ours)
        with admin:
            try:
                admin.list_topics()
            except TidelogError:
                continue  # that is a SaslAuthenticationError, or nobody could be asked for another fault
        raise AssertionError(f"a wrong password of {way.login.user} was accepted")
    stage.go_on()


FAULTS = tuple(
    Fault(
        kind=kind,
        strike=strike,
        hurts=Hurt.OPERATOR,
        seconds=(0.0, 4.0),
        is_alone=is_alone,
        is_secured=True,
        needs=missing_openssl,
    )
    for kind, strike, is_alone in (
        ("certificates renewed", renew_certificates, False),
        ("users replaced", replace_user, True),  # the controller has to answer
        ("passwords guessed", guess_passwords, True),
    )
)
