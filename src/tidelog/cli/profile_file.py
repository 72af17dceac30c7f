"""The file of profiles: what commands connect with, by names that a person gave.

    [profile.prod]
    bootstrap.servers = "log.example.org:9092"
    security.protocol = "SASL_SSL"

The keys are those of Kafka's clients. It is `config.toml` in `~/.config/tidelog` (`XDG_CONFIG_HOME`), or what
`TIDELOG_CONFIG` names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.base.errors import ConfigError

FILE_VARIABLE = "TIDELOG_CONFIG"
_TABLE = "profile"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SECRETS = ("password", "passphrase", "jaas.config", "keystore.key", "secret")
HIDDEN = "(hidden)"


def profile_path(environment: Mapping[str, str]) -> str:
    """Where the file is, be it there or not."""
    named = environment.get(FILE_VARIABLE)
    if named:
        return named
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "tidelog", "config.toml")


def is_secret(key: str) -> bool:
    """Whether the value of a property is nobody's business."""
    return any(word in key for word in _SECRETS)


class ProfileFile:
    """The profiles of one file.

    Args:
        path: need not be there.

    Attributes:
        profiles: properties of clients, by the names of profiles, in the order of the file.

    Raises:
        ConfigError: it cannot be read, or says what cannot be meant. Names it and the place.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._text = self._read()
        self.profiles = self._parsed(self._text)

    def properties(self, name: str) -> dict[str, str]:
        """Those of a profile. Raises ConfigError: there is none of that name; says which there are."""
        found = self.profiles.get(name)
        if found is None:
            raise ConfigError(f"there is no profile {name!r}: {self._there_are()}")
        return dict(found)

    @property
    def is_open_to_others(self) -> bool:
        """Whether other users of this machine may read secrets in it."""
        try:
            mode = os.stat(self.path).st_mode
        except OSError:
            return False
        return bool(mode & 0o077) and _has_secrets(self.profiles)

    @property
    def nothing(self) -> str:
        """Why there is no profile in it, and what to do."""
        has_none = "has none" if os.path.exists(self.path) else "is not there"
        return f"{self.path} {has_none}; make one with: tidelog profiles add NAME --command-config FILE"

    def add(self, name: str, properties: Mapping[str, str], *, is_replaced: bool = False) -> None:
        """Write another profile behind the others.

        Args:
            is_replaced: whether it takes the place of one of that name.

        Raises:
            ConfigError: the name is none, or taken; or the file cannot be written.
        """
        if _NAME.fullmatch(name) is None:
            raise ConfigError(f"{name!r} is no name of a profile: give it letters, digits, - and _")
        text = self._text
        if name in self.profiles:
            if not is_replaced:
                raise ConfigError(f"{self.path}: profile {name!r} is there already: give --replace, or another name")
            text = self._without(name)
        lines = [f"[{_TABLE}.{name}]", *(f"{_quoted(key)} = {_quoted(value)}" for key, value in properties.items())]
        before = text.rstrip("\n") + "\n\n" if text.strip() else ""
        self._write(before + "\n".join(lines) + "\n", {**self.profiles, name: dict(properties)})

    def remove(self, name: str) -> None:
        """Raises ConfigError: there is none of that name, or the file cannot be written."""
        self.properties(name)
        self._write(self._without(name), {key: value for key, value in self.profiles.items() if key != name})

    def _there_are(self) -> str:
        if self.profiles:
            return f"{self.path} has {', '.join(sorted(self.profiles))}"
        return self.nothing

    def _read(self) -> str:
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ConfigError(f"{self.path}: it cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{self.path}: it is not UTF-8; save it as UTF-8") from None

    def _parsed(self, text: str) -> dict[str, dict[str, str]]:
        if not text:
            return {}
        import tomllib  # no command needs it without a profile

        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.path}: {error}") from None
        for key in tables.keys() - {_TABLE}:
            raise ConfigError(f"{self.path}: {key!r} is not known: profiles are tables such as [{_TABLE}.prod]")
        profiles = tables.get(_TABLE, {})
        if not isinstance(profiles, dict):
            raise ConfigError(f"{self.path}: {_TABLE} is no table; write [{_TABLE}.NAME]")
        found = {}
        for name, table in profiles.items():
            if not isinstance(table, dict):
                raise ConfigError(f"{self.path}: {_TABLE}.{name} is no table; write [{_TABLE}.{name}]")
            found[name] = dict(self._flat(name, table))
        return found

    def _flat(self, name: str, table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
        """TOML takes the dots of keys that are not quoted for tables."""
        for key, value in table.items():
            match value:
                case dict():
                    yield from self._flat(name, value, f"{prefix}{key}.")
                case bool():
                    yield prefix + key, str(value).lower()
                case str() | int() | float():
                    yield prefix + key, str(value)
                case list() if all(isinstance(one, str) for one in value):
                    yield prefix + key, ",".join(value)
                case _:
                    raise ConfigError(f"{self.path}: profile {name!r}: {prefix}{key} is no text, number or true/false")

    def _without(self, name: str) -> str:
        """The text but for a profile, from its header to the next one. Comments of its own go with it."""
        header = re.compile(rf"\[\s*{_TABLE}\s*\.\s*(?:{re.escape(name)}|\"{re.escape(name)}\")\s*\]\s*(?:#.*)?")
        kept, is_its_own = [], False
        for line in self._text.split("\n"):
            if line.lstrip().startswith("["):
                is_its_own = header.fullmatch(line.strip()) is not None
            if not is_its_own:
                kept.append(line)
        return "\n".join(kept).strip("\n") + "\n" if any(kept) else ""

    def _write(self, text: str, expected: Mapping[str, Mapping[str, str]]) -> None:
        """Whole or not at all; its owner alone may read what is new."""
        try:
            is_as_expected = self._parsed(text) == expected
        except ConfigError:
            is_as_expected = False
        if not is_as_expected:
            raise ConfigError(f"{self.path}: it is written in a way that only a person can change: edit it yourself")
        path = os.path.realpath(self.path)
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
            if _has_secrets(expected) and not _has_secrets(self.profiles):  # else its owner has said who may read them
                mode &= 0o700
            descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            os.fchmod(descriptor, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.tmp", path)
        except OSError as error:
            raise ConfigError(f"{self.path}: it cannot be written: {error.strerror}") from None
        self._text, self.profiles = text, {name: dict(one) for name, one in expected.items()}


def _has_secrets(profiles: Mapping[str, Mapping[str, str]]) -> bool:
    return any(is_secret(key) for one in profiles.values() for key in one)


def _quoted(text: str) -> str:
    """A string of TOML, whose escapes are those of JSON; but DEL is one as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
