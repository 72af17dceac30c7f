"""Write the pages of this directory from the tables in the code: `python docs/reference/generate.py`.

A test holds the committed pages to what this writes, so that no page can say what the code does not do.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any

import click

import tidelog
from tidelog import aio, prometheus, schemas, serialization, spark, testing
from tidelog.base.errors import Code, TidelogError
from tidelog.cli.app import root
from tidelog.client import kafka_security as security_settings
from tidelog.client import kafka_settings as client_settings
from tidelog.client.options import AdminConfig, ConsumerConfig, ProducerConfig
from tidelog.metadata.configs.broker import BROKER_CONFIGS
from tidelog.metadata.configs.groups import GROUP_CONFIGS
from tidelog.metadata.configs.key import INT32_MAX, INT64_MAX, ConfigKey, ConfigType, Support, Synonym
from tidelog.metadata.configs.topic import TOPIC_CONFIGS
from tidelog.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

HERE = Path(__file__).parent
LARGEST = {ConfigType.SHORT: 32_767, ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX}
LINE_MAX = 100
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
        "`listener.name.LISTENER.KEY` sets a served `KEY` of TLS or SASL for one listener, its name in small letters. "
        "Of another key it is without effect or refused, as the key itself is. "
        "What Kafka hands on to plugins (`config.providers.*`, `rsm.config.*`, `rlmm.config.*`) is refused with the "
        "plugin.",
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
        "## Groups",
        "",
        "Of a consumer group (KIP-848), by its name (`tidelog configs alter group NAME`), over what the broker says. "
        "All of them can be changed while brokers run.",
        "",
        *topic_table(key for key in GROUP_CONFIGS if key.support == Support.SERVED),
        "",
        *unserved("groups", GROUP_CONFIGS),
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


GROUPS: dict[str, tuple[str, ...]] = {
    "Clients": ("Producer", "Consumer", "Admin", "Factory"),
    "What clients take and return": (
        "TopicPartition",
        "Future",
        "RecordMetadata",
        "BatchMetadata",
        "ConsumerRecord",
        "ConsumerRecords",
        "Transaction",
        "PreparedTransaction",
        "ResumedTransaction",
        "GroupMetadata",
        "FetchedBatches",
        "Position",
        "PositionReset",
        "ResetReason",
        "OffsetAndEpoch",
        "PartitionStatistics",
        "ProducerStatistics",
        "AclBinding",
        "AclBindingFilter",
        "NewTopic",
        "ConfigResource",
        "EpochEnd",
        "CommittedOffset",
        "GroupMetadata",
        "ConsistencyContext",
        "ConsistencyContextStore",
    ),
}
"""The names of the package by the section they stand in. Errors, which are the rest, have their own."""

TESTING = ("Cluster", "Node", "LostRecords")
SCHEMAS = (
    "SchemaRegistry", "RegisteredSchema", "Reference", "AvroSerializer", "AvroDeserializer", "JsonSchemaSerializer",
    "JsonSchemaDeserializer", "ProtobufSerializer", "ProtobufDeserializer",
)  # fmt: skip
SPARK_FUNCTIONS = ("losses", "find_tag", "lag", "with_lag")
SPARK_VALUES = ("QueryLoss", "SourceLag", "Tagged")
SERIALIZATION = ("to_json", "from_json", "from_text", "or_none")
OPTIONS = {"Producer": ProducerConfig, "Consumer": ConsumerConfig, "Admin": AdminConfig}
SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:", "Yields:")
WITHOUT_A_PAGE = {"__version__", "Code"}


class Source(str):
    """An annotation as it stands in the code: `inspect` would put quotes around it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def python_api() -> str:
    listed = {name for names in GROUPS.values() for name in names} | WITHOUT_A_PAGE
    errors = [name for name in tidelog.__all__ if name not in listed]
    assert all(issubclass(getattr(tidelog, name), TidelogError) for name in errors), "a name without a group"
    lines = [
        NOTE,
        "# Python API",
        "",
        "All names are in `tidelog`. [The clients' page](../clients.md) says how they are used, and why.",
        "",
        "`tidelog.aio` has the same clients for event loops. `async with` and `async for` take the place of `with` and "
        f"`for`, and each method is awaited, but for those that wait for nothing: {', '.join(unawaited())}.",
        "",
        *(f"- {title}: {', '.join(map(link, names))}" for title, names in GROUPS.items()),
        "- [Errors](#errors)",
        "",
    ]
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += class_lines(name, getattr(tidelog, name))
    lines += ["## Errors", "", "[Error codes](error-codes.md) says what each `code` of a `KafkaError` means.", ""]
    rows = [error_row(name, getattr(tidelog, name)) for name in sorted(errors, key=depth_of)]
    lines += table(("error", "is a", "what it says", "carries"), rows)
    return "\n".join(lines).rstrip("\n") + "\n"


