"""Write the pages of this directory from the tables in the code: `python docs/reference/generate.py`.

A test holds the committed pages to what this writes, so that no page can say what the code does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.base.errors import Code
from tidelog.cli.app import root
from tidelog.metadata.configs.broker import BROKER_CONFIGS
from tidelog.metadata.configs.key import INT32_MAX, INT64_MAX, ConfigKey, ConfigType, Support, Synonym
from tidelog.metadata.configs.topic import TOPIC_CONFIGS

HERE = Path(__file__).parent
LARGEST = {ConfigType.SHORT: 32_767, ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX}
NOTE = "<!-- Written by generate.py from the tables in the code: change those, then run it. -->"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def configuration() -> str:
    topics, brokers = list(TOPIC_CONFIGS), sorted(BROKER_CONFIGS, key=lambda key: key.name)
    lines = [
        NOTE,
        "# Configuration",
        "",
        "Every key of Apache Kafka 4.3, and some of Tidelog's own, which are marked as such. "
        "Each is of one of three kinds:",
        "",
        "- **served**: it does what it says below;",
        "- **without effect**: it is about sizes or times that are not so here. Its value is checked and kept, "
        "and the log has one warning of it;",
        "- **refused**: it is about security, durability, policy or tiers that are not served. "
        "Nothing but its default is taken, so that nobody believes in what is not so.",
        "",
        "A key that is not here is refused, with the closest one named, wherever it is set.",
        "",
        "`listener.name.LISTENER.KEY` is what `KEY` is if that is without effect or refused; "
        "no listener has a served setting of its own. "
        "What Kafka hands on to plugins (`config.providers.*`, `rsm.config.*`, `rlmm.config.*`, `super.users`, "
        "`allow.everyone.if.no.acl.found`) is refused with the plugin.",
        "The values of passwords are never shown.",
        "",
        "A topic's setting comes from the strongest place that has it:",
        "the topic itself, this broker (changed while running), all brokers (changed while running), "
        "the broker's `.properties` file, the default.",
        "`tidelog configs describe` shows what is in force and why, and `tidelog configs alter` changes it; "
        "so do Kafka's own tools and admin clients.",
        "",
        "## Topics",
        "",
        "All of them can be changed while brokers run, and are in force when the change is answered.",
        "",
        *topic_table(key for key in topics if key.support == Support.SERVED),
        "",
        *unserved("topics", topics),
        "## Brokers",
        "",
        "They stand in a node's `.properties` file. "
        'Those with "yes" can also be changed while brokers run, for one broker or for all; the others need a restart.',
        "",
        *broker_table(key for key in brokers if key.support == Support.SERVED),
        "",
        *unserved("brokers", brokers),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def topic_table(keys: Iterable[ConfigKey[Any]]) -> list[str]:
    return table(
        ("key", "type", "default", "allowed", "falls back to", "what it does"),
        (
            (
                *facts_of(key),
                allowed_of(key),
                ", ".join(synonym_of(one) for one in key.synonyms) or "–",
                key.doc + reason_of(key),
            )
            for key in keys
        ),
    )


def broker_table(keys: Iterable[ConfigKey[Any]]) -> list[str]:
    return table(
        ("key", "type", "default", "allowed", "changes while running", "what it does"),
        (
            (
                *facts_of(key),
                allowed_of(key),
                changes(key),
                key.doc + reason_of(key),
            )
            for key in keys
        ),
    )


def unserved(scope: str, keys: Sequence[ConfigKey[Any]]) -> list[str]:
    """The sections of what is not served."""
    without_effect = [key for key in keys if key.support == Support.WITHOUT_EFFECT]
    refused = [key for key in keys if key.support == Support.REFUSED]
    return [
        f"### Without effect, of {scope}",
        "",
        *table(
            ("key", "type", "default", "allowed", "changes while running", "why"),
            ((*facts_of(key), allowed_of(key), changes(key), key.why) for key in without_effect),
        ),
        "",
        f"### Refused, of {scope}",
        "",
        *table(
            ("key", "type", "only value", "changes while running", "why"),
            ((*facts_of(key), changes(key), key.why) for key in refused),
        ),
        "",
    ]


def facts_of(key: ConfigKey[Any]) -> tuple[str, str, str]:
    return f"`{key.name}`", type_of(key), default_of(key)


def changes(key: ConfigKey[Any]) -> str:
    return "yes" if key.is_dynamic else "no"


def type_of(key: ConfigKey[Any]) -> str:
    return key.type.name.lower()


def default_of(key: ConfigKey[Any]) -> str:
    if key.default is None:
        return "none"
    if key.default == "":
        return "empty"
    return f"`{key.default}`" + (" (the largest)" if key.default == str(LARGEST.get(key.type)) else "")


def allowed_of(key: ConfigKey[Any]) -> str:
    if key.choices:
        names = ", ".join(f"`{choice}`" for choice in key.choices)
        if key.type == ConfigType.LIST and len(key.choices) > 1:
            return f"any of {names}; or nothing" if key.may_be_empty else f"any of {names}"
        return names
    if key.type in LARGEST or key.type == ConfigType.DOUBLE:
        low, high = key.minimum, key.maximum
        if high is not None:
            return f"{low} to {high}"
        return "any number" if low is None else f"{low} or more"
    return "`true`, `false`" if key.type == ConfigType.BOOLEAN else "any"


def synonym_of(synonym: Synonym) -> str:
    return f"`{synonym.name}`" + (f" (times {synonym.scale:,})" if synonym.scale != 1 else "")


def reason_of(key: ConfigKey[Any]) -> str:
    return f" Other values are refused: {key.why}." if key.why else ""


def error_codes() -> str:
    rows = [
        (str(int(code)), f"`{code.name}`", "yes" if code.retriable else "no", code.meaning)
        for code in sorted(Code, key=int)
    ]
    lines = [
        NOTE,
        "# Error codes",
        "",
        "The codes of Kafka's protocol, as brokers answer them and clients report them.",
        "Where a code can be retried, the same request may succeed a moment later with nothing else changed.",
        "",
        *table(("code", "name", "can be retried", "meaning"), rows),
    ]
    return "\n".join(lines) + "\n"


def commands() -> str:
    lines = [
        NOTE,
        "# Commands",
        "",
        "What `tidelog COMMAND --help` says of each, in one place. "
        "The exit status is 0 when it was done, 1 when it failed, "
        "2 when it was asked for in a way that cannot be meant, and 130 after Ctrl-C.",
        "",
        *command_lines(root, "tidelog"),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def command_lines(group: click.Group, path: str) -> list[str]:
    """A section for each command below a group, in the order of the help."""
    lines: list[str] = []
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            lines += command_lines(command, f"{path} {name}")
            continue
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f"## {path} {name}", "", f"`{path} {name} {usage}`", "", *help_lines(command.help or ""), ""]
        options = [each for each in command.params if isinstance(each, click.Option)]
        rows = [
            (f"`{', '.join(each.opts)}{metavar_of(each)}`", default_text(each), each.help or "") for each in options
        ]
        lines += [*table(("option", "default", "meaning"), rows), ""]
    return lines


def help_lines(text: str) -> list[str]:
    """A docstring's paragraphs; what is indented are commands to type."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        written = paragraph.removeprefix("\b\n")
        if written.startswith("    "):
            lines += ["```", *(line.strip() for line in written.splitlines()), "```", ""]
        else:
            lines += [*written.splitlines(), ""]
    return lines[:-1]


def metavar_of(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "|".join(map(str, option.type.choices))
    return f" {option.metavar or option.type.name.upper()}"


def default_text(option: click.Option) -> str:
    value = option.default
    return "" if option.is_flag or not option.show_default or callable(value) else f"`{value}`"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "configuration.md": configuration,
    "error-codes.md": error_codes,
}
"""Each page of this directory, and what writes it."""


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
