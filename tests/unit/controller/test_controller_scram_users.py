"""Setting passwords of SCRAM users: what is kept, what is refused, and that each user stands for themselves."""

from __future__ import annotations

import hashlib

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.controller import ControllerSettings, ControllerState
from tidelog.controller.scram_users import AlteredScramUser, SaltedPassword, ScramUserChange
from tidelog.metadata.records import FeatureLevelRecord, encode_record
from tidelog.security.scram_server import credential_of

SALT = b"some salt"
SHA_256, SHA_512 = 1, 2
KEY = ("SCRAM-SHA-256", "alice")


def new_state(level: int = 30) -> ControllerState:
    state = ControllerState(ControllerSettings())
    state.apply(FeatureLevelRecord(name="metadata.version", feature_level=level))
    return state


def salted(password: str, iterations: int = 4096, mechanism: int = SHA_256) -> SaltedPassword:
    name = {SHA_256: "sha256", SHA_512: "sha512"}[mechanism]
    return SaltedPassword(SALT, hashlib.pbkdf2_hmac(name, password.encode(), SALT, iterations), iterations)


def alter(state: ControllerState, *changes: ScramUserChange) -> tuple[AlteredScramUser, ...]:
    decision = state.decide_alter_scram_users(changes)
    for record in decision.records:
        encode_record(record)
        state.apply(record)
    return decision.reply


def given(user: str, password: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramUserChange:
    return ScramUserChange(user, mechanism, salted(password, iterations, mechanism))


@pytest.mark.parametrize(("mechanism", "name"), [(SHA_256, "SCRAM-SHA-256"), (SHA_512, "SCRAM-SHA-512")])
def test_what_is_kept_of_a_password_is_what_a_broker_checks_against(mechanism: int, name: str) -> None:
    state = new_state()
    assert alter(state, given("alice", "pencil", mechanism)) == (AlteredScramUser("alice", Code.NONE),)
    assert state.metadata.scram_credentials == {(name, "alice"): credential_of(name, "pencil", SALT, 4096)}


def test_a_password_is_changed_and_removed() -> None:
    state = new_state()
    alter(state, given("alice", "pencil"), given("alice", "pencil", SHA_512))
    alter(state, given("alice", "eraser", iterations=8192))
    assert state.metadata.scram_credentials[KEY] == credential_of("SCRAM-SHA-256", "eraser", SALT, 8192)
    alter(state, ScramUserChange("alice", SHA_256, None))
    assert list(state.metadata.scram_credentials) == [("SCRAM-SHA-512", "alice")]


def test_one_of_a_mechanism_goes_while_one_of_another_comes() -> None:
    state = new_state()
    alter(state, given("alice", "pencil"))
    (altered,) = alter(state, ScramUserChange("alice", SHA_256, None), given("alice", "pencil", SHA_512))
    assert altered.code == Code.NONE
    assert list(state.metadata.scram_credentials) == [("SCRAM-SHA-512", "alice")]


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (ScramUserChange("alice", SHA_256, None), Code.RESOURCE_NOT_FOUND, "has no credential for SCRAM-SHA-256"),
        (ScramUserChange("alice", 0, None), Code.UNSUPPORTED_SASL_MECHANISM, "0 is no SCRAM mechanism"),
        (ScramUserChange("alice", 3, salted("x")), Code.UNSUPPORTED_SASL_MECHANISM, "3 is no SCRAM mechanism"),
        (ScramUserChange("", SHA_256, None), Code.UNACCEPTABLE_CREDENTIAL, "empty"),
        (given("", "x"), Code.UNACCEPTABLE_CREDENTIAL, "empty"),
        (given("é" * 20_000, "x"), Code.UNACCEPTABLE_CREDENTIAL, "longer than"),
        (given("alice", "x", iterations=4095), Code.UNACCEPTABLE_CREDENTIAL, "4096 to 16384"),
        (given("alice", "x", iterations=16385), Code.UNACCEPTABLE_CREDENTIAL, "4096 to 16384"),
        (ScramUserChange("alice", SHA_256, SaltedPassword(b"", b"x" * 32, 4096)), Code.UNACCEPTABLE_CREDENTIAL, "salt"),
        (
            ScramUserChange("alice", SHA_256, SaltedPassword(b"s" * 1025, b"x" * 32, 4096)),
            Code.UNACCEPTABLE_CREDENTIAL,
            "salt",
        ),
        (
            ScramUserChange("alice", SHA_512, SaltedPassword(SALT, b"x" * 32, 4096)),
            Code.UNACCEPTABLE_CREDENTIAL,
            "it has 64",
        ),
    ],
)
def test_what_cannot_be_is_refused(change: ScramUserChange, code: Code, says: str) -> None:
    state = new_state()
    (altered,) = alter(state, change)
    assert altered.code == code
    assert says in (altered.message or "")
    assert state.metadata.scram_credentials == {}


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_bounds_of_the_iterations_are_taken(iterations: int) -> None:
    assert alter(new_state(), given("alice", "x", iterations=iterations))[0].code == Code.NONE


def test_a_credential_that_is_named_twice_is_refused_and_nothing_of_its_user_is_done() -> None:
    state = new_state()
    alter(state, given("alice", "pencil"))
    before = dict(state.metadata.scram_credentials)
    for twice in (
        (given("alice", "a"), given("alice", "b")),
        (ScramUserChange("alice", SHA_256, None), given("alice", "b")),
        (ScramUserChange("alice", SHA_256, None), ScramUserChange("alice", SHA_256, None)),
    ):
        altered = alter(state, given("alice", "c", SHA_512), *twice)
        assert [one.code for one in altered] == [Code.DUPLICATE_RESOURCE]
        assert state.metadata.scram_credentials == before


def test_each_user_stands_for_themselves() -> None:
    state = new_state()
    altered = alter(state, ScramUserChange("bob", SHA_256, None), given("alice", "pencil"), given("carol", "x", 1, 1))
    assert [(one.user, one.code) for one in altered] == [
        ("bob", Code.RESOURCE_NOT_FOUND),
        ("alice", Code.NONE),
        ("carol", Code.UNACCEPTABLE_CREDENTIAL),
    ]
    assert list(state.metadata.scram_credentials) == [KEY]


def test_a_cluster_at_a_level_without_such_records_refuses_all() -> None:
    with pytest.raises(KafkaError, match=r"need metadata\.version 11") as caught:
        alter(new_state(10), given("alice", "pencil"))
    assert caught.value.code == Code.UNSUPPORTED_VERSION


def test_what_was_asked_does_not_show_the_password() -> None:
    text = repr(given("alice", "pencil"))
    assert "alice" in text
    assert "salt=" not in text
    assert "salted_password" not in text