def testing_api() -> str:
    lines = [
        NOTE,
        "# `tidelog.testing`",
        "",
        "[Testing a pipeline](../testing.md) says how they are used, and lists the fixtures of the pytest plugin.",
        "",
        "`CLIENTS` stands for all clients where `Cluster.partition` takes nodes.",
        "",
    ]
    for name in TESTING:
        lines += class_lines(name, getattr(testing, name))
    errors = [name for name in testing.__all__ if name not in (*TESTING, "CLIENTS", "ClusterFactory")]
    rows = [error_row(name, getattr(testing, name)) for name in errors]
    lines += ["## Errors", "", *table(("error", "is a", "what it says", "carries"), rows)]
    return "\n".join(lines).rstrip("\n") + "\n"


def modules_api() -> str:
    lines = [
        NOTE,
        "# Modules beside the package",
        "",
        "## `tidelog.schemas`",
        "",
        "[Schemas](../schemas.md) says how they are used.",
        "",
    ]
    for name in SCHEMAS:
        lines += class_lines(name, getattr(schemas, name))
    errors = [name for name in schemas.__all__ if name not in SCHEMAS]
    rows = [error_row(name, getattr(schemas, name)) for name in errors]
    lines += [*table(("error", "is a", "what it says", "carries"), rows), "", "## `tidelog.serialization`", ""]
    for name in SERIALIZATION:
        function = getattr(serialization, name)
        text = f"{name}{inspect.signature(function)}".replace("'", "")
        lines += [f"### {name}", "", "```python", text, "```", "", *doc_lines(function), ""]
    lines += ["## `tidelog.prometheus`", "", "[Metrics](../clients.md#metrics) lists what it gives to Prometheus.", ""]
    lines += class_lines("ClientCollector", prometheus.ClientCollector)
    lines += [
        "## `tidelog.spark`",
        "",
        "[Spark](../spark.md) says how they are used, with `LossListener` and `GroupCommitter`, which need pyspark.",
        "",
    ]
    for name in SPARK_FUNCTIONS:
        function = getattr(spark, name)
        text = f"{name}{inspect.signature(function)}".replace("'", "")
        lines += [f"### {name}", "", "```python", text, "```", "", *doc_lines(function), ""]
    for name in SPARK_VALUES:
        lines += class_lines(name, getattr(spark, name))
    return "\n".join(lines).rstrip("\n") + "\n"


