"""`tidelog configs`: the settings of topics, brokers and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tidelog.cli.command import (
    UsageError,
    argument,
    bootstrap_option,
    config_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.descriptions import ConfigResource

KINDS = click.Choice(["topic", "broker", "group"])
ALL_BROKERS = "all"


def resource(kind: str, name: str) -> ConfigResource:
    """What is meant: a topic, a group, a broker, or `broker all`, which stands for what brokers share."""
    from tidelog import ConfigResource

    if kind != "broker":
        return ConfigResource(kind, name)  # type: ignore[arg-type]
    return ConfigResource("broker", "" if name == ALL_BROKERS else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigs:
    """Show the settings of a topic, of a group, of a broker (by its id), or of all brokers (`broker all`).

    Those that somebody set come first, with where they come from.

    Examples:

        tidelog configs describe topic flights
        tidelog configs describe broker 1 --doc
        tidelog configs describe topic flights --set
    """

    kind: str = argument(type=KINDS)
    name: str = argument(metavar="NAME")
    only_set: bool = option("--set", is_flag=True, help="Only those that are not defaults.")
    doc: bool = option("--doc", is_flag=True, help="What each does.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        asked = resource(self.kind, self.name)
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            entries = admin.describe_configs([asked], include_documentation=self.doc)[asked].values()
        rows: list[Row] = []
        for entry in sorted(entries, key=lambda entry: (entry.is_default, entry.name)):
            if self.only_set and entry.is_default:
                continue
            row: dict[str, object] = {
                "key": entry.name,
                "value": entry.value,
                "source": entry.source,
                "read_only": entry.is_read_only,
            }
            if self.doc:
                row["doc"] = entry.documentation
            rows.append(row)
        return Rows(rows, nothing="all settings are defaults" if self.only_set else "no settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Change settings of a topic, of a group, of a broker (by its id), or of all brokers (`broker all`).

    What is not named stays as it is. Prints what is in force then.

    Examples:

        tidelog configs alter topic flights --config retention.ms=3600000
        tidelog configs alter topic flights --delete retention.ms
        tidelog configs alter group readers --config consumer.session.timeout.ms=60000
    """

    kind: str = argument(type=KINDS)
    name: str = argument(metavar="NAME")
    config: tuple[tuple[str, str], ...] = config_option("A setting to make, by Kafka's key. May be repeated.")
    delete: tuple[str, ...] = option(
        "--delete", multiple=True, metavar="KEY", help="A setting to take back to its default. May be repeated."
    )
    validate_only: bool = option("--validate-only", is_flag=True, help="Check, and change nothing.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        changes = changed_configs(self.config, self.delete)
        if not changes:
            raise UsageError("nothing is to be changed: say --config KEY=VALUE or --delete KEY")
        asked = resource(self.kind, self.name)
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            admin.alter_configs({asked: changes}, validate_only=self.validate_only)
            entries = admin.describe_configs([asked])[asked]
        rows: list[Row] = [
            {"key": entries[key].name, "value": entries[key].value, "source": entries[key].source}
            for key in changes
            if key in entries
        ]
        return Rows(rows, nothing="done")


def changed_configs(config: tuple[tuple[str, str], ...], delete: tuple[str, ...]) -> dict[str, str | None]:
    """The values of --config and --delete, by key: None takes back to the default.

    Raises:
        UsageError: a key is named more than once.
    """
    changes: dict[str, str | None] = {}
    for key, value in [*config, *((key, None) for key in delete)]:
        if key in changes:
            raise UsageError(f"{key} is named more than once: which is meant?")
        changes[key] = value
    return changes
