"""What commands connect with, by names: the file of profiles, and what counts where several things are said."""

from __future__ import annotations

import json
import os
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.cli.app import run
from tidelog.cli.client_settings import client_arguments
from tidelog.cli.command import bootstrap_option, to_click
from tidelog.cli.profile_file import ProfileFile, is_secret, profile_path

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="s3cret";'
FILE = """# by hand
[profile.prod]
bootstrap.servers = ["a:1", "b:2"]
security.protocol = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
sasl.jaas.config = '''{plain}'''
request.timeout.ms = 5000  # long

[profile."test-1"]
enable.idempotence = true
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is to be."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("TIDELOG_CONFIG", str(path))
    return path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TIDELOG_CONFIG": "/x.toml", "XDG_CONFIG_HOME": "/xdg"}, "/x.toml"),
        ({"XDG_CONFIG_HOME": "/xdg"}, "/xdg/tidelog/config.toml"),
        ({"XDG_CONFIG_HOME": "", "TIDELOG_CONFIG": ""}, "/home/me/.config/tidelog/config.toml"),
    ],
)
def test_where_the_file_is(environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert profile_path(environment) == expected


def test_keys_are_kafkas_with_quotes_and_without(path: Path) -> None:
    path.write_text(FILE.format(plain=PLAIN))
    assert ProfileFile(str(path)).profiles == {
        "prod": {
            "bootstrap.servers": "a:1,b:2",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": PLAIN,
            "request.timeout.ms": "5000",
        },
        "test-1": {"enable.idempotence": "true"},
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[profile.prod", "Expected ']'"),
        ("[profiles.prod]\n", "'profiles' is not known: profiles are tables such as"),
        ("profile = 1\n", "profile is no table"),
        ("[profile]\nprod = 'x'\n", r"profile\.prod is no table"),
        ("[profile.prod]\na = 1979-05-27\n", "profile 'prod': a is no text, number or true/false"),
    ],
)
def test_what_cannot_be_meant_is_an_error_that_names_the_place(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as raised:
        ProfileFile(str(path))
    assert str(path) in str(raised.value)


def test_an_unknown_profile_is_an_error_that_lists_those_that_are_there(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no profile 'x': .*config\.toml is not there; make one with"):
        ProfileFile(str(path)).properties("x")
    path.write_text("[profile.b]\n[profile.a]\n")
    with pytest.raises(ConfigError, match=r"no profile 'x': .*config\.toml has a, b"):
        ProfileFile(str(path)).properties("x")


def test_the_first_secret_closes_a_file_that_others_read(path: Path) -> None:
    path.write_text('[profile.open]\nacks = "all"\n')
    path.chmod(0o644)
    file = ProfileFile(str(path))
    file.add("more", {"acks": "1"})
    assert path.stat().st_mode & 0o777 == 0o644
    file.add("secret", {"sasl.jaas.config": "x"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_profiles_are_added_and_removed_around_what_a_person_wrote(path: Path) -> None:
    before = FILE.format(plain=PLAIN)
    path.write_text(before)
    path.chmod(0o640)
    file = ProfileFile(str(path))
    with pytest.raises(ConfigError, match="profile 'prod' is there already"):
        file.add("prod", {"acks": "all"})
    file.add("new", {"acks": "all"})
    assert path.read_text() == before + '\n[profile.new]\n"acks" = "all"\n'
    assert path.stat().st_mode & 0o777 == 0o640, "as its owner left it"
    file.add("test-1", {"acks": "1"}, is_replaced=True)
    assert ProfileFile(str(path)).profiles["test-1"] == {"acks": "1"}
    file.remove("test-1")
    file.remove("new")
    assert path.read_text() == before[: before.index('\n[profile."test-1"]')]
    file.remove("prod")
    assert path.read_text() == "# by hand\n"


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tidelog" / "config.toml"
    ProfileFile(str(path)).add("a", {"ssl.key.password": "x"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_link_to_a_file_elsewhere_stays_one(path: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    path.symlink_to(tmp_path / "dotfiles" / "tidelog.toml")
    ProfileFile(str(path)).add("a", {"acks": "all"})
    assert path.is_symlink()
    assert ProfileFile(str(path)).profiles == {"a": {"acks": "all"}}


def test_what_is_written_in_another_way_is_left_to_a_person(path: Path) -> None:
    text = 'profile = { a = { "acks" = "all" } }\n'
    path.write_text(text)
    with pytest.raises(ConfigError, match="edit it yourself"):
        ProfileFile(str(path)).remove("a")
    for added in ("a", "b"):
        with pytest.raises(ConfigError, match="edit it yourself"):
            ProfileFile(str(path)).add(added, {"acks": "all"}, is_replaced=True)
    assert path.read_text() == text


NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(NAMES, st.dictionaries(TEXTS, TEXTS)), max_size=4))
def test_whatever_is_added_is_read_back(tmp_path_factory: pytest.TempPathFactory, added: list[Any]) -> None:
    path = str(tmp_path_factory.getbasetemp() / "read-back.toml")
    Path(path).unlink(missing_ok=True)
    for name, properties in added:
        ProfileFile(path).add(name, properties, is_replaced=True)
        assert ProfileFile(path).profiles[name] == properties
    assert ProfileFile(path).profiles == dict(added)
    for name in dict(added):
        ProfileFile(path).remove(name)
    assert ProfileFile(path).profiles == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "is no name of a profile"), ("a.b", "is no name"), ("a b", "is no name"), ("ü", "is no name")],
)
def test_a_name_has_letters_and_digits(path: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ProfileFile(str(path)).add(name, {"acks": "all"})


def test_which_properties_are_secrets() -> None:
    secret = {"sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "ssl.truststore.password"}
    assert all(is_secret(key) for key in secret)
    assert not any(is_secret(key) for key in ("bootstrap.servers", "ssl.keystore.location", "sasl.mechanism"))


# Commands.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Say what one would connect with."""

    bootstrap: str = bootstrap_option()

    def run(self) -> None:
        found.append(client_arguments(self.bootstrap, "admin"))