def spark_options() -> str:
    readers, writers = set(client_settings.CONSUMER), set(client_settings.PRODUCER)
    used = {
        **dict.fromkeys(client_settings.SHARED, "read and write"),
        **dict.fromkeys(readers, "read"),
        **dict.fromkeys((*writers, *client_settings.PARTITIONING), "write"),
        "group.id": "read, as the client's name in the brokers' logs",
    }
    accepted = {**client_settings.WITHOUT_EFFECT, **security_settings.WITHOUT_EFFECT}
    only = {key: (", ".join(f"`{one}`" for one in values if one) or "an empty value", why)
            for key, (values, why) in client_settings.ONLY_VALUES.items()}  # fmt: skip
    lines = [
        NOTE,
        "# Options of the Spark source and sink",
        "",
        "[From Spark's Kafka connector](../spark-from-kafka-connector.md) compares them with those of Spark's own. "
        "Names are not case-sensitive. An unknown option is refused, with the closest one named.",
        "",
        "## Source",
        "",
        *table(("option", "meaning"), [(f"`{name}`", doc) for name, doc in SOURCE_OPTIONS.items()]),
        "",
        "## Sink",
        "",
        *table(("option", "meaning"), [(f"`{name}`", doc) for name, doc in SINK_OPTIONS.items()]),
        "",
        "Options of the source have no effect on a sink, nor the other way round, so that one set may serve both. "
        "`strictOptions` refuses them.",
        "",
        "## Settings of the clients",
        "",
        "Keys of Kafka's clients stand behind `kafka.`. These are in force:",
        "",
        *table(("key", "for"), [(f"`kafka.{key}`", used[key]) for key in sorted(used)]),
        "",
        "Security, for both: "
        + ", ".join(f"`kafka.{key}`" for key in sorted(security_settings.USED))
        + ". [Clients of secured clusters](../security-clients.md) says what they mean, in snake case.",
        "",
        "These are accepted, and change nothing:",
        "",
        *table(("key", "why"), [(f"`kafka.{key}`", why) for key, why in sorted(accepted.items())]),
        "",
        "These are accepted, and the log has one warning of each, since speed or resources may depend on them in "
        "Kafka's own clients:",
        "",
        *table(
            ("key", "what is so instead"),
            [(f"`kafka.{key}`", why) for key, why in sorted(client_settings.WITHOUT_COUNTERPART.items())],
        ),
        "",
        "These are refused, unless they have the value that changes nothing:",
        "",
        *table(
            ("key", "accepted value", "why"),
            [
                *((f"`kafka.{key}`", *only[key]) for key in sorted(only)),
                *((f"`kafka.{key}`", "none", why) for key, why in sorted(client_settings.REFUSED.items())),
                *(
                    (f"`kafka.{key}`", values, "the connection would not be what it says")
                    for key, values in sorted(security_settings.accepted_values().items())
                ),
            ],
        ),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def unawaited() -> list[str]:
    """The methods of asynchronous clients that are plain calls."""
    clients = [(name, getattr(aio, name)) for name in aio.__all__ if name != "Factory"]
    found = [(name, cls, method) for name, cls in clients for method in methods_of(cls)]
    plain = [(name, method) for name, cls, method in found if not inspect.iscoroutinefunction(getattr(cls, method))]
    return [f"`{name}.{method}`" for name, method in plain]


def link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def depth_of(name: str) -> tuple[int, str]:
    return len(getattr(tidelog, name).__mro__), name


def error_row(name: str, error: type[TidelogError]) -> tuple[str, str, str, str]:
    carried = sorted(carried_by(error)) if "__init__" in vars(error) else []
    told = (inspect.getdoc(error) or "").partition("Attributes:")[0]
    meaning = " ".join(line for line in told.splitlines() if line)
    return f"`{name}`", f"`{error.__mro__[1].__name__}`", meaning, ", ".join(f"`{one}`" for one in carried)


def carried_by(error: type) -> set[str]:
    """The attributes and properties of an error, with those of errors that it is one of."""
    bases = [base for base in error.__mro__ if issubclass(base, TidelogError) and base is not TidelogError]
    own = {name for base in bases for name, value in vars(base).items() if isinstance(value, property)}
    return own.union(*map(attributes_set, bases)) - {"retriable"}


def attributes_set(cls: type) -> set[str]:
    """What a constructor puts on the object."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_")
    }


def class_lines(name: str, cls: type) -> list[str]:
    lines = [f"### {name}", ""]
    if name in OPTIONS or name in ("Factory", "ConsistencyContextStore", "Cluster", *SCHEMAS):
        lines += ["```python", signature_text(name, cls), "```", ""]
    lines += [*doc_lines(cls), ""]
    if name in OPTIONS:
        lines += [*table(("option", "default", "meaning"), option_rows(OPTIONS[name])), ""]
    elif issubclass(cls, Enum):
        documented = field_docs(cls)
        rows = [(f"`{one.name}`", f"`{one.value!r}`", documented.get(one.name, "")) for one in cls]
        lines += [*described_table(("member", "value", "meaning"), rows), ""]
    elif rows := fields_of(cls):
        lines += [*described_table(("field", "type", "meaning"), rows), ""]
    elif name in TESTING:
        attributes = items_of(inspect.getdoc(cls) or "", "Attributes:")
        lines += [*table(("attribute", "meaning"), [(f"`{one}`", what) for one, what in attributes]), ""]
    for method in methods_of(cls):
        lines += method_lines(cls, method)
    return lines


def described_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Without the last column where it says nothing."""
    if any(row[-1] for row in rows):
        return table(titles, rows)
    return table(titles[:-1], [row[:-1] for row in rows])


def fields_of(cls: type) -> list[tuple[str, str, str]]:
    names = getattr(cls, "_fields", ()) or list(getattr(cls, "__dataclass_fields__", ()))
    annotations = [vars(base).get("__annotations__", {}) for base in reversed(cls.__mro__)]
    types = {name: kind for found in annotations for name, kind in found.items()}
    documented = field_docs(cls)
    return [(f"`{name}`", f"`{source_of(types[name])}`", documented.get(name, "")) for name in names]


def option_rows(config: type) -> list[tuple[str, str, str]]:
    """Those of all clients last."""
    documented = {name: text for base in reversed(config.__mro__[:-1]) for name, text in field_docs(base).items()}
    own = [one for one in fields(config) if one.name in config.__annotations__]
    shared = [one for one in fields(config) if one not in own]
    rows = []
    for one in (*own, *shared):
        values = ", ".join(f"`{value!r}`" for value in one.metadata.get("values", ()))
        allowed = f" One of {values}." if values else ""
        rows.append((f"`{one.name}`", f"`{one.default!r}`", documented.get(one.name, "") + allowed))
    return rows


def field_docs(cls: type) -> dict[str, str]:
    """The strings that stand below the fields of a class, and what its `Attributes:` says."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = dict(items_of(inspect.getdoc(cls) or "", "Attributes:"))
    for field, text in pairwise(tree.body):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            target = field.target if isinstance(field, ast.AnnAssign) else getattr(field, "targets", [None])[0]
            if isinstance(target, ast.Name):
                found[target.id] = " ".join(text.value.value.split())
    return found


def methods_of(cls: type) -> list[str]:
    """The public ones, in the order of the source; none that a base outside of Tidelog brought along."""
    classes = [one for one in cls.__mro__ if one.__module__.startswith("tidelog")]
    names = [name for one in classes for name, value in vars(one).items() if is_described(value)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def is_described(value: object) -> bool:
    return isinstance(value, (FunctionType, property, classmethod, staticmethod)) and bool(inspect.getdoc(value))


def method_lines(cls: type, name: str) -> list[str]:
    value = inspect.getattr_static(cls, name)
    title = f"#### `{cls.__name__}.{name}`"
    doc = doc_lines(value)
    if isinstance(value, property):
        return [title, "", *doc, ""]
    function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    return [title, "", "```python", signature_text(name, function), "```", "", *doc, ""]


def signature_text(name: str, called: Callable[..., Any]) -> str:
    """On one line if it fits, else with a line for each parameter."""
    signature = inspect.signature(called)
    parameters = [
        one.replace(annotation=one.empty if one.name == "options" else source_of(one.annotation))
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    returned = source_of(signature.return_annotation)
    end = "" if isinstance(called, type) or returned is signature.empty else f" -> {returned}"
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    line = f"{name}{text}{end}"
    if len(line) <= LINE_MAX:
        return line
    shown = [str(signature.replace(parameters=[one], return_annotation=signature.empty)) for one in parameters]
    marks = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    has_star = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    lines = []
    for one, part in zip(parameters, shown, strict=True):
        inner = part[1:-1].removeprefix("*, ")
        if one.name in marks and not has_star:
            lines.append("    *,")
            has_star = True
        lines.append(f"    {inner},")
    return "\n".join([f"{name}(", *lines, f"){end}"])


def source_of(annotation: Any) -> Any:
    """As it stands in the code."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return Source(text) if isinstance(text, str) else annotation


def doc_lines(described: object) -> list[str]:
    """A docstring in Markdown: its sections as lists, what is indented as code."""
    lines: list[str] = []
    text = inspect.getdoc(described) or ""
    for paragraph in re.split(r"\n\n+(?=\S)", text):
        title, _, body = paragraph.partition("\n")
        if title in SECTIONS:
            if title == "Attributes:":
                continue  # they are a table
            items = items_of(text, title)
            lines += [f"{title[:-1]}:", ""]
            lines += [f"- `{name}`: {what}" for name, what in items] if items else [" ".join(body.split())]
        elif "\n\n    " in paragraph:
            before, _, code = paragraph.partition("\n\n")
            lines += [*before.splitlines(), "", "```python", *textwrap.dedent(code).splitlines(), "```"]
        else:
            lines += paragraph.splitlines()
        lines.append("")
    return lines[:-1]


def items_of(text: str, title: str) -> list[tuple[str, str]]:
    """The `name: what` of a section of a docstring."""
    body = re.search(rf"^{title}\n((?:[ ]+.*\n?|\n)+)", text, re.MULTILINE)
    if body is None or title in ("Returns:", "Yields:"):
        return []
    found = re.findall(r"^    (\S[^:\n]*): (.*(?:\n     +.*)*)", body[1], re.MULTILINE)
    return [(name, " ".join(what.split())) for name, what in found]


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "configuration.md": configuration,
    "error-codes.md": error_codes,
    "python.md": python_api,
    "testing.md": testing_api,
    "modules.md": modules_api,
    "spark.md": spark_options,
}
"""Each page of this directory, and what writes it."""


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
