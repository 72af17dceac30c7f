"""What a command is: a frozen dataclass whose fields are its flags, and whose docstring is its help.

`run()` does the work and returns rows (printed by `output.py`, as a table or as JSON), an exit status, or nothing.
No command prints its result, parses its flags or catches errors in order to word them: that is done here and in
`app.py`, once.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from tidelog.base.errors import ConfigError, TidelogError
from tidelog.cli.client_settings import as_typed, client_arguments, client_options
from tidelog.cli.output import LiveRows, Rows, Sections, print_live, print_rows, print_sections, printable

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin

FAILED = 1
USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
"""Exit statuses beside 0. The last two are what a shell reports for SIGINT and SIGPIPE."""

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
"""The largest numbers that the protocol has room for."""
TIMEOUT_SECONDS_MAX = INT32_MAX // 1_000

LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


CONTEXT_SETTINGS = {"help_option_names": ["--help", "-h"], "max_content_width": 120}

_PARAMETER = "tidelog.cli.parameter"


class Command(Protocol):
    """A command with its flags filled in."""

    def run(self) -> Rows | LiveRows | Sections | int | None: ...


class UsageError(TidelogError):
    """What was typed cannot be meant. Ends with status 2; nothing was done."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    make: Callable[[str], click.Parameter]


def argument(**settings: Any) -> Any:
    """A field that is given by its place. `settings` are click's: `metavar`, `nargs`, `type`, `required`."""
    return dataclasses.field(metadata={_PARAMETER: _Parameter(lambda name: click.Argument([name], **settings))})


def option(*flags: str, **settings: Any) -> Any:
    """A field that is given by a flag. `settings` are click's: `default`, `help`, `type`, `multiple`, `is_flag`."""
    settings.setdefault("show_default", settings.get("default") not in (None, "", ()) and not settings.get("is_flag"))
    return dataclasses.field(metadata={_PARAMETER: _Parameter(lambda name: click.Option([name, *flags], **settings))})


def bootstrap_option() -> Any:
    return option(
        "--bootstrap",
        default=DEFAULT_BOOTSTRAP,
        envvar="TIDELOG_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Brokers to ask first.",
    )


def timeout_option(help_text: str = "How long to look for a broker, or wait for an answer.") -> Any:
    return option(
        "--timeout",
        type=Duration(0.001, TIMEOUT_SECONDS_MAX),
        default=10.0,
        metavar="SECONDS",
        help=help_text,
    )


def output_option() -> Any:
    return option("--output", "-o", type=click.Choice(["table", "json"]), default="table", help="How to print rows.")


def log_level_option(default: str = "warning") -> Any:
    return option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default=default,
        help="What to log to stderr; debug shows tracebacks too.",
    )


def log_format_option() -> Any:
    return option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default=None,
        help="What the log to stderr looks like; as logging.format does.",
    )


def config_option(help_text: str) -> Any:
    return option("--config", type=KeyValue(), multiple=True, metavar="KEY=VALUE", help=help_text)


class _Bounded(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A number within bounds, whose error names them."""

    words: str
    read: Callable[[str], float]

    def __init__(self, low: float = 0, high: int = INT32_MAX) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        with suppress(ValueError):
            number = self.read(value)
            if self.low <= number <= self.high:
                return number
        return self.fail(f"{value!r} is not {self.words} from {self.low} to {self.high}.", parameter, context)


class WholeNumber(_Bounded):
    """A whole number that the protocol has room for."""

    name, words, read = "integer", "a whole number", int


class Duration(_Bounded):
    """So many seconds or minutes."""

    name, words, read = "float", "a number", float


class KeyValue(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`key=value`, the value being everything after the first `=`."""

    name = "key=value"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE.", parameter, context)
        return key.strip(), text.strip()


def to_click(name: str, command_class: type[Command]) -> click.Command:
    """The click command that fills in a command's fields and runs it."""
    fields = dataclasses.fields(command_class)  # type: ignore[arg-type]
    params = []
    for field in fields:
        params.append(field.metadata[_PARAMETER].make(field.name))
        if field.name == "bootstrap":
            params += client_options()
    return click.Command(
        name,
        params=params,
        help=help_of(command_class),
        context_settings=CONTEXT_SETTINGS,
        callback=lambda **values: execute(command_class(**values)),
    )


def help_of(command_class: type[Command]) -> str:
    """The docstring as click wants it: its indented paragraphs (examples) are left as they are."""
    paragraphs = inspect.cleandoc(command_class.__doc__ or "").split("\n\n")
    return "\n\n".join(f"\b\n{text}" if text.startswith("    ") else text for text in paragraphs)


def execute(command: Command) -> int:
    """Run a command, print what it returns, and turn what went wrong into one line and an exit status."""
    try:
        outcome = command.run()
        if isinstance(outcome, int):
            return outcome
        output = getattr(command, "output", "table")
        if isinstance(outcome, LiveRows):
            print_live(outcome, output, sys.stdout)
        elif isinstance(outcome, Sections):
            print_sections(outcome, output, sys.stdout)
        elif outcome is not None:
            print_rows(outcome, output, sys.stdout)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough of it. What is still buffered must not be tried again at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        return PIPE_CLOSED
    except (TidelogError, OSError) as error:
        if getattr(command, "log_level", "") == "debug":
            traceback.print_exc()
        complain(as_typed(error))
        return status_of(error)
    return 0


def status_of(error: Exception) -> int:
    return USAGE if isinstance(error, ConfigError | UsageError) else FAILED


def complain(message: str) -> None:
    """One line on stderr that says what was wrong, where, and what to do."""
    print("error: " + printable(" ".join(line.strip() for line in message.split("\n"))), file=sys.stderr, flush=True)


def open_admin(bootstrap: str, timeout: float, log_level: str) -> Admin:
    """An Admin for a command; use it as a context, which closes it.

    It comes from a factory: what a command has changed, whichever broker it asks next shows it.
    """
    start_logging(log_level)
    from tidelog import Factory

    options = client_arguments(bootstrap, "admin", client_id="tidelog-cli", default_api_timeout_ms=timeout_ms(timeout))
    return Factory(options.pop("bootstrap_servers")).admin(**options)


def timeout_ms(timeout: float) -> int:
    return round(timeout * 1_000)


def start_logging(level: str) -> None:
    """Log Tidelog's own lines to stderr, for commands that are clients."""
    import logging  # not every command logs

    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