found: list[dict[str, Any]] = []


def asked(arguments: Sequence[str], **environment: str) -> dict[str, Any] | str:
    """What a command connects with, or what it says is wrong."""
    found.clear()
    ran = CliRunner().invoke(to_click("ask", Ask), arguments, env=environment, standalone_mode=False)
    return found[0] if found else ran.stderr


def test_what_was_typed_counts_more_than_the_environment(path: Path, tmp_path: Path) -> None:
    path.write_text('[profile.p]\nbootstrap.servers = "p:1"\nclient.id = "of p"\n[profile.q]\nclient.id = "of q"\n')
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=f:1\nclient.id=of f\n")
    of_p, of_q = ["--profile", "p"], ["--profile", "q"]
    of_file, by_hand = ["--command-config", str(file)], ["--bootstrap", "h:1"]
    for_all = {"TIDELOG_PROFILE": "p"}, {"TIDELOG_COMMAND_CONFIG": str(file)}, {"TIDELOG_BOOTSTRAP": "e:1"}
    profile, config, bootstrap = for_all
    for typed, environment, expected in (
        ([], {}, "127.0.0.1:9092"),
        ([], bootstrap, "e:1"),
        ([], profile, "p:1 of p"),
        ([], config, "f:1 of f"),
        ([], profile | bootstrap, "e:1 of p"),
        (of_p, {}, "p:1 of p"),
        (of_p, config | bootstrap, "p:1 of p"),
        (of_file, profile | bootstrap, "f:1 of f"),
        (of_p + by_hand, config | bootstrap, "h:1 of p"),
        (by_hand, profile, "h:1 of p"),
        (of_q, {}, "127.0.0.1:9092 of q"),
        (of_q, bootstrap, "e:1 of q"),
    ):
        arguments = asked(typed, **environment)
        assert isinstance(arguments, dict), arguments
        said = f"{arguments['bootstrap_servers']} {arguments.get('client_id', '')}".strip()
        assert said == expected, (typed, environment)


