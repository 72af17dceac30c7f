"""`tidelog profiles`: what commands connect with, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.cli.client_settings import checked_arguments, read_client_file, warn_of_readers
from tidelog.cli.command import UsageError, argument, config_option, option, output_option
from tidelog.cli.output import Row, Rows
from tidelog.cli.profile_file import HIDDEN, ProfileFile, is_secret, profile_path


def _file() -> ProfileFile:
    return ProfileFile(profile_path(os.environ))


def _row(name: str, properties: Mapping[str, str]) -> Row:
    keys = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    return {"profile": name, **{key.replace(".", "_"): properties.get(key) for key in keys}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListProfiles:
    """List the profiles, and where each connects.

    They are in ~/.config/tidelog/config.toml (XDG_CONFIG_HOME), or where TIDELOG_CONFIG says. A command takes one by
    --profile NAME or TIDELOG_PROFILE.

    Example:

        tidelog profiles list
    """

    output: str = output_option()

    def run(self) -> Rows:
        file = _file()
        if file.is_open_to_others:
            warn_of_readers(file.path)
        return Rows(
            [_row(name, properties) for name, properties in file.profiles.items()],
            nothing=f"there are no profiles: {file.nothing}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowProfile:
    """Show the properties of a profile, but for its secrets.

    Example:

        tidelog profiles show prod
    """

    name: str = argument(metavar="NAME")
    output: str = output_option()

    def run(self) -> Rows:
        properties = _file().properties(self.name)
        return Rows([{"key": key, "value": HIDDEN if is_secret(key) else value} for key, value in properties.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProfile:
    """Add a profile from a file of Kafka's client properties, or from single ones.

    Give secrets in a file: every user of a machine sees the arguments of commands.

    Examples:

        tidelog profiles add prod --command-config client.properties
        tidelog profiles add test --config bootstrap.servers=test-1:9092,test-2:9092
    """

    name: str = argument(metavar="NAME")
    command_config: str | None = option(
        "--command-config", default=None, metavar="FILE", help="A file of Kafka's client properties, to be copied."
    )
    config: tuple[tuple[str, str], ...] = config_option("A property, which replaces that of the file. May be repeated.")
    replace: bool = option("--replace", is_flag=True, help="In the place of the profile that has this name.")
    output: str = output_option()

    def run(self) -> Rows:
        given = {} if self.command_config is None else read_client_file(self.command_config)
        given |= dict(self.config)
        if not given:
            raise UsageError("a profile has properties: give --command-config FILE, or --config KEY=VALUE")
        properties = {
            key: os.path.abspath(value) if key.endswith(".location") and value else value
            for key, value in given.items()
        }
        checked_arguments(f"profile {self.name!r}", properties, "admin")
        file = _file()
        file.add(self.name, properties, is_replaced=self.replace)
        if file.is_open_to_others:
            warn_of_readers(file.path)
        return Rows([_row(self.name, properties)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveProfile:
    """Remove a profile from the file.

    Example:

        tidelog profiles remove test
    """

    name: str = argument(metavar="NAME")
    output: str = output_option()

    def run(self) -> Rows:
        _file().remove(self.name)
        return Rows([{"removed": self.name}])
