"""What commands connect with: `--command-config`, `--profile`, and what the environment says in their place.

One of them counts, and what was typed counts more than what the environment says. So whoever types a profile is not
taken elsewhere by a variable that was exported long ago.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tidelog.base.errors import ConfigError

FILE, PROFILE = "command_config", "profile"
FILE_VARIABLE, PROFILE_VARIABLE = "TIDELOG_COMMAND_CONFIG", "TIDELOG_PROFILE"
_META = "tidelog.cli.client_settings"
ClientKind = Literal["admin", "consumer", "producer"]


class _Source(NamedTuple):
    """Where a command's settings are from.

    Attributes:
        flag: FILE or PROFILE.
        value: what it names.
        is_typed: whether it is on the command line.
    """

    flag: str
    value: str
    is_typed: bool


def client_options() -> list[click.Parameter]:
    """Of every command that connects: nobody has to pass them on, `client_arguments` finds them."""

    def remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            name = str(parameter.name)
            is_typed = context.get_parameter_source(name) is not ParameterSource.ENVIRONMENT
            context.meta.setdefault(_META, []).append(_Source(name, value, is_typed))

    return [
        click.Option(
            ["--command-config", FILE],
            envvar=FILE_VARIABLE,
            show_envvar=True,
            metavar="FILE",
            expose_value=False,
            callback=remember,
            help="A file of Kafka's client properties, as security.protocol and what belongs to it.",
        ),
        click.Option(
            ["--profile", PROFILE],
            envvar=PROFILE_VARIABLE,
            show_envvar=True,
            metavar="NAME",
            expose_value=False,
            callback=remember,
            shell_complete=_complete,
            help="Such properties by a name: see `tidelog profiles`.",
        ),
    ]


def client_arguments(bootstrap: str, client: ClientKind, **own: Any) -> dict[str, Any]:
    """What a command makes a client with: what it says itself, and behind that its file or its profile.

    Args:
        bootstrap: the command's; `bootstrap.servers` of the file or profile takes its place, unless it was typed, or is
            from the environment as the file or profile is.
        own: arguments of the client.

    Raises:
        ConfigError: the file or the profile cannot be read, or holds what cannot be meant. Names it and the key.
    """
    context = click.get_current_context(silent=True)
    source = None if context is None else _source(context.meta.get(_META, []))
    if context is None or source is None:
        return {**own, "bootstrap_servers": bootstrap}
    place, properties = _properties(source)
    arguments = checked_arguments(place, properties, client)
    weaker = {ParameterSource.DEFAULT} | ({ParameterSource.ENVIRONMENT} if source.is_typed else set())
    if context.get_parameter_source("bootstrap") in weaker:
        bootstrap = arguments.get("bootstrap_servers", bootstrap)
    return {**arguments, **own, "bootstrap_servers": bootstrap}


def checked_arguments(place: str, properties: Mapping[str, str], client: ClientKind) -> dict[str, Any]:
    """Arguments of a client from Kafka's properties.

    Args:
        place: where they are from, for errors.

    Raises:
        ConfigError: one is misspelt, or of no use.
    """
    import logging

    from tidelog.client import kafka_settings

    spelling = kafka_settings.Spelling(f"{place}: ")
    found = kafka_settings.client_settings(properties, consumer=client != "producer", spelling=spelling)
    for warning in found.warnings:
        logging.getLogger("tidelog.cli").warning("%s", warning)
    if client == "admin":
        return kafka_settings.admin_settings(found.arguments)
    return kafka_settings.client_arguments(found.arguments)


def as_typed(error: BaseException) -> str:
    """What went wrong, with Kafka's keys, which are what a person types, where a client names its arguments."""
    context = click.get_current_context(silent=True)
    source = None if context is None else next(reversed(context.meta.get(_META, [])), None)
    place = "" if source is None else source.value if source.flag == FILE else f"profile {source.value!r}"
    text = re.sub(r"\b(?:Admin|Consumer|Producer|Factory)\((\w+=[^()]*)\)", r"\1", str(error))
    if "_" not in text or (place and place in text):
        return text
    from tidelog.client.kafka_security import SECURITY_KEYS
    from tidelog.client.kafka_settings import every_key

    keys = {key.replace(".", "_"): key for key in every_key() | SECURITY_KEYS}
    own = {"bootstrap_servers": "--bootstrap", "default_api_timeout_ms": "--timeout", "max_block_ms": "--timeout"}
    keys |= own | {f"sasl_{one}": f"sasl.jaas.config, {one}" for one in ("username", "password")}
    names = "|".join(sorted((name for name in keys if "_" in name), key=len, reverse=True))
    pattern = re.compile(rf"\b({names})\b(?!')(?:(=)'([^']*)')?")
    found = {name for name, _, _ in pattern.findall(text)}
    typed = pattern.sub(lambda one: keys[one[1]] + (f"={one[3]}" if one[2] else ""), text)
    if found <= own.keys():
        return typed
    if not place:
        return f"{typed}; in a file, for --command-config"
    return f"{place}: {typed}" if isinstance(error, ConfigError) else typed


def read_client_file(path: str) -> dict[str, str]:
    """Kafka's properties in a file. Raises ConfigError: it cannot be read."""
    from tidelog.cli.properties import parse_properties

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--command-config {path}: it cannot be read: {reason}") from None
    return parse_properties(text, source=path)


def _source(given: list[_Source]) -> _Source | None:
    """The one that counts."""
    typed = [one for one in given if one.is_typed]
    counting = typed or given
    if len(counting) > 1:
        if typed:
            raise ConfigError("--command-config and --profile say what to connect with: give one of them")
        raise ConfigError(
            f"{FILE_VARIABLE} and {PROFILE_VARIABLE} are both set, and one counts: unset the other, or give --profile "
            "or --command-config"
        )
    return counting[0] if counting else None


def _properties(source: _Source) -> tuple[str, dict[str, str]]:
    """Where they are from, and what they are."""
    if source.flag == FILE:
        return source.value, read_client_file(source.value)
    from tidelog.cli.profile_file import ProfileFile, profile_path

    file = ProfileFile(profile_path(os.environ))
    properties = file.properties(source.value)
    if file.is_open_to_others:
        warn_of_readers(file.path)
    return f"{file.path}: profile {source.value!r}", properties


def warn_of_readers(path: str) -> None:
    """Say on stderr that others may read a file with secrets."""
    print(f"warning: {path} has secrets, and other users may read it: chmod 600 {path}", file=sys.stderr, flush=True)


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tidelog.cli.profile_file import ProfileFile, profile_path

    try:
        names = ProfileFile(profile_path(os.environ)).profiles
    except ConfigError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