def test_two_that_count_alike_are_an_error(path: Path, tmp_path: Path) -> None:
    path.write_text("[profile.p]\n")
    both = asked(["--profile", "p", "--command-config", "x"])
    assert both == "error: --command-config and --profile say what to connect with: give one of them\n"
    both = asked([], TIDELOG_PROFILE="p", TIDELOG_COMMAND_CONFIG="x")
    assert "TIDELOG_COMMAND_CONFIG and TIDELOG_PROFILE are both set" in both


def test_a_misspelt_property_is_named_with_its_place(path: Path) -> None:
    path.write_text('[profile.p]\nsecurity.protocl = "SSL"\n')
    said = asked(["--profile", "p"])
    assert f"error: {path}: profile 'p': " in said
    assert "did you mean security.protocol?" in said
    # What the others lack is what was misspelt.
    path.write_text('[profile.p]\nsasl.mechanism = "PLAIN"\nsecurity.protocl = "SASL_SSL"\n')
    assert "did you mean security.protocol?" in asked(["--profile", "p"])
    path.write_text('[profile.p]\n"qux" = "1"\n')
    assert "qux is no property of Kafka's clients; there are " in asked(["--profile", "p"])


def test_a_file_with_secrets_that_others_may_read_is_told_of(path: Path) -> None:
    path.write_text(
        f"[profile.p]\nsecurity.protocol = 'SASL_SSL'\nsasl.mechanism = 'PLAIN'\nsasl.jaas.config = '{PLAIN}'\n"
    )
    path.chmod(0o600)
    runner = CliRunner()

    def stderr() -> str:
        ran = runner.invoke(to_click("ask", Ask), ["--profile", "p"], standalone_mode=False)
        assert ran.exception is None
        return ran.stderr

    assert stderr() == ""
    path.chmod(0o644)
    assert stderr() == f"warning: {path} has secrets, and other users may read it: chmod 600 {path}\n"
    path.write_text('[profile.p]\nbootstrap.servers = "p:1"\n')
    assert stderr() == ""


def test_profiles_by_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    properties = tmp_path / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
        f"sasl.jaas.config={PLAIN}\n"
    )
    (tmp_path / "ca.pem").touch()
    assert run(["profiles", "list"]) == 0
    assert capsys.readouterr().out == (
        f"there are no profiles: {path} is not there; make one with: tidelog profiles add NAME --command-config FILE\n"
    )
    add = ["profiles", "add", "prod", "--command-config", str(properties), "--config", "bootstrap.servers=log:9092"]
    assert run(add) == 0
    assert run(add) == 2
    assert "profile 'prod' is there already: give --replace, or another name" in capsys.readouterr().err
    assert run([*add, "--replace"]) == 0
    capsys.readouterr()
    assert run(["profiles", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["prod", "log:9092", "SASL_SSL", "PLAIN"]
    assert run(["profiles", "show", "prod"]) == 0
    shown = capsys.readouterr().out
    assert "s3cret" not in shown
    assert "(hidden)" in shown
    assert os.path.abspath("ca.pem") in shown, "it may be used from another directory"
    assert run(["profiles", "show", "prdo"]) == 2
    assert "there is no profile 'prdo'" in capsys.readouterr().err
    assert run(["profiles", "add", "empty"]) == 2
    assert run(["profiles", "add", "wrong", "--config", "security.protocl=SSL"]) == 2
    assert "did you mean security.protocol?" in capsys.readouterr().err
    capsys.readouterr()
    assert run(["profiles", "remove", "prod", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": "prod"}
    assert ProfileFile(str(path)).profiles == {}
