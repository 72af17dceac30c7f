"""SCRAM users in Kafka's notation, and where their passwords come from."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest

from tidelog.cli.command import UsageError
from tidelog.cli.scram import read_first_users, read_password
from tidelog.metadata.records import UserScramCredentialRecord
from tidelog.metadata.records.scram_credentials import scram_credential_of
from tidelog.security.scram import salted_password
from tidelog.security.scram_server import credential_of

SALT = b"some salt"
SALT_TEXT = base64.b64encode(SALT).decode()


def read(*texts: str) -> list[UserScramCredentialRecord]:
    records = read_first_users(texts)
    return [record for record in records if isinstance(record, UserScramCredentialRecord)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_is_kept_as_a_broker_needs_it(mechanism: str) -> None:
    (record,) = read(f"{mechanism}=[name=alice,iterations=8192,salt={SALT_TEXT},password=pencil]")
    assert (record.name, record.mechanism) == ("alice", 1 if mechanism == "SCRAM-SHA-256" else 2)
    assert scram_credential_of(record) == credential_of(mechanism, "pencil", SALT, 8192)


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = base64.b64encode(salted_password("SCRAM-SHA-256", "pencil", SALT, 4096)).decode()
    (record,) = read(f'SCRAM-SHA-256=[name=alice, salt="{SALT_TEXT}", saltedpassword="{salted}"]')
    assert scram_credential_of(record) == credential_of("SCRAM-SHA-256", "pencil", SALT, 4096)


def test_each_password_has_a_salt_of_its_own() -> None:
    one, other = read("SCRAM-SHA-256=[name=alice,password=same]", "SCRAM-SHA-256=[name=bob,password=same]")
    assert len(one.salt) >= 16
    assert one.salt != other.salt


def test_a_quoted_value_holds_what_the_notation_is_made_of(tmp_path: Path) -> None:
    (record,) = read(f'SCRAM-SHA-256=[name="a,b=]",password="x,y=]z",salt={SALT_TEXT}]')
    assert record.name == "a,b=]"
    assert scram_credential_of(record) == credential_of("SCRAM-SHA-256", "x,y=]z", SALT, 4096)


def test_a_password_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "alice"
    path.write_text("pencil\nnot of it\n")
    (record,) = read(f"SCRAM-SHA-256=[name=alice,salt={SALT_TEXT},password-file={path}]")
    assert scram_credential_of(record) == credential_of("SCRAM-SHA-256", "pencil", SALT, 4096)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alice:secret", "is not of the form"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "no mechanism"),
        ("SCRAM-SHA-256=[password=secret]", "names no user"),
        ("SCRAM-SHA-256=[name=a]", "say one of"),
        ("SCRAM-SHA-256=[name=a,password=]", "is empty"),
        ("SCRAM-SHA-256=[name=a,password=secret,saltedpassword=secret]", "say one of"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0,salt=c2VjcmV0]", "it has 32"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=secret!,salt=c2VjcmV0]", "not base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=many]", "is no number"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=100]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=999999999999]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,password=secret]", "stands there twice"),
        ("SCRAM-SHA-256=[name=a,passwort=secret]", "within the brackets"),
        ('SCRAM-SHA-256=[name=a,password="secret]', "within the brackets"),
        ("SCRAM-SHA-256=[name=a,password-file=/nowhere/secret]", "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_said_without_the_password(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read(text)
    assert "secret" not in str(caught.value).replace("/nowhere/secret", "")


def test_a_user_is_not_given_twice() -> None:
    with pytest.raises(UsageError, match="number 2: user 'a' has a credential"):
        read("SCRAM-SHA-256=[name=a,password=x]", "SCRAM-SHA-256=[name=a,password=y]")


def test_a_password_comes_from_stdin_where_nobody_can_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pen cil \nrest"))
    assert read_password("alice", None) == "pen cil "


def test_an_empty_password_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(UsageError, match="the password is empty"):
        read_password("alice", "-")


def test_an_empty_name_of_a_file_is_not_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("of somebody else"))
    with pytest.raises(UsageError, match="an empty name of a file: it cannot be read"):
        read_password("alice", "")
